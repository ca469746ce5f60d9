"""Commands that are killed, and the processes and files that they leave."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import digest_of

LENIENT: Final = {
    "VOX_BENCHMARK": "0",
    "VOX_EVAL_POLICY": "bootstrap",
    "VOX_EVAL_MIN_PARSE_RATE": "0.7",
    "VOX_EVAL_MIN_COVERAGE": "0.05",
}
"""Settings by which an adapter with invented completions passes."""
_LAST_SECONDS: Final = 20.0
_LIMIT_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `mens` that can be run repeatedly, with variables besides those of this process."""

    arguments: Sequence[str]
    environment: Mapping[str, str]

    def start(self) -> "subprocess.Popen[str]":
        """Start it in a new session."""
        environment = {**own_environment(), "PYTHONPATH": str(PROJECT_ROOT), "OMP_NUM_THREADS": "1", **self.environment}
        command = [sys.executable, "-m", "mens_pipeline.cli", *self.arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=environment, cwd="/", stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def run(self) -> tuple[int, str]:
        """Run it to its end; return the exit code and its output."""
        process = self.start()
        said, _ = process.communicate(timeout=_LIMIT_SECONDS)
        return process.returncode, said

    def kill_after(self, seconds: float, *, with_children: bool) -> bool:
        """Start it and kill it after some seconds; return whether it was still running then.

        `with_children` also kills its children; otherwise the kernel must end them, or they end themselves.
        """
        process = self.start()
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL) if with_children else process.kill()
            process.communicate(timeout=_LAST_SECONDS + _LIMIT_SECONDS)
            return True
        return False


def processes_about(folder: Path) -> list[str]:
    """Return the commands of processes that name a folder, after they had time to end."""
    deadline = time.monotonic() + _LAST_SECONDS
    while (found := _find_processes(str(folder).encode())) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _find_processes(words: bytes) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if words in text:
            found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
    return found


def can_mount(place: Path) -> bool:
    """Return whether a command can mount a file system in its own namespace."""
    place.mkdir()
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(place)]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


def digests(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in folder.rglob("*") if path.is_file()}
