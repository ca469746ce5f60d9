"""Disks that fill up at random points: files stay, a line gives the reason, and there is no traceback.

A small file system in memory replaces the disk, which requires root and `unshare` of Linux. Elsewhere no file may grow
beyond a bound. `python -m mens_pipeline_tests.soak.full_disks` is the child process for one point.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import HELDOUT, promoted_run, trained_run
from mens_pipeline_tests.evaluation.runs import evaluated_run, promoted, trained
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.kills import small_config, small_workspace
from mens_pipeline_tests.soak.processes import LENIENT, Command, can_mount, digests
from mens_pipeline_tests.training.runs import FAST, pairs

_SAID: Final = (
    *("No space left on device", "File too large", "is full", "no space left", "disk I/O error"),
    "are free, ",
)
_ROOM: Final = 2**28
_ROWS: Final = 64
_BLOCK: Final = 4096
_BALLAST: Final = "of-somebody-else"
_TINY: Final = frozenset({"promote --rollback", "store prune --apply"})
"""Commands that write so little that it may fit into an existing block."""


def full_disks(budget: Budget, folder: Path) -> list[Figure]:
    """Run commands that write on disks that are too small: corpus, training, verdicts, champions, the database."""
    place, before = folder / "disk", folder / "before"
    commands = _set_up(folder, place)
    place.rename(before)
    is_real = can_mount(folder / "trial")
    needed = dict[str, int]()
    dice, wrong = random.Random(2), list[str]()
    names = sorted(commands)
    dice.shuffle(names)
    while budget.goes_on():
        name = names[budget.done % len(names)]
        if name not in needed:
            roomy = _run_point(commands[name], place, before, None, is_real=is_real)
            needed[name] = roomy["grown"]
            wrong += [f"{name} with room: {roomy['said'][-300:]}"] if roomy["code"] else []
        left = dice.randrange(0 if is_real else _BLOCK, max(2 * _BLOCK, int(0.9 * needed[name])))
        found = _run_point(commands[name], place, before, left, is_real=is_real)
        details = f"{name} with {left:,} of {needed[name]:,} bytes"
        lost = [path for path, digest in digests(before).items() if found["files"].get(path) != digest]
        # A pointer may name an artifact that was complete before the disk was full.
        lost = sorted(path for path in lost if not path.endswith("/latest"))
        if found["code"] == 0:
            wrong += [] if name in _TINY else [f"{details}: done anyway"]
        elif "Traceback" in found["said"] or not any(words in found["said"] for words in _SAID):
            wrong.append(f"{details}: does not say so: {found['said'][-300:]}")
        elif found["code"] != 1 or lost:
            wrong.append(f"{details}: ends with {found['code']}, {', '.join(lost)[:200] or 'nothing'} changed")
    kind = "small file systems in memory" if is_real else "files that may not grow"
    value = f"{budget.done} points of {len(needed)} commands on {kind}, {budget.done - len(wrong)} as expected"
    return [Figure("disk full while a command writes", value, tuple(wrong))]


def _set_up(folder: Path, place: Path) -> dict[str, Command]:
    place.mkdir()
    for name in ("records.jsonl", "pairs.jsonl"):
        (place / name).write_text("")
    store = ArtifactStore(place / "store")
    promoted(trained(folder / "first", "first"), store)
    run, _ = promoted_run(trained_run(folder / "trained"), place)
    evaluated_run(place, "evaluated", "e" * 40_000)
    evaluated_run(place, "judged", "j" * 40_000)
    variables = {
        "MENS_STORE_ROOT": str(place / "store"),
        "DAGSTER_HOME": str(place / "home"),
        **LENIENT,
        "MENS_CACHE_ROOT": str(folder / "cache"),
        "MENS_NUM_WORKERS": "1",
        "MENS_SOURCE_ROOT": str(small_workspace(folder / "workspace")),
        "MENS_CONFIG_ROOT": str(small_config(folder / "config")),
    }
    code, said = Command(["gate", "--run-dir", str(place / "judged")], variables).run()
    if code:
        raise RuntimeError(said)
    options = ["--device", "cpu", *(f"--set={name}={value}" for name, value in FAST.items())]
    data = ["--data-dir", str(folder / "data"), "--model", str(folder / "trained" / "base")]
    (folder / "data").mkdir()
    write_jsonl(folder / "data" / "train.jsonl", pairs(_ROWS))
    lines = {
        "corpus extract": [str(PROJECT_ROOT / "data" / "golden"), "--output", str(place / "records.jsonl")],
        "generate-data": ["--limit", "400", "--output", str(place / "pairs.jsonl")],
        "train": ["--fast-corpus", *data, "--output-dir", str(place / "new"), *options],
        "gate": ["--run-dir", str(place / "evaluated")],
        "promote": ["--run-dir", str(place / "judged")],
        "promote --rollback": ["--reason", "tried"],
        "merge": ["--run-dir", str(run), "--heldout", str(folder / "trained" / HELDOUT), "--device", "cpu"],
        "store prune --apply": [],
        "run --no-train": [],
    }
    return {name: Command([*name.split(), *rest], variables) for name, rest in lines.items()}


def _run_point(command: Command, place: Path, before: Path, left: int | None, *, is_real: bool) -> dict[str, Any]:
    """Run a command on a disk with a number of bytes left; None for enough.

    Return its exit code, its output, the files afterwards, and the bytes by which all have grown.
    """
    found = place.with_name("found.json")
    inner = [sys.executable, "-m", __name__, str(place), str(before), str(found), str(left), str(int(is_real))]
    environment = {**own_environment(), "PYTHONPATH": str(PROJECT_ROOT), **command.environment}
    isolated = ["unshare", "-m"] if is_real else []
    subprocess.run([*isolated, *inner, *command.arguments], check=True, env=environment)
    completion: dict[str, Any] = json.loads(found.read_text())
    shutil.rmtree(place)
    return completion


def _measure(place: Path, *, is_real: bool) -> int:
    if is_real:
        return shutil.disk_usage(place).used
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _fill(place: Path, left: int) -> None:
    with (place / _BALLAST).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(place).free - left // _BLOCK * _BLOCK)


def main() -> None:
    """Set up a disk, run a command on it, and write the result elsewhere."""
    place, before, found = map(Path, sys.argv[1:4])
    left, is_real = sys.argv[4], sys.argv[5] == "1"
    place.mkdir()
    if is_real:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "none", str(place)], check=True)
    shutil.copytree(before, place, dirs_exist_ok=True)
    used = _measure(place, is_real=is_real)
    if left != "None" and is_real:
        _fill(place, int(left))
    elif left != "None":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(left), resource.RLIM_INFINITY))
    code, said = Command(sys.argv[6:], {}).run()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    (place / _BALLAST).unlink(missing_ok=True)
    grown = _measure(place, is_real=is_real) - used
    found.write_text(json.dumps({"code": code, "said": said, "files": digests(place), "grown": grown}))


if __name__ == "__main__":
    main()
