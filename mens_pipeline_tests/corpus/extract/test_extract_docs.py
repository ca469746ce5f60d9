"""Pages to records."""

import time
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.extractors import MAX_PAGE_LINES, PageExtraction, extract_docs
from mens_pipeline.corpus.extract.page import parse_page
from mens_pipeline.corpus.schema.account import Drop, Unit
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import MAX_CONTEXT, MAX_TEXT, Lane, SourceFile, SourceKind
from mens_pipeline_tests.every import every_row

_HEADER = '---\ntitle: "Actors"\ntraining_eligible: true\ndifficulty: beginner\n---\n'
_PAGE = (
    _HEADER
    + """
# Actors in Vox

Above all sections.

## Handlers

A handler is a function of its own. It takes a message and answers it, one at a time, and nothing else of the actor runs
meanwhile.

```vox
# not a heading
actor A {
    on e() { }
}
```

- a list counts as prose, too

## Short

Few words.

```python
print("not Vox")
```

> ```vox
> fn quoted() { }
> ```
"""
)


def _refuse(path: Path, _data: bytes) -> tuple[DropReason, str] | None:
    return (DropReason.NEGATIVE_ROOT, f"{path.name} lies below") if "negative" in path.parts else None


def _extract(page: str, root: Path) -> PageExtraction:
    found = extract_docs(SourceFile("docs/page.md", page.encode()), root, _refuse)

    assert isinstance(found, PageExtraction)
    return found


@pytest.mark.seed_row(3)
def test_blocks_and_sections_become_records(tmp_path: Path) -> None:
    found = _extract(_PAGE, tmp_path)
    (drop,), (actor, quoted, section) = found.drops, found.records

    assert (actor.lane, actor.category, actor.source.kind) == (Lane.CODEGEN, "actor", SourceKind.DOC_BLOCK)
    assert actor.text == "# not a heading\nactor A {\n    on e() { }\n}\n"
    assert _PAGE[slice(*actor.source.span)] == actor.text
    assert str(actor.context).startswith("Actors: Handlers: A handler is a function")
    assert quoted.text == "fn quoted() { }\n"
    assert (section.lane, section.verdict, section.name) == (Lane.DOCS_QA, "prose", "Handlers")
    assert "actor A" not in section.text
    assert section.text.endswith("- a list counts as prose, too")
    assert section.metadata["difficulty"] == "beginner"
    short = _PAGE.split("\n").index("## Short") + 1
    assert (drop.unit, drop.reason, drop.line) == (Unit.SECTION, DropReason.TOO_SHORT, short)


def test_title_comes_from_the_first_heading_when_the_header_has_none(tmp_path: Path) -> None:
    page = "---\ntraining_eligible: true\n---\n# Named\n\n```vox\nfn f() { }\n```\n"
    bare = "---\ntraining_eligible: true\n---\n```vox\nfn f() { }\n```\n"

    assert _extract(page, tmp_path).records[0].context == "Named"
    assert _extract(bare, tmp_path).records[0].context is None


@pytest.mark.parametrize(
    ("info", "block", "reason", "line"),
    [
        ("vox", "// vox:skip (why)\nfn f() { }", DropReason.SKIP_MARKER, 8),
        ("vox,ignore", "fn f() { }", DropReason.SKIP_MARKER, 8),
        ("vox", "fn f() { }\n\nfn g(", DropReason.REJECTED, 10),
        ("vox", "// only a comment", DropReason.NO_DECLARATION, 8),
        ("vox", "// ---\nfn f() { }", DropReason.BAD_FRONTMATTER, 8),
        ("vox", "{{#include ../missing.vox}}", DropReason.BAD_INCLUDE, 8),
        ("vox", "{{#include ../../outside.vox}}", DropReason.BAD_INCLUDE, 8),
        ("vox", "{{#include ../negative/bad.vox}}", DropReason.NEGATIVE_ROOT, 8),
        ("vox", "{{#include ../private.vox}}", DropReason.OPTED_OUT, 8),
    ],
)
def test_unusable_blocks_are_dropped(tmp_path: Path, info: str, block: str, reason: DropReason, line: int) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "negative").mkdir()
    (root / "negative" / "bad.vox").write_text("fn f() { }\n")
    (root / "private.vox").write_text("// ---\n// training_eligible: false\n// ---\nfn f() { }\n")
    (tmp_path / "outside.vox").write_text("fn f() { }\n")
    (drop,) = _extract(f"{_HEADER}\n```{info}\n{block}\n```\n", root).drops

    assert (drop.unit, drop.reason, drop.line) == (Unit.BLOCK, reason, line)


