"""The extracted corpus as an artifact."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.extracted_corpus import RECORDS, REPORT, build_extracted_corpus, inputs_of
from mens_pipeline.corpus.store import ArtifactStore


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One program and one page."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text("fn a() { }\n")
    (root / "p.md").write_text("---\ntraining_eligible: true\n---\n```vox\nfn p() { }\n```\n")
    return root


def test_an_unchanged_workspace_is_not_extracted_again(workspace: Path, tmp_path: Path) -> None:
    """The second build is the first one, and says so."""
    store = ArtifactStore(tmp_path / "store")
    first, first_reused = build_extracted_corpus(workspace, store)
    second, second_reused = build_extracted_corpus(workspace, store)

    assert (first_reused, second_reused) == (False, True)
    assert second == first
    assert store.pointed("extracted_corpus", "latest") == first.key
    assert first.manifest["num_records"] == len((first.path / RECORDS).read_text().splitlines()) == 2
    assert json.loads((first.path / REPORT).read_text())["units"] == first.manifest["units"]


def test_a_page_that_opts_out_goes_and_a_new_one_comes(workspace: Path, tmp_path: Path) -> None:
    """Each change of a source makes a new corpus without stale rows."""
    store = ArtifactStore(tmp_path / "store")
    before, _ = build_extracted_corpus(workspace, store)
    (workspace / "p.md").write_text("---\ntraining_eligible: false\n---\n```vox\nfn p() { }\n```\n")
    without, _ = build_extracted_corpus(workspace, store)
    (workspace / "a.vox").unlink()
    empty, _ = build_extracted_corpus(workspace, store)

    assert [corpus.manifest["num_records"] for corpus in (before, without, empty)] == [2, 1, 0]
    assert len({before.key, without.key, empty.key}) == 3


def test_links_and_unreadable_files_count_as_what_they_are(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key changes with them, and none is followed or fatal."""
    keys = [inputs_of(workspace)["sources"]]
    (workspace / "link.vox").symlink_to(workspace / "a.vox")
    keys.append(inputs_of(workspace)["sources"])

    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    keys.append(inputs_of(workspace)["sources"])

    assert len(set(keys)) == 3
