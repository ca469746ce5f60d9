"""Each system call of a command that changes a store fails once, or kills it, as in the tests of SQLite.

A small library intercepts the calls of a command, which requires Linux and a C compiler. The commands are
forks of one process that has imported all they need: `python -m mens_pipeline_tests.soak.calls FOLDER TRIES SECONDS`.
"""

import ctypes
import errno
import importlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.extract.forgotten import FORGOTTEN
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import read_json
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.promotion.history import adapter_sha256_of, find_champion, read_history
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.evaluation.runs import evaluated_run, promoted, trained
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.processes import LENIENT, Command

_OF_DISKS: Final = (errno.ENOSPC, errno.EIO, errno.EROFS)
_KINDS: Final = {
    **dict.fromkeys(("open", "write", "sendfile", "fsync", "truncate", "utime", "chmod"), _OF_DISKS),
    **dict.fromkeys(("mkdir", "rename", "hardlink", "delete"), _OF_DISKS),
    "lock": (errno.ENOLCK, errno.EIO),
}
"""Kinds of calls, which `calls.c` identifies by their first letters -> their errors; each may also kill."""
_WHAT: Final = "the n-th system call fails or kills"
_LONG_AGO: Final = 30 * 86_400

Outcome = Mapping[str, Any]


def calls(budget: Budget, folder: Path) -> list[Figure]:
    """Run commands that change a store; at points drawn without repetition one call fails or kills."""
    if shutil.which("cc") is None or sys.platform != "linux":
        return [Figure(_WHAT, "not tried: this requires Linux and a C compiler")]
    library = folder / "calls.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    place = folder / "place"
    _set_up(place)
    shutil.copytree(place, folder / "before")
    what = [str(folder), str(budget.tries), str(budget.seconds)]
    inner = [sys.executable, "-m", "mens_pipeline_tests.soak.calls", *what]
    loaded = {"PYTHONPATH": str(PROJECT_ROOT), "LD_PRELOAD": str(library)}
    environment = {**own_environment(), **_variables(place), **loaded}
    done = subprocess.run(inner, check=True, env=environment, cwd="/", stdout=subprocess.PIPE, text=True)
    return [Figure(**{**json.loads(done.stdout), "wrong": tuple(json.loads(done.stdout)["wrong"])})]


def _variables(place: Path) -> dict[str, str]:
    return {
        "MENS_STORE_ROOT": str(place / "store"),
        "MENS_CONFIG_ROOT": str(place / "config"),
        "MENS_SOURCE_ROOT": str(place / "workspace"),
        "DAGSTER_HOME": str(place / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **LENIENT,
    }


def _set_up(place: Path) -> None:
    """Create two champions, a run to evaluate, one to promote, artifacts for retention, and a file to forget."""
    store = ArtifactStore(place / "store")
    for name in ("first", "second"):
        promoted(trained(place / name, name), store)
    shutil.copytree(PROJECT_ROOT / "config", place / "config")
    (place / "workspace").mkdir()
    (place / "workspace" / "a.vox").write_text("fn a() to int {\n    return 1\n}\n")
    evaluated_run(place, "evaluated", "e")
    code, said = Command(["gate", "--run-dir", str(evaluated_run(place, "judged", "j"))], _variables(place)).run()
    assert not code, said
    merged, _ = store.build(Kind.MERGED_MODEL, {}, lambda folder: {"n": (folder / "model").write_text("m")})
    store.build(Kind.MERGED_MODEL, {"is": "the latest"}, lambda _folder: {})
    work = store.root / Kind.MERGED_MODEL / ".work-ended"
    work.mkdir()
    for path in (merged.path / "manifest.json", work):
        os.utime(path, (time.time() - _LONG_AGO,) * 2)


def _commands(place: Path) -> dict[str, list[str]]:
    lines = {
        "promote": f"promote --run-dir {place / 'judged'}",
        "rollback": "promote --rollback",
        "gate": f"gate --run-dir {place / 'evaluated'}",
        "prune": "store prune --apply",
        "forget": "store forget a.vox",
    }
    return {name: shlex.split(line) for name, line in lines.items()}


class _Machine:
    """Runs commands on the same store repeatedly, each in a fork of this process."""

    def __init__(self, folder: Path) -> None:
        self.place, self._before, self._report = folder / "place", folder / "before", folder / "report.json"
        self._library = ctypes.CDLL(str(folder / "calls.so"))
        self.commands = _commands(self.place)

    def restore(self) -> None:
        """Restore all files; the folder of the store stays, because the store is known by its inode."""
        for path in [*self.place.iterdir(), *(self.place / "store").iterdir()]:
            if path.name != "store":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self._before, self.place, dirs_exist_ok=True)

    def run(self, name: str, kind: str = "none", number: int = 0, error: int = 0) -> tuple[int, str]:
        """Return the exit code of a command, -9 for killed, and its output."""
        output, into = os.pipe()
        child = os.fork()
        if not child:
            os.close(output)
            os.dup2(into, 2)
            sys.stdout = sys.stderr = os.fdopen(into, "w", encoding="utf-8")
            self._enter(self.commands[name], kind, number, error)
        os.close(into)
        with os.fdopen(output, encoding="utf-8", errors="replace") as pipe:
            said = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said

    def _enter(self, words: list[str], kind: str, number: int, error: int) -> None:
        from mens_pipeline.cli.main import main  # noqa: PLC0415 - with the library loaded

        code = 3
        try:
            sys.argv = ["mens", *words]
            self._library.arm(ctypes.c_char(kind[0].encode()), number, error)
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:  # noqa: BLE001 - as the interpreter would end
            traceback.print_exc()
        finally:
            made = (ctypes.c_int * 128).in_dll(self._library, "made")
            counts = {kind: made[ord(kind[0])] for kind in _KINDS}
            sys.stdout.flush()
            self._report.write_text(json.dumps({"made": counts, "modules": sorted(sys.modules)}))
            os._exit(code)

    def count(self, name: str) -> Iterator[tuple[str, str, int]]:
        """Yield command, kind and number of each call that a command makes, and import its modules."""
        self.restore()
        code, said = self.run(name)
        assert not code, said
        report = json.loads(self._report.read_text())
        for module in report["modules"]:
            with suppress(ImportError):
                importlib.import_module(module)
        for kind, made in report["made"].items():
            yield from ((name, kind, number) for number in range(1, made + 1))

    def outcome(self) -> Outcome:
        """Return the state that commands read. `RefusedError` if an artifact of the store is damaged."""
        store = ArtifactStore(self.place / "store")
        champion = find_champion(store)
        found = [store.get(path.parent.name, path.name) for path in store.root.glob("*/*") if path.name[:1] != "."]
        artifacts = [artifact for artifact in found if artifact is not None]
        if changed := [*filter(Artifact.find_changed, artifacts)]:
            raise RefusedError(f"{changed[0].path}: changed")
        listed, verdict = self.place / "config" / FORGOTTEN, self.place / "evaluated" / "gate_receipt.json"
        return {
            "champion": adapter_sha256_of(champion) if champion is not None else None,
            "events": [event.action for event in read_history(store)][-1],
            "artifacts": sorted((artifact.kind, artifact.key) for artifact in artifacts),
            "forgotten": listed.read_text(encoding="utf-8") if listed.exists() else "",
            "verdict": read_json(verdict)[1],
            "work": sorted(path.name for path in store.root.glob("*/.work-*")),
        }