def test_long_blocks_and_sections_are_counted(tmp_path: Path) -> None:
    block = f"```vox\nfn f() to str {{ return '{'x' * MAX_TEXT}' }}\n```\n"
    page = f"{_HEADER}\n## Long\n\n{block}\n{'word ' * (MAX_TEXT // 4)}\n\n## {'T' * 900}\n\n{'word ' * 40}\n"
    found = _extract(page, tmp_path)

    assert [drop.unit for drop in found.drops] == [Unit.BLOCK, Unit.SECTION]
    assert {drop.reason for drop in found.drops} == {DropReason.TOO_LARGE}
    assert [len(str(record.context)) for record in found.records] == [MAX_CONTEXT]


def test_an_included_part_has_no_metadata(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "a.vox").write_text("// ---\n// title: x\n// ---\n// @training_prompt: y\nfn f() { }\n")
    (record,) = _extract(f"{_HEADER}\n```vox\n{{{{#include ../a.vox}}}}\n```\n", tmp_path).records

    assert record.text == "fn f() { }\n"


@pytest.mark.seed_row(3)
@every_row(
    (b"# No header\n", DropReason.NOT_OPTED_IN),
    (b"---\ntitle: x\n---\n", DropReason.NOT_OPTED_IN),
    (b"---\ntraining_eligible: false\n---\n", DropReason.OPTED_OUT),
    (b"---\ntraining_eligible: true\nstatus: deprecated\n---\n", DropReason.DEPRECATED),
    (b"---\n- a\n---\n", DropReason.BAD_FRONTMATTER),
    (b"---\ntraining_eligible: true\n\n# Never closed\n", DropReason.BAD_FRONTMATTER),
    (b"\n---\ntraining_eligible: true\n---\n", DropReason.BAD_FRONTMATTER),
    (b"\xef\xbb\xbf---\r\ntraining_eligible: true\r\n\r\n", DropReason.BAD_FRONTMATTER),
    (b"---\n\nA line, and no header.\n", DropReason.NOT_OPTED_IN),
    (b"---\ntraining_eligible: true\ntraining_weight: 0\n---\n", DropReason.BAD_FRONTMATTER),
    (b"\xff", DropReason.NOT_UTF8),
)
def test_unusable_pages_are_dropped_with_a_reason(page: bytes, reason: DropReason, tmp_path: Path) -> None:
    drop = extract_docs(SourceFile("docs/page.md", page), tmp_path)

    assert isinstance(drop, Drop)
    assert (drop.unit, drop.reason) == (Unit.PAGE, reason)


@pytest.mark.threat("W7")
def test_a_page_of_too_many_lines_is_dropped(tmp_path: Path) -> None:
    most = _HEADER + "x\n" * (MAX_PAGE_LINES - _HEADER.count("\n") - 1)
    found = extract_docs(SourceFile("docs/page.md", f"{most}x\nx".encode()), tmp_path)

    detail = f"{MAX_PAGE_LINES + 1} lines, more than {MAX_PAGE_LINES}"
    assert found == Drop(Unit.PAGE, "docs/page.md", 1, DropReason.TOO_LARGE, detail)
    assert _extract(most, tmp_path).drops == ()


@pytest.mark.threat("W7")
@pytest.mark.parametrize("text", ["[" * 1_000_000, "*_a" * 300_000, "<a " * 300_000], ids=["links", "stress", "tags"])
def test_inline_markup_is_not_parsed(text: str) -> None:
    """A page of a megabyte took half a minute; parsing only its blocks is fast."""
    begun = time.process_time()

    assert parse_page(f"# {text}\n\n{text}\n").title == text.strip()
    assert time.process_time() - begun < 1
