"""A month without supervision: thirty nights on a machine with all kinds of faults, as a table and a chart.

`make month` writes docs/reliability.md and its chart. Store and home of Dagster are on a small file system in memory
if `unshare` of Linux and root can mount one. Between two nights their files grow a day older, so that retention sees
a month; the clock jumps if there is a C compiler, for `clock.c`. What this process imports is small: the memory
of a child is never less than that of the process which starts it.
"""

import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.settings import PROJECT_ROOT, load_settings
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.soak import month_nights
from mens_pipeline_tests.soak.month_nights import NIGHTS, Machine, Night
from mens_pipeline_tests.soak.processes import can_mount, processes_about
from mens_pipeline_tests.training.runs import FAST
from mens_pipeline_tests.training.tiny_base import write_tiny_base

HEADING: Final = "## A month"
_PAGE: Final = PROJECT_ROOT / "docs" / "reliability.md"
_CHART: Final = PROJECT_ROOT / "docs" / "images" / "month.svg"
_DAY: Final = 86_400
_LIMIT_SECONDS: Final = 1800.0
_NO_GROWTH: Final = 200_000
_RED: Final = re.compile("^FAILED +promoted_adapter/not_refused$", re.MULTILINE)
_REASON: Final = re.compile(r"^(?:mens: |Error: )(.*)$|^[\d:]+  (.*) \(run \S+ of \w+ failed\)$", re.MULTILINE)
_STALE: Final = "the adapter in use was last promoted or confirmed on .* Europe/Berlin"
_GROWING: Final = ("promoted_adapter/history.jsonl", "eval_results/ledger.jsonl")
"""Files of the store that only grow, whatever happens."""
_MENS: Final = ("-m", "mens_pipeline.cli")
_RUN: Final = (*_MENS, "run", "--preset", "tiny")
_INTERRUPTED: Final = 130
_REFUSED: Final = frozenset(("refused", "undecided"))
_STALE_DAYS: Final = 2
"""Days without a promotion after which `nightly.alert` of config/pipeline.yaml is due."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a night: a line of the command, seconds of the clock and of CPU time, and faults.

    `megabytes` are of the store, of the home of Dagster (databases and logs), and of the memory of its largest process.
    """

    night: Night
    outcome: str
    line: str
    seconds: tuple[float, float]
    megabytes: tuple[float, float, float]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        line = re.sub(r"\S*/mens-month-[^/]*/", "", " ".join(self.line.replace("|", "/").split()))
        figures = " | ".join(f"{value:.0f}" for value in (*self.seconds, *self.megabytes))
        return f"{self.night.what} | {self.outcome} | {line} | {figures}"


