"""The head of a file counts in every encoding and with every line end."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.forgotten import SourcePolicy
from mens_pipeline.corpus.extract.workspace import extract_workspace
from mens_pipeline.corpus.schema.account import Unit
from mens_pipeline_tests.every import every

_ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "bom utf-16-be", "bom utf-32-be")
_ENDS = ("\n", "\r\n", "\r")
_PROGRAM = 'fn f() to str {\n    return "ä"\n}\n'
_PAGE = f"# P\n\n## Section\n\n{'word ' * 40}\n\n```vox\n{_PROGRAM}```\n"
_HEADERS = ("training_eligible: false", "status: deprecated", "training_weight: none", "training_eligible: [")
_REFUSED = {
    "a.vox": [
        *(f"// ---\n// {header}\n// ---\n{_PROGRAM}" for header in _HEADERS),
        f"\n\u200b// ---\n// training_eligible: false\n// ---\n{_PROGRAM}",
        *(f"// By us.\n// ---\n// {header}\n// ---\n{_PROGRAM}" for header in _HEADERS if "weight" not in header),
        f"// vox:skip\n{_PROGRAM}",
        f"{_PROGRAM}// vox:skip\n",
        f"// SPDX-License-Identifier: GPL-3.0-only\n{_PROGRAM}",
        f"// @generated\n{_PROGRAM}",
    ],
    "p.md": [
        *(f"---\ntraining_eligible: true\n{header}\n---\n{_PAGE}" for header in _HEADERS),
        _PAGE,
        f"\n---\ntraining_eligible: true\n---\n{_PAGE}",
        f"---\ntraining_eligible: true\n---\n<!-- SPDX-License-Identifier: GPL-3.0-only -->\n{_PAGE}",
        f"---\ntraining_eligible: true\n---\n<!-- @generated -->\n{_PAGE}",
    ],
}
_KEPT = {"a.vox": f"// About f.\n{_PROGRAM}", "p.md": f"---\ntraining_eligible: true\n---\n{_PAGE}"}
_CASES = [(name, text) for name, texts in _REFUSED.items() for text in texts]


def _encode(text: str, encoding: str, end: str) -> bytes:
    text = text.replace("\n", end)
    return f"\ufeff{text}".encode(encoding[4:]) if encoding.startswith("bom ") else text.encode(encoding)


def _extract(root: Path, name: str, text: str) -> list[list[str]]:
    for path in root.iterdir():
        path.unlink()
    ways = [(encoding, end) for encoding in _ENCODINGS for end in _ENDS]
    for number, (encoding, end) in enumerate(ways):
        (root / f"{number:02}{name}").write_bytes(_encode(text, encoding, end))
    return [list(outcome.lines) for outcome in extract_workspace(root, policy=SourcePolicy(deny=("GPL-*",)))]


@every("case", _CASES)
def test_files_that_opt_out_do_not_train(tmp_path: Path, case: tuple[str, str]) -> None:
    found = _extract(tmp_path, *case)

    assert len(found) == len(_ENCODINGS) * len(_ENDS)
    assert not any(found)


@every("name", list(_KEPT))
def test_every_line_end_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    def rows(lines: list[str]) -> list[dict[str, object]]:
        found = [json.loads(line) for line in lines]
        return [{**row, "source": {**row["source"], "path": "", "blob": ""}} for row in found]

    found = list(map(rows, _extract(tmp_path, name, _KEPT[name])))

    assert found[0]
    assert found[:6] == [found[0]] * 6
    assert not any(found[6:])
    assert "\\r" not in json.dumps(found)


def test_a_licence_file_is_read_in_its_encoding(tmp_path: Path) -> None:
    """Notepad and shells of Windows write such files."""
    text = "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\n"
    (tmp_path / "a.vox").write_text(_PROGRAM)
    for encoding in _ENCODINGS:
        (tmp_path / "LICENSE").write_bytes(_encode(text, encoding, "\r\n"))
        (outcome,) = extract_workspace(tmp_path)
        assert outcome.licence == "GPL-3.0", encoding


@pytest.mark.parametrize("head", ["\ufeff// ---\r\n// training_eligible: false\r\n// ---\r\n", "// vox:skip\n"])
def test_an_included_file_keeps_its_opt_out(tmp_path: Path, head: str) -> None:
    (tmp_path / "a.vox").write_text(f"{head}// ANCHOR: f\n{_PROGRAM}// ANCHOR_END: f\n")
    (tmp_path / "p.md").write_text("---\ntraining_eligible: true\n---\n```vox\n{{#include a.vox:f}}\n```\n")

    assert not any(outcome.lines for outcome in extract_workspace(tmp_path))


def test_files_of_other_formats_are_counted_separately(tmp_path: Path) -> None:
    (tmp_path / "a.vox").write_text(_PROGRAM)
    (tmp_path / "tree.vox").write_bytes(b"VOX \x96\0\0\0MAIN")
    for encoding in _ENCODINGS[2:]:
        (tmp_path / f"{encoding}.vox").write_bytes(_encode(_PROGRAM, encoding, "\r\n"))
    drops = {outcome.path: [*outcome.drops] for outcome in extract_workspace(tmp_path)}
    (tree,) = drops.pop("tree.vox")

    assert drops.pop("a.vox") == []
    assert (tree.unit, tree.reason) == (Unit.OTHER_FORMAT, "not_text")
    for (drop,) in drops.values():
        assert (drop.unit, drop.reason) == (Unit.VOX_FILE, "not_utf8")
        assert drop.detail.endswith("save the file as UTF-8")
