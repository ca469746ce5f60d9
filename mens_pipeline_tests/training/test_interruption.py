"""Runs that are killed or stopped, and then resumed, end with the adapter of an untouched run."""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.delivery.retention import load_retention, prune
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import ExitCode, newest_checkpoint
from mens_pipeline.settings import RETENTION
from mens_pipeline.storage.documents import TAG, lock_abandoned
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.prepare import PreparedRun, work_folder
from mens_pipeline.training.qlora_adapter import WEIGHTS, build_qlora_adapter
from mens_pipeline_tests.jobs.processes import do_alone, job_children, run_signalled, steps_told
from mens_pipeline_tests.training.runs import CONTRARY, contrary_pairs, prepare_fast, weights_of

_FIELDS: Final[dict[str, Any]] = {
    "rows": contrary_pairs(20),
    "validation_split_ratio": CONTRARY,
    "num_train_epochs": 3,
    "lora_dropout": 0.1,
}
"""The first of four measured losses is the lowest, so its checkpoint has to survive."""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("watched_closely", "fork_jobs")]


@pytest.fixture(scope="module")
def uninterrupted(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The adapter of an untouched run."""
    run = prepare_fast(tiny_base, tmp_path_factory.mktemp("whole"), **_FIELDS)
    assert do_alone(run.job.path) == ExitCode.DONE
    return weights_of(run)


def test_a_killed_run_resumes_to_the_same_adapter(tiny_base: Path, tmp_path: Path, uninterrupted: bytes) -> None:
    """Killed twice in the middle of a step or a checkpoint, with dropout: the same adapter, bit for bit."""
    run = prepare_fast(tiny_base, tmp_path, **_FIELDS)
    for _ in range(2):
        assert run_signalled(run, signal_at=steps_told(run) + 2) == -signal.SIGKILL
    assert run_signalled(run) == ExitCode.DONE

    assert weights_of(run) == uninterrupted


def test_a_terminated_run_writes_a_checkpoint(tiny_base: Path, tmp_path: Path, uninterrupted: bytes) -> None:
    """SIGTERM: exit code 143, a complete checkpoint although none was due, and then the same adapter."""
    run = prepare_fast(tiny_base, tmp_path, **{**_FIELDS, "save_steps": 1000})
    assert run_signalled(run, signal_at=2, number=signal.SIGTERM) == ExitCode.INTERRUPTED
    assert newest_checkpoint(run.job.run_dir) is not None
    assert run_signalled(run) == ExitCode.DONE

    assert weights_of(run) == uninterrupted


def test_a_folder_in_use_is_never_pruned(tiny_base: Path, tmp_path: Path, uninterrupted: bytes) -> None:
    """The adapter is the same, bit for bit, with any clock before, during and after training."""
    store, pruned = ArtifactStore(tmp_path / "store"), list[int]()
    into = partial(work_folder, store, Kind.QLORA_ADAPTER)
    run = prepare_fast(tiny_base, tmp_path, into=into, **_FIELDS)

    def prune_later() -> None:
        now = time.time() + 400 * 86_400
        (store.root / TAG).touch()
        os.utime(store.root / TAG, (now, now))
        plan = prune(store, load_retention(RETENTION), now, apply=True, show=lambda _plan: None)
        assert run.job.run_dir in {decision.item.path for decision in plan.decisions}
        pruned.append(steps_told(run))

    def launch(prepared: PreparedRun) -> int:
        prune_later()
        code = run_job(prepared.job.path, lambda: prune_later() if steps_told(run) > len(pruned) else None)
        prune_later()
        return code

    made, _ = build_qlora_adapter(run, store, launch, None)

    assert (made.path / WEIGHTS).read_bytes() == uninterrupted
    assert len(pruned) > 2


def test_ending_the_wait_ends_the_child(tiny_base: Path, tmp_path: Path) -> None:
    """The child itself locks its folder as long as it lives: its parent may be gone."""
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=300, save_steps=1000)
    children: list[int] = []

    def poll() -> None:
        if steps_told(run) >= 2:
            children.extend(job_children())
            with pytest.raises(BlockingIOError), lock_abandoned(run.job.run_dir):
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(run.job.path, poll, grace_seconds=60)
    with lock_abandoned(run.job.run_dir):
        pass

    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert newest_checkpoint(run.job.run_dir) is not None
