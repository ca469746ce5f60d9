"""Judging and merging on a GPU; skipped where there is none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline.delivery.merge_source import merge_source, prompts_of
from mens_pipeline.delivery.merged_model import build_merged_model, prepare_merge, report_in
from mens_pipeline.inference import prepare
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import HELDOUT, trained_run
from mens_pipeline_tests.training.tiny_base import write_tiny_hybrid

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.fixture(params=["llama", "hybrid"])
def run_dir(request: pytest.FixtureRequest, tmp_path: Path, cuda: None) -> Path:  # noqa: ARG001 - before what takes a minute
    """A trained run on a tiny base of that kind."""
    if request.param == "hybrid":
        return trained_run(tmp_path / "trained", write_tiny_hybrid)
    found: Path = request.getfixturevalue("trained")
    return found


@pytest.mark.parametrize("is_small", [False, True], ids=["dense", "in four bits"])
def test_what_a_card_judged_is_what_is_handed_on(
    run_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    *,
    is_small: bool,
) -> None:
    """Merged as it was judged, or, where the GPU holds four bits, into their values by the CPU; the proof holds."""
    if is_small:
        monkeypatch.setattr(prepare, "fits_dense", lambda *_: False)
    store = ArtifactStore(tmp_path / "store")
    source = merge_source(run_dir, store)
    conditions = Conditions(Decoding(max_new_tokens=64), resolve_device(DeviceChoice.CUDA), tmp_path / "lock")
    prompts = prompts_of(source, run_dir.parent / HELDOUT, store, lambda _text: True, 4)
    prepared = prepare_merge(source, prompts, conditions, None, store.root / "work")

    def launch(job_path: Path) -> int:
        return run_job(job_path)

    report = report_in(build_merged_model(prepared, store, launch)[0].path)
    record_property("led_agreement", f"{report.agreement.led_agreement:.4f}")
    record_property("token_agreement", f"{report.agreement.token_agreement:.4f}")

    assert (prepared.job.reference.held, prepared.job.reference.device) == ("dense", "cpu" if is_small else "cuda")
    assert report.passed, report.reasons
