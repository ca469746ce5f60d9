"""Evaluating and merging on a GPU; skipped if there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline.delivery.merge import build_merged_model, report_in
from mens_pipeline.inference import prepare as preparing
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import HELDOUT, prepare, trained_run
from mens_pipeline_tests.training.tiny_base import write_tiny_hybrid

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.fixture(params=["llama", "hybrid"])
def run_dir(request: pytest.FixtureRequest, tmp_path: Path, cuda: None) -> Path:  # noqa: ARG001 - before what takes a minute
    """A trained run on a tiny base of each kind."""
    if request.param == "hybrid":
        return trained_run(tmp_path / "trained", write_tiny_hybrid)
    found: Path = request.getfixturevalue("trained")
    return found


@pytest.mark.parametrize("is_small", [False, True], ids=["dense", "in four bits"])
def test_the_merged_model_equals_the_model_evaluated_on_a_gpu(
    run_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    *,
    is_small: bool,
) -> None:
    if is_small:
        monkeypatch.setattr(preparing, "fits_dense", lambda *_: False)
    store = ArtifactStore(tmp_path / "store")
    prepared = prepare(run_dir, store, resolve_device(DeviceChoice.CUDA), 64, heldout=run_dir.parent / HELDOUT)
    report = report_in(build_merged_model(prepared, store, run_job)[0].path)
    record_property("led_agreement", f"{report.agreement.led_agreement:.4f}")
    record_property("token_agreement", f"{report.agreement.token_agreement:.4f}")

    assert (prepared.job.reference.held, prepared.job.reference.device) == ("dense", "cpu" if is_small else "cuda")
    assert report.passed, report.reasons
