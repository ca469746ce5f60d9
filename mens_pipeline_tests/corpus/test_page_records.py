"""Folders of pages, each page once."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.workspace import page_records
from mens_pipeline.errors import SourceNotFoundError

_PAGE = "---\ntraining_eligible: true\n---\n```vox\nfn {name}() {{ }}\n```\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A workspace with pages in a folder and in a folder below it."""
    root = tmp_path / "workspace" / "docs"
    (root / "adr").mkdir(parents=True)
    (root.parent / "examples.ssot.v1.yaml").write_text("doc_roots: [docs]\n")
    (root.parent / "a.vox").write_text("fn included() { }\n")
    (root / "one.md").write_text(_PAGE.format(name="one"))
    (root / "adr" / "two.md").write_text(_PAGE.format(name="two"))
    (root / "adr" / "three.md").write_text("---\ntraining_eligible: true\n---\n```vox\n{{#include ../../a.vox}}\n```\n")
    (root / "out.md").write_text("# Not opted in\n")
    (root / "link.md").symlink_to(root / "one.md")
    return root


@pytest.mark.seed_row(7)
def test_overlapping_folders_give_each_page_once(docs: Path) -> None:
    """Paths are relative to the workspace, and includes reach into it."""
    records = page_records([docs, docs / "adr"], set())

    assert [(record.source.path, record.text) for record in records] == [
        ("docs/one.md", "fn one() { }\n"),
        ("docs/adr/three.md", "fn included() { }\n"),
        ("docs/adr/two.md", "fn two() { }\n"),
    ]


def test_a_page_that_is_known_is_not_taken_again(docs: Path) -> None:
    """What the records hold already does not come twice."""
    known = [record.source.blob for record in page_records([docs], set())]

    assert page_records([docs], known) == []


def test_a_folder_on_its_own_is_its_own_workspace(tmp_path: Path) -> None:
    """Without a roots file the folder governs itself."""
    (tmp_path / "p.md").write_text(_PAGE.format(name="p"))

    assert [record.source.path for record in page_records([tmp_path], set())] == ["p.md"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """It is never an empty one."""
    with pytest.raises(SourceNotFoundError, match="Name a folder of pages"):
        page_records([tmp_path / "nowhere"], set())