def _find_wrong(machine: _Machine, before: Outcome, after: Outcome, point: tuple[str, str, int], error: int) -> str:
    """Fail or kill a command at one call, and describe the fault in its state or message; empty without one."""
    machine.restore()
    code, said = machine.run(*point, error)
    lines = [line for line in said.splitlines() if line.startswith("mens: ")]
    if not error and code != -signal.SIGKILL:
        return f"was not killed: {code} {said}"
    if "Traceback" in said or (error and code not in {0, 1, 2}):
        return f"a traceback: {said}"
    if code > 0 and (len(lines) != 1 or os.strerror(error) not in lines[0] or str(machine.place) not in lines[0]):
        return f"no line with place and cause: {said}"
    now = machine.outcome()
    if wrong := [name for name in now if name != "artifacts" and now[name] not in (before[name], after[name])]:
        return f"neither old nor new: {', '.join(wrong)}"
    if not {*map(tuple, now["artifacts"])} >= {*map(tuple, before["artifacts"])} & {*map(tuple, after["artifacts"])}:
        return "an artifact is gone"
    # Retention skips a folder that it cannot lock.
    if code == 0 and now != after and point[0] != "prune":
        return f"done, and yet another outcome: {said}"
    if now != after and (point[0] != "rollback" or now["champion"] == before["champion"]):
        code, said = machine.run(point[0])
        if code or machine.outcome() != after:
            return f"the second try ends with {code}: {said}"
    return ""


def main() -> None:
    """Try points until time or tries are up, and print a figure."""
    folder, tries, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    machine = _Machine(folder)
    machine.restore()
    before, after = machine.outcome(), dict[str, Outcome]()
    points = list[tuple[str, str, int]]()
    for name in machine.commands:
        points += machine.count(name)
        after[name] = machine.outcome()
    tried = [(point, error) for point in points for error in (0, *_KINDS[point[1]])]
    random.Random(1).shuffle(tried)
    budget, wrong = Budget(seconds, min(tries, len(tried))), list[str]()
    while budget.goes_on():
        (name, kind, number), error = tried[budget.done - 1]
        how = f"{name}, {kind} {number} {'killed' if not error else errno.errorcode[error]}"
        try:
            found = _find_wrong(machine, before, after[name], (name, kind, number), error)
        except (RefusedError, OSError, ValueError) as broken:
            found = repr(broken)
        wrong += [f"{how}: {found[-600:]}"] if found else []
    value = f"{budget.done} of {len(tried)} points in {len(machine.commands)} commands, {len(wrong)} wrong"
    figure = Figure(_WHAT, value, tuple(wrong))
    sys.stdout.write(json.dumps(asdict(figure)))


if __name__ == "__main__":
    main()
