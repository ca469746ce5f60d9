"""What happens to a machine in a month: to its workspace, telemetry, configuration, disk, clock and code."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from mens_pipeline.promotion.policy import GateName
from mens_pipeline.settings import PROJECT_ROOT

DISK_BYTES: Final = 2**28
"""Of the small disk that holds the store and the home of Dagster, where one can be mounted."""

_EVERY: Final = 12
_HUGE: Final = 3_000_000
_NEARLY_FULL: Final = int(0.05 * DISK_BYTES)
_FULL: Final = 300_000
_GOLDEN: Final = "workspace/golden"
_BROKEN: Final = "fn broken(( {\n"
_TABLE: Final = "AgentTelemetry"
_BLOCK: Final = ("suite_size", "regression", "decline", "supervised_ratio", "truncation")
"""Gates that a model of random weights can pass; all others warn, so that what was trained is promoted."""

_CHANGED: Final[dict[str, dict[str, Any]]] = {
    "pipeline.yaml/synthesize": {"limit": 40},
    "pipeline.yaml/split": {"min_heldout_tasks": 4, "min_heldout_files": 3, "num_family_tasks": 1},
    "gates.yaml/policies/ci": {
        "warn_only": [str(gate) for gate in GateName if gate not in _BLOCK],
        "first_heldout_tasks": 3,
        "min_heldout_tasks": 2,
        "min_heldout_files": 2,
        "max_rounds": 1,
    },
    "evaluation.yaml": {
        "syntax": "free",
        "max_new_tokens": 200,
        "base_tasks": 1,
        **dict.fromkeys(("few_shot_tasks", "family_tasks", "infill_holes"), 0),
    },
    # Days as shipped by six: a month comes to what half a year does.
    "retention.yaml": {"runs": 15, "newest": 5},
    "retention.yaml/days": {
        **dict.fromkeys(("eval_results", "benchmark_gate", "generations"), 5),
        **dict.fromkeys(("merged_model", "gguf_model", "serving_handoff"), 2),
        "qlora_adapter": 15,
    },
}
"""Fields of the configuration that differ from what is shipped, so that a night takes half a minute."""


@dataclass
class Machine:
    """A machine that trains every night; if `is_mounted`, its `disk` is a file system of its own."""

    folder: Path
    is_mounted: bool
    dice: random.Random = field(default_factory=lambda: random.Random(30))

    def __post_init__(self) -> None:
        names = ("workspace", "config", "disk", "telemetry.db", "older")
        self.workspace, self.config, self.disk, self.telemetry, self.older = (self.folder / name for name in names)

    @property
    def golden(self) -> Path:
        """Folder of programs."""
        return self.folder / _GOLDEN


def lay_workspace(machine: Machine) -> None:
    """Copy a part of the seed data; of that, what was changed is as it was."""
    data = PROJECT_ROOT / "data"
    for pattern in ("golden/**/*.vox", "docs/**/*.md"):
        for path in sorted(data.glob(pattern))[::_EVERY]:
            target = machine.workspace / path.relative_to(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def lay_config(machine: Machine) -> None:
    """Let little be made, and demand what random weights can meet."""
    shutil.copytree(PROJECT_ROOT / "config", machine.config, dirs_exist_ok=True)
    for where, fields in _CHANGED.items():
        name, *keys = where.split("/")
        document = yaml.safe_load((machine.config / name).read_text(encoding="utf-8"))
        part = document
        for key in keys:
            part = part[key]
        part |= fields
        (machine.config / name).write_text(yaml.safe_dump(document), encoding="utf-8")


def lay_older_build(machine: Machine) -> None:
    """Copy the code, with another digest of what synthetic programs are made from."""
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("mens_pipeline", "mens_pipeline_tests"):
        shutil.copytree(PROJECT_ROOT / name, machine.older / name, ignore=leave)
    for name in ("dagster.yaml", "data", "config"):
        (machine.older / name).symlink_to(PROJECT_ROOT / name)
    for path in (machine.older / "mens_pipeline" / "corpus" / "synthesis" / "families").glob("*.yaml"):
        path.write_text(path.read_text(encoding="utf-8") + "# of an older build\n", encoding="utf-8")


def _upgrade(machine: Machine) -> None:
    shutil.rmtree(machine.older)


def _add(machine: Machine) -> None:
    for _ in range(3):
        name, factor = f"added{machine.dice.randrange(10**6)}", machine.dice.randrange(99)
        (machine.golden / f"{name}.vox").write_text(f"fn {name}(n: int) to int {{\n    return n * {factor}\n}}\n")


def _some(machine: Machine, share: float) -> list[Path]:
    programs = sorted(path for path in machine.golden.glob("**/*.vox") if path.lstat().st_size < _HUGE // 2)
    return machine.dice.sample(programs, round(share * len(programs)))


def _lose(machine: Machine, share: float) -> None:
    for path in _some(machine, share):
        path.unlink()


def _break(machine: Machine, share: float) -> None:
    for path in _some(machine, share):
        path.write_text(_BROKEN + path.read_text(encoding="utf-8"), encoding="utf-8")


def _mend_programs(machine: Machine) -> None:
    for path in _some(machine, 1.0):
        path.write_text(path.read_text(encoding="utf-8").removeprefix(_BROKEN), encoding="utf-8")


def _add_huge(machine: Machine) -> None:
    line = "// a comment that says nothing\n"
    (machine.golden / "huge.vox").write_text(line * (_HUGE // len(line)))
    (machine.workspace / "docs" / "huge.md").write_text(line * (_HUGE // len(line)))
    with (machine.golden / "sparse.vox").open("wb") as file:
        file.truncate(2**30)


def _query(machine: Machine, *statements: str) -> None:
    with closing(sqlite3.connect(machine.telemetry)) as database, database:
        for statement in statements:
            database.execute(statement)


def _begin_telemetry(machine: Machine) -> None:
    programs = [f"fn add{number}(n: int) to int {{\n    return n + {number}\n}}\n" for number in range(12)]
    rows = ", ".join(f"('Add {number}.', '{program}')" for number, program in enumerate(programs))
    _query(
        machine,
        f"CREATE TABLE {_TABLE} (id INTEGER PRIMARY KEY, query TEXT, optimal_response TEXT)",
        f"INSERT INTO {_TABLE} (query, optimal_response) VALUES {rows}",  # noqa: S608 - our own rows
    )


def _rename(machine: Machine, before: str, after: str) -> None:
    _query(machine, f"ALTER TABLE {_TABLE} RENAME COLUMN {before} TO {after}")


def _fill(machine: Machine, left: int) -> None:
    _add(machine)
    if machine.is_mounted:
        with (machine.disk / "of-somebody-else").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(machine.disk).free - left)


def make_room(machine: Machine) -> None:
    """Remove what somebody else has written."""
    (machine.disk / "of-somebody-else").unlink(missing_ok=True)


def _break_config(machine: Machine) -> None:
    (machine.config / "pipeline.yaml").write_text("synthesize: [\n")


def _mend(machine: Machine) -> None:
    lay_config(machine)
    lay_workspace(machine)


def _move(machine: Machine, before: str, after: str) -> None:
    (machine.folder / before).rename(machine.folder / after)


def _block_by_all(machine: Machine) -> None:
    _add(machine)
    shutil.copy(PROJECT_ROOT / "config" / "gates.yaml", machine.config)


def _add_strange(machine: Machine) -> None:
    (machine.golden / "circle").symlink_to(machine.golden)
    (machine.golden / "nowhere.vox").symlink_to("/nowhere.vox")
    (machine.golden / "empty.vox").touch()
    os.mkfifo(machine.golden / "pipe.vox")
    _add(machine)
    some = next(machine.golden.glob("added*.vox"))
    some.rename(os.fsdecode(os.fsencode(machine.golden) + b"/\xff\xfe.vox"))


def _change_nothing(_machine: Machine) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Night:
    """A night: `change` does to the machine what `what` says before it; then the clock may `jump` by days.

    The outcome is promoted, unchanged, refused, failed or killed. The run may be killed while it trains, may have to
    warn of a disk that is nearly full, or meet a full one.
    """

    what: str
    outcome: str
    change: Callable[[Machine], None] = _change_nothing
    jump: int = 0
    is_killed: bool = False
    is_warned: bool = False
    is_full: bool = False


NIGHTS: Final = (
    Night("a new store, and a new home of Dagster", "promoted"),
    Night("nothing", "unchanged"),
    Night("3 new programs", "promoted", _add),
    Night("a quarter of the programs vanish", "promoted", partial(_lose, share=0.25)),
    Night("a tenth of the programs get syntax errors", "promoted", partial(_break, share=0.1)),
    Night("a program and a page of 3 MB, a program of 1 GB", "unchanged", _add_huge),
    Night("telemetry begins", "promoted", _begin_telemetry),
    Night(
        "a column of the telemetry is renamed", "failed", partial(_rename, before="optimal_response", after="answer")
    ),
    Night("it is called as before", "unchanged", partial(_rename, before="answer", after="optimal_response")),
    Night("3 new programs; 5 % of the disk are free", "promoted", partial(_fill, left=_NEARLY_FULL), is_warned=True),
    Night("3 new programs; the disk is full", "failed", partial(_fill, left=_FULL), is_full=True),
    Night("the disk has room", "promoted"),
    Night("`config/pipeline.yaml` is no YAML", "failed", _break_config),
    Night("configuration and programs as in the beginning", "promoted", _mend),
    Night("another build of the code gives way to this one", "unchanged", _upgrade),
    Night("3 new programs; kill -9 while it trains", "killed", _add, is_killed=True),
    Night("nothing", "promoted"),
    Night("3 new programs; the clock goes back by 30 days while it runs", "promoted", _add, -30),
    Night("3 new programs; the clock goes ahead by 400 days while it runs", "promoted", _add, 400),
    Night("nothing; the clock is right", "unchanged"),
    Night("the workspace is not mounted", "failed", partial(_move, before="workspace", after="gone")),
    Night("it is mounted", "unchanged", partial(_move, before="gone", after="workspace")),
    Night("3 new programs; all gates block, as shipped", "refused", _block_by_all),
    Night("gates as before", "promoted", lay_config),
    Night("more than half of the programs get syntax errors", "failed", partial(_break, share=0.6)),
    Night("they are mended", "unchanged", _mend_programs),
    Night(
        "links in a circle and to nowhere, a pipe, an empty file, a name that is no text, 3 new programs",
        "promoted",
        _add_strange,
    ),
    Night(
        "a folder of programs is moved", "promoted", partial(_move, before=f"{_GOLDEN}/app", after=f"{_GOLDEN}/moved")
    ),
    Night("a tenth of the programs vanish", "promoted", partial(_lose, share=0.1)),
    Night("nothing", "unchanged"),
)
