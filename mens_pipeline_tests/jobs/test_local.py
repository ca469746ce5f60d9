"""The end of a training process, as its parent sees it."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mens_pipeline.jobs.device import exclusive
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import FAILURE, ExitCode, mark_complete, newest_checkpoint
from mens_pipeline.jobs.run import found_no_room
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.jobs.processes import is_gone, job_children, waiting_job

_STUBBORN = """
import os, signal, subprocess, sys
if "mens_pipeline.jobs" in " ".join(sys.orig_argv):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen(["sleep", "600"])
    with open(os.environ["TEMP_HELPER"], "w") as file:
        file.write(str(helper.pid))
"""
"""Runs when Python starts: a child that ignores SIGTERM and has a child."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Path]:
    """A held lock, so that a child waits for it and loads nothing."""
    path = tmp_path / "cpu.lock"
    with exclusive(path, 0):
        yield path


def _run(job: Path, poll: Callable[[], None] = lambda: None, grace_seconds: float = 20) -> int:
    return run_job(job, poll, grace_seconds=grace_seconds)


def _is_waiting_for(process: int, lock: Path) -> bool:
    """Whether a process has the lock file open."""
    return any(os.path.realpath(entry) == str(lock) for entry in Path(f"/proc/{process}/fd").iterdir())


def test_a_refused_job_writes_its_reason(lock: Path) -> None:
    """Exit code 3 and `failure.json`; an earlier one is removed, and the last poll comes after the end."""
    job = waiting_job(lock, lock_seconds=0)
    failure = job.parent / FAILURE
    failure.write_text('{"reason": "of a run before"}')
    reasons: list[str] = []

    def poll() -> None:
        if failure.is_file() and failure.stat().st_size:
            reasons.append(json.loads(failure.read_text())["reason"])

    assert _run(job, poll) == ExitCode.REFUSED
    holder = f"process {os.getpid()} (a run)"
    assert reasons[-1].startswith(f"{lock}: {holder} holds this device. ")
    assert job_children() == []


def test_a_crashed_job_leaves_its_error_in_the_log(lock: Path) -> None:
    job = waiting_job(lock, lock_seconds=0)
    job.write_text('{"kind": "train"}')
    log = job.parent / "child.log"
    log.write_text("earlier words\n")

    assert _run(job) == ExitCode.CRASHED
    assert not (job.parent / FAILURE).exists()
    assert log.read_text().startswith(f"earlier words\npython -m mens_pipeline.jobs: {job}: not a valid job (")
    assert "Field required" in log.read_text()


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN], ids=["default", "ignored"])
def test_a_child_that_gets_sigterm_is_interrupted(lock: Path, handler: signal.Handlers) -> None:
    """From any sender, even before it has a handler, and even if its parent ignores SIGTERM."""
    job = waiting_job(lock, lock_seconds=60)

    def poll() -> None:
        for child in job_children():
            if _is_waiting_for(child, lock):
                os.kill(child, signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        assert _run(job, poll) == ExitCode.INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_killed_child_is_not_reported_as_interrupted(lock: Path) -> None:
    job = waiting_job(lock, lock_seconds=300)

    def poll() -> None:
        for child in job_children():
            os.kill(child, signal.SIGKILL)

    assert _run(job, poll) == -signal.SIGKILL


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_any_error_in_the_wait_ends_the_child(lock: Path, error: type[BaseException]) -> None:
    """Ctrl-C, a cancelled step or a defect: no process remains, and the error is raised."""
    job = waiting_job(lock, lock_seconds=300)
    seen: list[int] = []

    def poll() -> None:
        if (children := job_children()) and _is_waiting_for(children[0], lock):
            seen.extend(children)
            raise error("enough")

    with pytest.raises(error, match="enough"):
        _run(job, poll)

    assert len(seen) == 1
    assert is_gone(seen[0], 2.5)


def test_a_child_that_ignores_signals_is_killed_with_its_children(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_STUBBORN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TEMP_HELPER", str(tmp_path / "helper"))
    job = waiting_job(lock, lock_seconds=300)
    seen: list[int] = []

    def poll() -> None:
        if (children := job_children()) and _is_waiting_for(children[0], lock):
            seen.extend((*children, int((tmp_path / "helper").read_text())))
            raise KeyboardInterrupt("enough")

    with pytest.raises(KeyboardInterrupt, match="enough"):
        _run(job, poll, grace_seconds=0.3)

    assert len(seen) == 2
    assert all(is_gone(process, 2.5) for process in seen)


def test_an_older_checkpoint_replaces_an_incomplete_one(tmp_path: Path) -> None:
    """After a power cut, its files may be empty and its mark truncated; without a mark it does not count."""
    assert newest_checkpoint(tmp_path) is None
    folders = [tmp_path / "checkpoints" / f"checkpoint-{number}" for number in (9, 10, 11)]
    folders[0].with_name("checkpoint-100").mkdir(parents=True)
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "optimizer.pt").write_bytes(b"moments")
        mark_complete(folder)
    assert newest_checkpoint(tmp_path) == folders[2]
    (folders[2] / "optimizer.pt").write_bytes(b"")
    assert newest_checkpoint(tmp_path) == folders[1]
    for cut in ("", '{"optimizer.pt"', "[" * 50_000):
        (folders[1] / "complete").write_text(cut)
        assert newest_checkpoint(tmp_path) == folders[0]


def test_a_full_disk_is_recognized(tmp_path: Path) -> None:
    """For every writer: the system names it, torch the end of its file, and safetensors quotes the system."""
    import torch
    from safetensors.torch import save_file  # noqa: PLC0415 - loads with torch alone

    values = {"moments": torch.zeros(100_000)}
    found: list[Exception] = []
    for write in (
        lambda: torch.save(values, tmp_path / "optimizer.pt"),
        lambda: save_file(values, tmp_path / "adapter_model.safetensors"),
        lambda: (tmp_path / "result.json").write_bytes(bytes(100_000)),
    ):
        with full_after(50_000), pytest.raises(Exception) as failed:  # noqa: PT011 - of three libraries
            write()
        found.append(failed.value)

    assert [found_no_room(error) for error in found] == [True] * 3, found
    assert not found_no_room(RuntimeError("CUDA out of memory"))