def pass_nights(folder: Path, nights: Sequence[Night], *, is_mounted: bool, week: int = 7) -> list[Row]:
    """Let a machine pass nights, and maintain it as its weekly schedule does.

    If `is_mounted`, its folder `disk` is a separate file system of `DISK_BYTES`; `week` nights pass between two
    maintenances.
    """
    machine, rows = Machine(folder, is_mounted), list[Row]()
    month_nights.set_up_config(machine)
    month_nights.set_up_workspace(machine)
    month_nights.set_up_benchmark(machine)
    month_nights.set_up_older_build(machine)
    base = f"write_tiny_base(__import__('pathlib').Path({str(folder / 'base')!r}), positions=1024)"
    command = [sys.executable, "-c", f"from {write_tiny_base.__module__} import write_tiny_base; {base}"]
    subprocess.run(command, check=True, env={**own_environment(), "PYTHONPATH": str(PROJECT_ROOT)}, cwd="/")
    if compiler := shutil.which("cc"):
        source = Path(__file__).with_name("clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "clock.so"), str(source)], check=True)
    for number, night in enumerate(nights, start=1):
        rows.append(_pass(machine, night, is_maintained=number % week == 0))
        print(f"{number} | {rows[-1]}", *(f"\n  UNEXPECTED: {line}" for line in rows[-1].wrong), flush=True)
        month_nights.make_room(machine)
        _age_files(machine.disk)
    return rows


def _pass(machine: Machine, night: Night, *, is_maintained: bool) -> Row:
    store, wrong = ArtifactStore(machine.disk / "store"), list[str]()
    if night.command is not None:
        code, said, _ = _run(machine, night, (*_MENS, *night.command(machine)))
        wrong += [f"the command before it ends with {code}: {said[-300:]}"] if code else []
    night.change(machine)
    before, grown, begun = champion_key(store), _read_growing(store), time.monotonic()
    code, said, usage = _run(machine, night, _RUN)
    seconds = time.monotonic() - begun
    is_other = champion_key(store) != before
    outcome, line = _read(said, code, is_other=is_other)
    wrong += [] if outcome == night.outcome else [f"{outcome} with {code}, expected {night.outcome}"]
    wrong += [] if night.says in said else [f"nothing says: {night.says}"]
    if bool(_RED.search(said)) is not (outcome in _REFUSED):
        wrong.append("the check not_refused is not red" if outcome in _REFUSED else "the check not_refused is red")
    wrong += month_nights.find_secret(machine, said)
    if outcome in {*_REFUSED, "promoted", "unchanged"}:
        wrong += night.check(machine)
    wrong += ["a traceback"] if "Traceback" in said else []
    wrong += [] if line else ["no line says why"]
    wrong += [f"still running: {name}" for name in processes_about(machine.folder)]
    wrong += ["another champion"] if is_other and outcome != "promoted" else []
    wrong += [
        f"{name}: lines are lost" for name, text in _read_growing(store).items() if not text.startswith(grown[name])
    ]
    if machine.is_mounted and night.is_warned is not (" are free. Make room: " in said) and outcome != "failed":
        wrong.append("no warning of a disk that is nearly full" if night.is_warned else "a warning of a disk with room")
    wrong += _read_alerts(machine, night.alert) if night.alert else []
    if is_maintained:
        code, more, _ = _run(machine, night, (*_INNER, _maintain.__name__))
        wrong += [f"the maintenance ends with {code}: {more[-300:]}"] if code else []
    if wrong:
        print(said[-4000:])
    memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    sizes = (_size(store.root), _size(machine.disk / "home"), memory)
    times = (seconds, usage.ru_utime + usage.ru_stime)
    return Row(night, outcome, line, times, tuple(size / 1e6 for size in sizes), tuple(wrong))  # type: ignore[arg-type]


def _read_alerts(machine: Machine, expected: str) -> list[str]:
    """Run the sensors: at once for the run, and days later for the adapter in use."""
    code, said, _ = _run(machine, Night("", ""), (*_INNER, _alert.__name__), days_ahead=_STALE_DAYS)
    patterns = [expected, *([_STALE] if (machine.folder / "clock.so").exists() else [])]
    missing = [pattern for pattern in patterns if not re.search(pattern, said)]
    return [f"no alert says: {' and '.join(missing)}; it ends with {code}: {said[-600:]}"] if missing or code else []


def _run(
    machine: Machine, night: Night, arguments: Sequence[str], days_ahead: int = 0
) -> tuple[int, str, resource.struct_rusage]:
    log, clock = machine.folder / "log", machine.folder / "clock"
    clock.write_bytes(_seconds(days_ahead))
    is_bounded = night.is_full and not machine.is_mounted
    distrust = month_nights.DISTRUST if night.is_distrusted else {}
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**_variables(machine, clock if night.jump or days_ahead else None), **distrust},
            cwd="/",
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=_bound_files if is_bounded else None,  # noqa: PLW1509 - no thread runs here
        )
    if night.ended is not None and _wait_for(process, log, f"start: {night.ended[1]}"):
        time.sleep(2)
        process.send_signal(night.ended[0])
    if night.jump and _wait_for(process, log, "start: heldout_split"):
        with clock.open("r+b") as file:
            file.write(_seconds(night.jump))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, log.read_text(encoding="utf-8", errors="replace"), usage


def _seconds(days: int) -> bytes:
    return (_DAY * days).to_bytes(8, sys.byteorder, signed=True)


def _bound_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_NO_GROWTH, _NO_GROWTH))


def _wait_for(process: "subprocess.Popen[bytes]", log: Path, words: str) -> bool:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while words not in log.read_text(encoding="utf-8", errors="replace"):
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) or time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _variables(machine: Machine, clock: Path | None) -> dict[str, str]:
    recipe = {**FAST, "model_name_or_path": machine.folder / "base", "max_steps": 2, "max_length": 512}
    telemetry = {"MENS_TELEMETRY_URL": f"sqlite:///{machine.telemetry}"} if machine.telemetry.exists() else {}
    library = machine.folder / "clock.so"
    jumping = {"LD_PRELOAD": str(library), "MONTH_CLOCK": str(clock)} if clock is not None and library.exists() else {}
    return {
        **own_environment(),
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        **telemetry,
        **jumping,
        "PYTHONPATH": str(machine.older if machine.older.exists() else PROJECT_ROOT),
        "MENS_ENV": "prod",
        "DAGSTER_HOME": str(machine.disk / "home"),
        "MENS_STORE_ROOT": str(machine.disk / "store"),
        "MENS_CACHE_ROOT": str(machine.folder / "cache"),
        "MENS_CONFIG_ROOT": str(machine.config),
        "MENS_SOURCE_ROOT": str(machine.workspace),
        "MENS_NUM_WORKERS": "1",
        "OMP_NUM_THREADS": "1",
        "VOX_BACKEND": "cpu",
        "VOX_BENCHMARK": "0",
        "VOX_BENCHMARK_DIR": str(machine.benchmark),
    }


