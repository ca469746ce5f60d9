"""Files that pages include."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.page import MAX_INCLUDED_BYTES, Allowance, IncludeError, has_include, resolve_includes
from mens_pipeline_tests.every import every_row


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a page, a program, a secret outside and a link to it."""
    root = tmp_path / "workspace"
    (root / "docs").mkdir(parents=True)
    (root / "a.vox").write_text("fn f() { }\n// ANCHOR: part\nfn g() { }\n// ANCHOR_END: part\nfn h() { }\n")
    (root / "turned.vox").write_text("// ANCHOR_END: part\n// ANCHOR: part\n")
    (root / "binary.vox").write_bytes(b"\xff")
    (root / "large.vox").write_text(" " * (MAX_INCLUDED_BYTES + 1))
    (tmp_path / "secret.vox").write_text("fn secret() { }\n")
    (root / "link.vox").symlink_to(tmp_path / "secret.vox")
    return root


def _resolve(block: str, root: Path) -> str:
    return resolve_includes(block, root / "docs" / "page.md", root, Allowance())[0]


def test_a_file_and_an_anchored_part_are_included(root: Path) -> None:
    block = "let x = 1\n{{#include ../a.vox:part}}\nlet y = 2\n"

    assert _resolve(block, root) == "let x = 1\nfn g() { }\nlet y = 2\n"
    assert _resolve("{{#include ../a.vox}}\n", root).startswith("fn f() { }\n// ANCHOR: part\n")
    assert resolve_includes(block, root / "docs" / "page.md", root, Allowance())[1] == ((root / "a.vox").resolve(),)


def test_a_block_without_directives_is_left_alone(root: Path) -> None:
    assert resolve_includes("fn f() { }\n", root / "docs" / "page.md", root, Allowance()) == ("fn f() { }\n", ())


@pytest.mark.threat("W1")
@every_row(
    ("../missing.vox", "does not exist"),
    ("../../secret.vox", "outside the workspace"),
    ("../link.vox", "outside the workspace"),
    ("/etc/hostname", "outside the workspace"),
    ("../a.vox:other", "no anchor other"),
    ("../turned.vox:part", "no anchor part"),
    ("../binary.vox", "cannot be read as text"),
    ("..", "cannot be read as text"),
    ("../large.vox", "larger than"),
    ("../a.vox\0", "does not exist"),
)
def test_invalid_includes_are_refused(target: str, problem: str, root: Path) -> None:
    with pytest.raises(IncludeError, match=problem):
        _resolve(f"{{{{#include {target}}}}}\n", root)


def test_pages_with_includes_are_recognised() -> None:
    assert has_include(b"```vox\n{{#include ../a.vox}}\n```\n")
    assert has_include(b"Write `{{#include`.\n")
    assert not has_include(b"include a.vox\n")
