"""No training process outlives its parent, and no two train on one device."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import exclusive
from mens_pipeline.jobs.local import die_with_parent
from mens_pipeline_tests.jobs.processes import is_gone

_CHILD = """
import sys, time
from mens_pipeline.jobs.local import die_with_parent
die_with_parent(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""
_PARENT = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {_CHILD!r}, str(os.getpid())])
print(child.pid, flush=True)
time.sleep(600)
"""
_HOLDER = """
import sys, time
from pathlib import Path
from mens_pipeline.jobs.device import exclusive
with exclusive(Path(sys.argv[1]), 0):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""
_IS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the end of a parent")


@contextmanager
def _python(program: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that is killed afterwards."""
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _read_lines(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@_IS_LINUX
def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    with _python(_PARENT) as parent:
        child = int(_read_lines(parent))
        try:
            assert _read_lines(parent) == "ready"
            parent.kill()
            parent.wait()

            assert is_gone(child, 5)
        finally:
            if not is_gone(child, 0.1):
                os.kill(child, signal.SIGKILL)


@_IS_LINUX
def test_a_child_without_its_parent_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _CHILD, "1"], capture_output=True, text=True, timeout=20, check=False)

    assert (done.returncode, done.stdout) == (75, "")


def test_other_systems_have_no_such_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    die_with_parent(-1)


def test_a_second_holder_is_refused_with_advice(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "cpu.lock"
    with _python(_HOLDER, str(lock), "600") as holder:
        assert _read_lines(holder) == "held"
        with (
            pytest.raises(
                RefusedError, match=r"cpu\.lock: process \d+ \(.*\) holds this device\. Wait for it to end, or stop it"
            ),
            exclusive(lock, 0.6),
        ):
            pytest.fail("both hold it")


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    """A waiting process gets the lock when its holder dies."""
    lock = tmp_path / "cpu.lock"
    with _python(_HOLDER, str(lock), "600") as holder:
        assert _read_lines(holder) == "held"
        holder.kill()
        holder.wait()
        with exclusive(lock, 0):
            assert lock.is_file()
    with _python(_HOLDER, str(lock), "0.3") as holder:
        assert _read_lines(holder) == "held"
        with exclusive(lock, 20):
            assert holder.wait() == 0


def test_the_lock_is_free_after_the_block(tmp_path: Path) -> None:
    lock = tmp_path / "cpu.lock"
    with pytest.raises(RuntimeError, match="crashed"), exclusive(lock, 0):
        raise RuntimeError("crashed")
    with ExitStack() as held:
        held.enter_context(exclusive(lock, 0))
        held.enter_context(exclusive(tmp_path / "cuda.lock", 0))
        with pytest.raises(RefusedError, match=r"cpu\.lock"):
            held.enter_context(exclusive(lock, 0))
