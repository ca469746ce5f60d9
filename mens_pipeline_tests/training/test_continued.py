"""Runs that continue after their end."""

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import CHECKPOINTS, ExitCode
from mens_pipeline.models.adapter import ADAPTER, TELEMETRY
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.qlora import checksums
from mens_pipeline.training.qlora_adapter import continue_from, finish_run, further
from mens_pipeline.training.recipe import Continued
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.jobs.processes import job_children
from mens_pipeline_tests.training.runs import prepare_fast, resolve_fast, train_here

pytestmark = pytest.mark.filterwarnings("ignore")
_WEIGHTS = "adapter_model.safetensors"
_FIELDS: dict[str, Any] = {"max_steps": 2, "warmup_steps": 2, "lr_scheduler_type": "linear", "save_steps": 1000}
_MINUTES = 60.0


@pytest.fixture(scope="module")
def first(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    """A run that has ended."""
    run = prepare_fast(tiny_base, tmp_path_factory.mktemp("first"), **_FIELDS)
    train_here(run)
    finish_run(run, None, ExitCode.DONE)
    return run


def _continue_run(before: PreparedRun, folder: Path) -> PreparedRun:
    return prepare_run(
        further(resolve_fast(before.job.base_path, **_FIELDS), _MINUTES),
        before.job.train_path,
        folder,
        resolve_device(DeviceChoice.CPU),
        cache=folder.parent / "cache",
        min_rows=1,
        continues=continue_from(before.job.run_dir),
    )


def _load_values(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack

    values: dict[str, Any] = load_file(folder / _WEIGHTS)
    return values


def test_a_continued_run_starts_with_the_first_adapter(tiny_base: Path, tmp_path: Path, first: PreparedRun) -> None:
    """The weights before the first update are those of the first adapter."""
    from mens_pipeline.training import train as module  # noqa: PLC0415 - loads the deep learning stack

    second = _continue_run(first, tmp_path / "second")
    seen: dict[str, Any] = {}

    def record(model: Any) -> Any:
        seen.setdefault("before", {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad})
        return checksums(model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "checksums", record)
        result = train_here(second)
    kept = _load_values(first.job.run_dir / ADAPTER)
    begun = {name.replace(".default", ""): value for name, value in seen["before"].items()}

    assert begun.keys() == kept.keys()
    assert all(value.equal(kept[name]) for name, value in begun.items())
    assert any(not value.equal(kept[name]) for name, value in _load_values(second.job.run_dir / ADAPTER).items())
    assert result["num_changed_matrices"] == result["num_adapter_matrices"]
    whole = prepare_fast(tiny_base, tmp_path / "whole", num_train_epochs=2)
    assert second.preflight["num_steps"] > whole.preflight["num_steps"] > first.preflight["num_steps"] == 2


def test_the_rate_rises_and_falls_again(tmp_path: Path, first: PreparedRun) -> None:
    second = _continue_run(first, tmp_path / "second")
    train_here(second)
    rates = [step["learning_rate"] for step in steps_of(second.job.run_dir / TELEMETRY)]
    last = [step["learning_rate"] for step in steps_of(first.job.run_dir / TELEMETRY)][-1]

    assert len(rates) == second.preflight["num_steps"]
    assert rates[0] < max(rates) == rates[1] == pytest.approx(1e-2, rel=0.1)
    assert all(after < before for before, after in pairwise(rates[1:]))
    assert rates[-1] < 0.1 * max(rates)
    assert last < max(rates)


def test_a_run_continued_twice_counts_all_of_its_parts(tmp_path: Path, first: PreparedRun) -> None:
    """Rows, steps and seconds; each part is a separate run, and the same part again gives the same adapter."""
    second = _continue_run(first, tmp_path / "second")
    result = train_here(second)
    manifest = finish_run(second, None, ExitCode.DONE)
    continued = continue_from(second.job.run_dir)
    again = _continue_run(first, tmp_path / "again")
    train_here(again)

    assert manifest.continues is not None
    assert manifest.continues.num_steps == 2
    assert continued.num_steps == 2 + result["num_steps"]
    assert continued.num_batches == continue_from(first.job.run_dir).num_batches + result["num_batches"]
    assert continued.seconds > result["seconds"]
    assert manifest.recipe.max_minutes == _MINUTES
    assert manifest.recipe_origins["max_minutes"] == "more"
    assert len({run.job.contract_digest for run in (first, second, again)}) == 2
    assert (again.job.run_dir / ADAPTER / _WEIGHTS).read_bytes() == continued.adapter.read_bytes()


@pytest.mark.nightly
@pytest.mark.usefixtures("watched_closely")
def test_a_continued_run_can_be_interrupted(tmp_path: Path, first: PreparedRun) -> None:
    runs = [_continue_run(first, tmp_path / name) for name in ("whole", "stopped")]
    train_here(runs[0])
    run = runs[1]
    sent: list[int] = []

    def stop() -> None:
        path = run.job.run_dir / TELEMETRY
        if not sent and path.is_file() and '"step"' in path.read_text():
            sent.extend(job_children())
            for child in sent:
                os.kill(child, signal.SIGTERM)

    codes = [run_job(run.job.path, poll, grace_seconds=60) for poll in (stop, lambda: None)]

    assert codes == [ExitCode.INTERRUPTED, ExitCode.DONE]
    assert list((run.job.run_dir / CHECKPOINTS).glob("checkpoint-*"))
    weights = [(run.job.run_dir / ADAPTER / _WEIGHTS).read_bytes() for run in runs]
    assert weights[0] == weights[1]


def test_rejects_an_adapter_that_differs_from_the_end_of_the_run(tmp_path: Path, first: PreparedRun) -> None:
    second = _continue_run(first, tmp_path / "second")
    continued = continue_from(first.job.run_dir)
    changed = second.job.model_copy(update={"continues": continued.model_copy(update={"adapter_sha256": "0" * 64})})
    with pytest.raises(RefusedError, match="changed since it was trained"):
        _train_job(changed)
    fewer = _drop_matrix(continued, tmp_path / "fewer.safetensors")
    with pytest.raises(RefusedError, match=r"has 27 matrices, but the recipe needs 28\. Continue with the recipe"):
        _train_job(second.job.model_copy(update={"continues": fewer}))


def _train_job(job: Any) -> None:
    from mens_pipeline.training.train import train  # noqa: PLC0415 - loads the deep learning stack

    train(job)


def _drop_matrix(continued: Continued, path: Path) -> Continued:
    from safetensors.torch import save_file  # noqa: PLC0415 - comes with the deep learning stack

    from mens_pipeline.storage.store import digest_of  # noqa: PLC0415 - beside its use

    values = _load_values(continued.adapter.parent)
    values.pop(min(values))
    save_file(values, path)
    return continued.model_copy(update={"adapter": path, "adapter_sha256": digest_of(path)})
