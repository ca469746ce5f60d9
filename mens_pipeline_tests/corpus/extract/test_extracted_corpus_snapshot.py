"""A workspace pinned by hash, with the verdicts of the front end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.extracted_corpus import (
    SNAPSHOT_STAGE,
    RejectedFile,
    SnapshotParams,
    WorkspaceParams,
    build_extracted_corpus,
    report_sources,
    source_report_in,
)
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.store import ArtifactStore


def test_verdicts_and_constructs_are_counted() -> None:
    report = report_sources(
        [
            ("a.vox", b"fn f() { }\nworkflow W() { }\n"),
            ("b.vox", b"fn g() { }\n\nx\n"),
            ("c.vox.ui", b"state n = 0\n"),
            ("d.vox", b"\xff"),
            ("e.vox", None),
        ],
        lambda _path: True,
    )

    assert (report.num_files, report.num_accepted, report.num_bytes, report.parse_rate) == (5, 2, 55, 0.4)
    assert report.rejected == (
        RejectedFile("b.vox", 3, "expected-declaration", "expected a declaration, found identifier `x`"),
        RejectedFile("d.vox", 1, "invalid-utf8", "byte 0xFF is not UTF-8: invalid start byte"),
        RejectedFile("e.vox", 1, "unreadable", "the file cannot be read"),
    )
    assert {name for name, count in report.constructs.items() if count} == {"function", "workflow", "reactive_module"}
    assert sum(map(bool, report.constructs.values())) == 3


def test_files_of_other_formats_do_not_lower_the_rate() -> None:
    models = [(f"{number}.vox", b"VOX \x96\0\0\0MAIN") for number in range(4)]
    report = report_sources([("a.vox", b"fn f() { }\n"), *models], lambda _path: True)

    assert (report.parse_rate, report.num_files, report.num_other, report.rejected) == (1.0, 1, 4, ())


def test_no_files_have_no_rate() -> None:
    assert report_sources([], lambda _path: True).parse_rate is None


def test_counts_read_as_a_share() -> None:
    assert share_text(37, 40) == "37/40 (92.5 %)"
    assert share_text(0, 0) == "0/0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A good program, a broken one, and a page."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "good.vox").write_text("fn f() { }\n")
    (folder / "bad.vox").write_text("fn f(\n")
    (folder / "page.md").write_text("# A page\n")
    return folder


def _contents(root: Path) -> Iterator[tuple[str, bytes | None]]:
    return ((path.name, path.read_bytes()) for path in sorted(root.glob("*.vox")))


def test_a_workspace_is_parsed_once(root: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    first, is_known = SNAPSHOT_STAGE.build(store, SnapshotParams.pin(root, contents=lambda: _contents(root)))
    again, is_known_again = SNAPSHOT_STAGE.build(store, SnapshotParams.pin(root, contents=list))
    report = source_report_in(again)

    assert (is_known, is_known_again) == (False, True)
    assert first.key == again.key
    assert (report.num_files, report.num_accepted, first.manifest["num_pages"]) == (2, 1, 1)
    assert [(file.path, file.line) for file in report.rejected] == [("bad.vox", 1)]
    assert report.constructs["function"] == 1


def test_a_change_during_the_snapshot_is_refused(root: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")

    def contents() -> Iterator[tuple[str, bytes | None]]:
        (root / "new.vox").write_text("fn g() { }\n")
        return _contents(root)

    with pytest.raises(RefusedError, match="sources changed since the workspace was pinned"):
        SNAPSHOT_STAGE.build(store, SnapshotParams.pin(root, contents=contents))


def test_a_corpus_is_of_the_pinned_workspace(root: Path, tmp_path: Path) -> None:
    store, pinned = ArtifactStore(tmp_path / "store"), WorkspaceParams.pin(root).model_dump()
    corpus, _ = build_extracted_corpus(root, store, pinned=pinned)
    (root / "good.vox").write_text("fn other() { }\n")

    assert corpus.manifest["num_records"] > 0
    with pytest.raises(RefusedError, match="sources changed since the workspace was pinned"):
        build_extracted_corpus(root, store, pinned=pinned)
