"""Documents in the folder of a run."""

from pathlib import Path

import pytest

from mens_pipeline.errors import DiskError
from mens_pipeline.evaluation.run_folder import remember
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.corpus.full_disk import full_after


def test_a_document_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    artifact, _ = ArtifactStore(tmp_path / "store").build(
        "benchmark_gate", {}, lambda folder: {"n": (folder / "page").write_text("new" * 1000)}
    )
    run = tmp_path / "run"
    run.mkdir()
    (run / "page").write_text("old")
    with full_after(1000), pytest.raises(DiskError, match=r"run/page: File too large"):
        remember(run, artifact, ["page", "absent"])

    assert [(path.name, path.read_text()) for path in run.iterdir()] == [("page", "old")]
    remember(run, artifact, ["page", "absent"])
    assert (run / "page").read_text() == "new" * 1000