def _read(said: str, code: int, *, is_other: bool) -> tuple[str, str]:
    if code == 0:
        reused = re.search(r"^reused +(.*)$", said, re.MULTILINE)
        return ("promoted" if is_other else "unchanged"), f"{reused[1]} reused" if reused else "all made"
    if code == -signal.SIGKILL:
        return "killed", "killed"
    if code == _INTERRUPTED and (line := re.search("^interrupted; .*$", said, re.MULTILINE)):
        return "interrupted", line[0]
    if verdict := re.search(r"^verdict +(refused|undecided).*\n +(?:- )?(.*)$", said, re.MULTILINE):
        return verdict[1], verdict[2]
    if kept := re.search(r" promoted_adapter: (.*: not promoted; .*)$", said, re.MULTILINE):
        return "refused", kept[1]
    reasons = [*_REASON.finditer(said)]
    return "failed", reasons[-1][1] or reasons[-1][2] if reasons else ""


def _read_growing(store: ArtifactStore) -> dict[str, str]:
    paths = {name: store.root / name for name in _GROWING}
    return {name: path.read_text(encoding="utf-8") if path.exists() else "" for name, path in paths.items()}


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _age_files(disk: Path) -> None:
    for path in (disk / "store").rglob("*"):
        if path.is_file():
            status = path.stat()
            os.utime(path, (status.st_atime - _DAY, status.st_mtime - _DAY))
    with closing(sqlite3.connect(disk / "home" / "history" / "runs.db")) as database, database:
        database.execute("UPDATE runs SET create_timestamp = datetime(create_timestamp, '-1 day')")


def _maintain() -> None:
    import dagster as dg  # noqa: PLC0415 - not in the process that starts the nights

    from mens_pipeline.definitions import defs  # noqa: PLC0415 - of the machine that this process is
    from mens_pipeline.orchestration.instance import open_instance  # noqa: PLC0415 - likewise

    definitions = defs()
    schedule = definitions.resolve_schedule_def("weekly_maintenance")
    if schedule.default_status is not dg.DefaultScheduleStatus.RUNNING:
        sys.exit("weekly_maintenance is off")
    with open_instance(load_settings().dagster_home, is_headless=True) as instance:
        (request,) = schedule.evaluate_tick(dg.build_schedule_context(instance)).run_requests or ()
        job = definitions.resolve_job_def("maintenance")
        job.execute_in_process(instance=instance, run_config=request.run_config)


def _alert() -> None:
    """Let the sensors of the newest run and of the adapter in use report."""
    import dagster as dg  # noqa: PLC0415 - not in the process that starts the nights

    from mens_pipeline.definitions import defs  # noqa: PLC0415 - of the machine that this process is
    from mens_pipeline.orchestration.instance import open_instance  # noqa: PLC0415 - likewise

    sensors = defs().get_repository_def()
    with open_instance(load_settings().dagster_home, is_headless=True) as instance:
        (run,) = instance.get_runs(limit=1)
        (ended,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_SUCCESS)
        refused = "run_without_promotion"
        sensors.get_sensor_def(refused)(
            dg.build_run_status_sensor_context(refused, ended.get_dagster_event(), instance, run)
        )
        sensors.get_sensor_def("adapter_stale")(dg.build_sensor_context(instance=instance))


_INNER: Final = ("-m", "mens_pipeline_tests.soak.month")
_PARTS: Final = {part.__name__: part for part in (_maintain, _alert)}
"""Tasks for another process on the machine, with its environment."""

_COLUMNS: Final = "night | what was done before it | outcome | why | s | CPU s | store MB | Dagster MB | memory MB"
_COLOURS: Final = {
    "promoted": "#2e8b57",
    "unchanged": "#9db4c0",
    "refused": "#d9a400",
    "undecided": "#d9a400",
    "failed": "#b3261e",
    "interrupted": "#7a5195",
    "killed": "#222222",
}
_LEFT: Final = 60
_STEP: Final = 20
_PANEL: Final = 80


