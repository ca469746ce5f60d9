"""Disks without room at random points: what was there stays, a line says so, and there is no traceback.

A small file system in memory stands for the disk, which takes root and `unshare` of Linux. Elsewhere no file may grow
beyond a bound. `python -m mens_pipeline_tests.soak.full_disks` is the inner side of one point.
"""

import json
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.processes import Command, digests

_SAID: Final = ("No space left on device", "File too large", "is full")
_LEAST: Final = 4096


def full_disks(budget: Budget, folder: Path) -> list[Figure]:
    """Extract a corpus, and write synthetic pairs, onto disks that are too small.

    Args:
        budget: How many points, how long.
        folder: Where, empty.
    """
    place, before = folder / "disk", folder / "before"
    before.mkdir()
    for name in ("records.jsonl", "pairs.jsonl"):
        (before / name).write_text("")
    golden = PROJECT_ROOT / "data" / "golden"
    commands = {
        "corpus extract": ["corpus", "extract", str(golden), "--output", str(place / "records.jsonl")],
        "generate-data": ["generate-data", "--limit", "400", "--output", str(place / "pairs.jsonl")],
    }
    is_real = _can_mount(folder / "trial")
    roomy = 2**30
    sizes = {name: _point(arguments, place, before, roomy, is_real=is_real) for name, arguments in commands.items()}
    dice, wrong = random.Random(2), list[str]()
    while budget.goes_on():
        name = dice.choice(sorted(commands))
        needed = sizes[name]["largest"]
        size = dice.randrange(_LEAST, max(2 * _LEAST, int(0.9 * needed)))
        found = _point(commands[name], place, before, size, is_real=is_real)
        details = f"{name} with {size:,} of {needed:,} bytes"
        if found["code"] == 0:
            wrong.append(f"{details}: done all the same")
        elif "Traceback" in found["said"] or not any(words in found["said"] for words in _SAID):
            wrong.append(f"{details}: does not say so: {found['said'][-200:]}")
        elif found["files"] != digests(before):
            wrong.append(f"{details}: {found['files']} stand there")
    kind = "small file systems in memory" if is_real else "files that may not grow"
    value = f"{budget.done} points on {kind}, {budget.done - len(wrong)} refused in a line with all that was there kept"
    return [Figure("disk full while a corpus is written", value, tuple(wrong))]


def _can_mount(place: Path) -> bool:
    place.mkdir()
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(place)]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


def _point(arguments: Sequence[str], place: Path, before: Path, size: int, *, is_real: bool) -> dict[str, Any]:
    """Run a command on a disk of a size.

    Returns:
        Its exit code, what it said, the files that stand there then, and the size of the largest one.
    """
    found = place.with_name("found.json")
    inner = [sys.executable, "-m", __name__, str(place), str(before), str(found), str(size), str(int(is_real))]
    environment = {**own_environment(), "PYTHONPATH": str(PROJECT_ROOT)}
    subprocess.run([*(["unshare", "-m"] if is_real else []), *inner, *arguments], check=True, env=environment)
    completion: dict[str, Any] = json.loads(found.read_text())
    shutil.rmtree(place)
    return completion


def main() -> None:
    """Lay out a disk, run a command on it, and note what came of it elsewhere."""
    place, before, found = map(Path, sys.argv[1:4])
    size, is_real = int(sys.argv[4]), sys.argv[5] == "1"
    place.mkdir()
    if is_real:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)
    shutil.copytree(before, place, dirs_exist_ok=True)
    if not is_real:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    code, said = Command(sys.argv[6:], {}).ended()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    largest = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    found.write_text(json.dumps({"code": code, "said": said, "files": digests(place), "largest": largest}))


if __name__ == "__main__":
    main()