def show(rows: Sequence[Row]) -> str:
    """Format nights as a Markdown table, after the faults of each or a line that there are none."""
    numbered = list(enumerate(rows, start=1))
    wrong = [f"- Night {number}: {line}." for number, row in numbered for line in row.wrong]
    verdict = f"All {len(rows)} nights ended as expected." if not wrong else "Unexpected:\n\n" + "\n".join(wrong)
    lines = [f"| {_COLUMNS} |", "|---" * len(_COLUMNS.split("|")) + "|", *(f"| {n} | {row} |" for n, row in numbered)]
    return f"{verdict}\n\n" + "\n".join(lines)


def draw(rows: Sequence[Row]) -> str:
    parts = []
    for place, name in enumerate(dict.fromkeys(row.outcome for row in rows)):
        x = _LEFT + 95 * place
        parts.append(f'<rect x="{x}" y="6" width="11" height="11" fill="{_COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 16}" y="16">{name}</text>')
    for number, row in enumerate(rows, start=1):
        x = _LEFT + _STEP * (number - 1)
        parts.append(f'<rect x="{x}" y="26" width="16" height="16" fill="{_COLOURS[row.outcome]}">')
        parts.append(f'<title>{escape(row.night.what)}</title></rect><text x="{x + 2}" y="56">{number}</text>')
    for place, title in enumerate(
        ("store, MB", "databases and logs of Dagster, MB", "memory of the largest process, MB")
    ):
        values, bottom = [row.megabytes[place] for row in rows], 160 + place * (_PANEL + 30)
        up = (_PANEL - 12) / max(values)
        points = " ".join(f"{_LEFT + _STEP * n + 8},{bottom - value * up:.1f}" for n, value in enumerate(values))
        parts.append(f'<text x="{_LEFT}" y="{bottom - _PANEL}" font-weight="bold">{title}</text>')
        parts.append(
            f'<text x="10" y="{bottom - _PANEL + 16}">{max(values):.0f}</text><text x="10" y="{bottom}">0</text>'
        )
        parts.append(f'<path d="M{_LEFT} {bottom}h{_STEP * len(rows)}" stroke="#bbb"/>')
        parts.append(f'<polyline points="{points}" fill="none" stroke="#4f5bd5" stroke-width="2"/>')
    size = f"0 0 {_LEFT + _STEP * len(rows) + 20} 395"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def write(page: Path, picture: Path, rows: Sequence[Row], about: str) -> None:
    """Replace the month of a page and its chart; the text around it stays."""
    head, heading, rest = page.read_text(encoding="utf-8").partition(f"{HEADING}\n")
    _, next_heading, after = rest.partition("\n## ")
    if not heading or not next_heading:
        sys.exit(f"{page}: no heading `{HEADING}`, or none after it. Restore the page.")
    picture.write_text(draw(rows), encoding="utf-8")
    shown = f"![How nights ended, and what the machine came to hold](images/{picture.name})"
    page.write_text(f"{head}{heading}\n{shown}\n\n{about} {show(rows)}\n{next_heading}{after}", encoding="utf-8")


def main() -> int:
    """Pass a month in a folder, by default a new one; return 1 if a night ended unexpectedly."""
    if sys.argv[1:2] and sys.argv[1] in _PARTS:
        _PARTS[sys.argv[1]]()
        return 0
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory(prefix="mens-month-") as name:
            command, disk = [sys.executable, "-m", "mens_pipeline_tests.soak.month", name], Path(name) / "disk"
            disk.mkdir()
            mount = f'mount -t tmpfs -o size={month_nights.DISK_BYTES} none {disk} && exec "$@"'
            isolated = ["unshare", "-m", "sh", "-c", mount, "sh"] if can_mount(Path(name) / "trial") else []
            return subprocess.run([*isolated, *command], check=False).returncode
    folder, begun = Path(sys.argv[1]), time.monotonic()
    rows = pass_nights(folder, NIGHTS, is_mounted=os.path.ismount(folder / "disk"))
    when, minutes = time.strftime("%Y-%m-%d", time.gmtime()), (time.monotonic() - begun) / 60
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_minutes = sum(usage.ru_utime + usage.ru_stime for usage in used) / 60
    machine = f"{os.cpu_count()} CPUs, {machine_name()}"
    write(
        _PAGE, _CHART, rows, f"`make month`, {when}, {minutes:.0f} minutes, {cpu_minutes:.0f} of a CPU, on {machine}."
    )
    print(show(rows))
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
