"""Events of a month on a machine: in its workspace, telemetry, configuration, disk, clock and code."""

import json
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from mens_pipeline.corpus.curate.heldout_split import is_held_out
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
from mens_pipeline.corpus.schema.records import ExtractedRecord, Lane, read_pairs, read_record_lines
from mens_pipeline.evaluation.benchmark import MANIFEST
from mens_pipeline.promotion.bill import files_in_bill, format_refused_files
from mens_pipeline.promotion.history import find_champion, read_history
from mens_pipeline.promotion.policy import GateName
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.kinds import CorpusFile, Kind, SplitFile
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.corpus.checkouts import make_checkout

DISK_BYTES: Final = 2**28
"""Of the small disk that holds the store and the home of Dagster, if one can be mounted."""

_EVERY: Final = 12
_TASKS: Final = 6
_HUGE: Final = 3_000_000
_NEARLY_FULL: Final = int(0.05 * DISK_BYTES)
_FULL: Final = 300_000
_GOLDEN: Final = "workspace/golden"
_BROKEN: Final = "fn broken(( {\n"
_TABLE: Final = "AgentTelemetry"
_SECRET: Final = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT" * 2
_OFFICE: Final = "office/"
_OTHERS: Final = ("lent/", "made/", "tried/")
"""Folders of a checkout that are vendored, generated and ignored."""

DISTRUST: Final = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
"""With it git refuses as if the checkout was somebody else's (`safe.directory`)."""
_BLOCK: Final = ("suite_size", "regression", "decline", "supervised_ratio", "truncation")
"""Gates that a model of random weights can pass; all others warn, so that a trained adapter is promoted."""

_CHANGED: Final[dict[str, dict[str, Any]]] = {
    "pipeline.yaml/synthesize": {"limit": 40},
    "pipeline.yaml/split": {"min_heldout_tasks": 5, "min_heldout_files": 4, "num_family_tasks": 1},
    "pipeline.yaml/nightly": {"schedule": "30 23 * * *", "alert": "0 7 * * *", "timezone": "Europe/Berlin"},
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
    # A sixth of the shipped days: a month has the effect of half a year.
    "retention.yaml": {"runs": 15, "newest": 5},
    "retention.yaml/days": {
        **dict.fromkeys(("eval_results", "benchmark_gate", "generations"), 5),
        **dict.fromkeys(("merged_model", "gguf_model", "serving_handoff"), 2),
        "qlora_adapter": 15,
    },
}
"""Fields of the configuration that differ from the shipped ones, so that a night takes half a minute."""


@dataclass
class Machine:
    """A machine that trains every night; if `is_mounted`, its `disk` is a separate file system."""

    folder: Path
    is_mounted: bool
    dice: random.Random = field(default_factory=lambda: random.Random(30))

    def __post_init__(self) -> None:
        names = ("workspace", "config", "benchmark", "disk", "telemetry.db", "older")
        places = (self.folder / name for name in names)
        self.workspace, self.config, self.benchmark, self.disk, self.telemetry, self.older = places

    @property
    def golden(self) -> Path:
        """Folder of programs."""
        return self.folder / _GOLDEN

    @property
    def store(self) -> ArtifactStore:
        """The store of artifacts."""
        return ArtifactStore(self.disk / "store")

    def latest(self, kind: Kind) -> Artifact:
        """Return the artifact of a kind that the last run made or reused."""
        found = self.store.latest(kind)
        if found is None:
            raise LookupError(f"{self.disk}: no {kind}")
        return found

    def read_records(self) -> list[ExtractedRecord]:
        """Return the records of the last extraction."""
        return [record for _, record in read_record_lines(self.latest(Kind.EXTRACTED_CORPUS).file(CorpusFile.RECORDS))]


def set_up_workspace(machine: Machine) -> None:
    """Write a checkout with a part of the seed data and with foreign files, and undo all changes to them."""
    data = PROJECT_ROOT / "data"
    for pattern in ("golden/**/*.vox", "docs/**/*.md"):
        for path in sorted(data.glob(pattern))[::_EVERY]:
            target = machine.workspace / path.relative_to(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    others = {f"{folder}{folder[:-1]}.vox": _write_function(folder[:-1], 41) for folder in _OTHERS}
    lent, made, tried = _OTHERS
    attributes = f"{lent}** linguist-vendored\n{made}** linguist-generated\n"
    make_checkout(machine.workspace, {**others, ".gitattributes": attributes, ".gitignore": f"{tried}\n"})


def _write_function(name: str, factor: int) -> str:
    return f"fn {name}(n: int) to int {{\n    return n * {factor}\n}}\n"


def set_up_config(machine: Machine) -> None:
    """Write a configuration with little work, and with requirements that random weights can meet."""
    shutil.copytree(PROJECT_ROOT / "config", machine.config, dirs_exist_ok=True)
    for where, fields in _CHANGED.items():
        name, *keys = where.split("/")
        document = yaml.safe_load((machine.config / name).read_text(encoding="utf-8"))
        part = document
        for key in keys:
            part = part[key]
        part |= fields
        (machine.config / name).write_text(yaml.safe_dump(document), encoding="utf-8")


def set_up_benchmark(machine: Machine) -> None:
    """Copy a few tasks of the benchmark: a run checks twice that no row repeats a task."""
    leave = shutil.ignore_patterns("humaneval_vox")
    shutil.copytree(PROJECT_ROOT / "data" / "heldout_bench", machine.benchmark, ignore=leave)
    manifest = json.loads((machine.benchmark / MANIFEST).read_text(encoding="utf-8"))
    few = {**manifest, "benchmarks": manifest["benchmarks"][:_TASKS]}
    (machine.benchmark / MANIFEST).write_text(json.dumps(few), encoding="utf-8")


def set_up_older_build(machine: Machine) -> None:
    """Copy the code, with another digest of the templates of synthetic programs."""
    for name in ("mens_pipeline", "mens_pipeline_tests"):
        shutil.copytree(PROJECT_ROOT / name, machine.older / name)
    for name in ("dagster.yaml", "data", "config"):
        (machine.older / name).symlink_to(PROJECT_ROOT / name)
    for path in (machine.older / "mens_pipeline" / "corpus" / "synthesis" / "families").glob("*.yaml"):
        path.write_text(path.read_text(encoding="utf-8") + "# of an older build\n", encoding="utf-8")


def _upgrade(machine: Machine) -> None:
    shutil.rmtree(machine.older)


def _add(machine: Machine) -> None:
    for _ in range(3):
        name, factor = f"added{machine.dice.randrange(10**6)}", machine.dice.randrange(99)
        (machine.golden / f"{name}.vox").write_text(_write_function(name, factor))


def _save_elsewhere(machine: Machine) -> None:
    office = machine.workspace / _OFFICE
    office.mkdir()
    (office / "lines.vox").write_bytes(_write_function("lines", 3).replace("\n", "\r\n").encode())
    (office / "marked.vox").write_bytes(_write_function("marked", 5).encode("utf-8-sig"))
    (office / "wide.vox").write_bytes(_write_function("wide", 7).encode("utf-16"))
    (office / "keyed.vox").write_text(f'fn keyed() to str {{\n    return "{_SECRET}"\n}}\n')


def _find_misread(machine: Machine) -> Iterator[str]:
    found = [record for record in machine.read_records() if record.source.path.startswith(_OFFICE)]
    names = {record.source.path.removeprefix(_OFFICE) for record in found}
    if names != {"lines.vox", "marked.vox", "keyed.vox"}:
        yield f"read below {_OFFICE}: {', '.join(sorted(names))}"
    if any({"\r", "\ufeff"} & {*record.text} for record in found):
        yield "line ends or a byte order mark of other editors train"


def find_secret(machine: Machine, said: str) -> Iterator[str]:
    """Yield each place of the secret of a program of the workspace: the output of a run, or a file that it wrote."""
    if _SECRET in said:
        yield "a secret is printed"
    for folder in ("store", "home"):
        for path in (machine.disk / folder).rglob("*"):
            if path.is_file() and _SECRET.encode() in path.read_bytes():
                yield f"{path}: holds a secret"


def _find_files_of_others(machine: Machine) -> Iterator[str]:
    paths = {record.source.path for record in machine.read_records()}
    yield from (f"{path} trains, which is not our own" for path in sorted(paths) if path.startswith(_OTHERS))


def _sample_programs(machine: Machine, share: float) -> list[Path]:
    programs = sorted(path for path in machine.golden.glob("**/*.vox") if path.lstat().st_size < _HUGE // 2)
    return machine.dice.sample(programs, round(share * len(programs)))


def _lose(machine: Machine, share: float) -> None:
    for path in _sample_programs(machine, share):
        path.unlink()


def _break(machine: Machine, share: float) -> None:
    for path in _sample_programs(machine, share):
        path.write_text(_BROKEN + path.read_text(encoding="utf-8"), encoding="utf-8")


def _mend_programs(machine: Machine) -> None:
    for path in _sample_programs(machine, 1.0):
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
    if machine.is_mounted:
        with (machine.disk / "of-somebody-else").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(machine.disk).free - left)


def make_room(machine: Machine) -> None:
    """Remove the file of another program."""
    (machine.disk / "of-somebody-else").unlink(missing_ok=True)


def _break_config(machine: Machine) -> None:
    (machine.config / "pipeline.yaml").write_text("synthesize: [\n")


def _mend(machine: Machine) -> None:
    set_up_config(machine)
    set_up_workspace(machine)


def _move(machine: Machine, before: str, after: str) -> None:
    (machine.folder / before).rename(machine.folder / after)


def _block_by_all(machine: Machine) -> None:
    shutil.copy(PROJECT_ROOT / "config" / "gates.yaml", machine.config)


def _rename_heldout(machine: Machine) -> None:
    """Rename each held-out program to another held-out name, and remove one."""
    policy = load_pipeline_config(machine.config / "pipeline.yaml").split
    pairs = [*read_pairs(machine.latest(Kind.HELDOUT_SPLIT).file(SplitFile.HELDOUT))]
    programs = Counter(pair.source.path for pair in pairs if pair.source is not None and pair.lane is Lane.CODEGEN)
    *others, (fewest, _) = programs.most_common()
    (machine.workspace / fewest).unlink()
    for path, _ in others:
        names = (PurePosixPath(path).with_name(f"kept{number}.vox") for number in count())
        new = next(n for n in names if is_held_out(str(n), policy) and not (machine.workspace / n).exists())
        (machine.workspace / path).rename(machine.workspace / new)


def _name_seen(machine: Machine) -> Sequence[str]:
    """Name a program that the adapter in use learnt from, if possible in the folder that is moved."""
    champion = find_champion(machine.store)
    seen = {file.path for file in files_in_bill(champion)} if champion is not None else set()
    found = sorted(path for path in seen if (machine.workspace / path).is_file())
    path = next((path for path in found if path.startswith("golden/app/")), found[0])
    return "store", "forget", path, "--reason", "asked by its author"


def _find_unforgotten(machine: Machine) -> Iterator[str]:
    policy = load_source_policy(machine.config / "pipeline.yaml")
    yield from _find_files_of_others(machine)
    sources = {(record.source.path, record.source.blob) for record in machine.read_records()}
    yield from (f"{path} trains, which was taken back" for path, blob in sources if policy.forgets(path, blob))
    before, last = (machine.store.get(Kind.PROMOTED_ADAPTER, event.key) for event in read_history(machine.store)[-2:])
    if format_refused_files(last, policy):
        yield "the new adapter learnt from a file that was taken back"
    if not format_refused_files(before, policy):
        yield "the adapter before is not marked as one that learnt from a file that was taken back"


def _roll_back(_machine: Machine) -> Sequence[str]:
    return "promote", "--rollback", "--reason", "tried"


def _halve_telemetry(machine: Machine) -> None:
    content = machine.telemetry.read_bytes()
    machine.telemetry.rename(machine.folder / "telemetry.sound")
    machine.telemetry.write_bytes(content[: len(content) // 2])


def _lose_home(machine: Machine) -> None:
    shutil.rmtree(machine.disk / "home")


def _add_strange(machine: Machine) -> None:
    (machine.golden / "circle").symlink_to(machine.golden)
    (machine.golden / "nowhere.vox").symlink_to("/nowhere.vox")
    (machine.golden / "empty.vox").touch()
    os.mkfifo(machine.golden / "pipe.vox")
    Path(os.fsdecode(os.fsencode(machine.golden) + b"/\xff\xfe.vox")).write_text(_write_function("nameless", 9))


def _change_nothing(_machine: Machine) -> None:
    pass


def _combine(*changes: Callable[[Machine], None]) -> Callable[[Machine], None]:
    def change(machine: Machine) -> None:
        for one in changes:
            one(machine)

    return change


@dataclass(frozen=True, slots=True)
class Night:
    """A night: before it, a `command` of `mens` and `change` change the machine as `what` says.

    The outcome is promoted, unchanged, refused, failed, interrupted or killed. The clock may `jump` by days while the
    run goes on. A run may get a signal in a step (`ended`), be refused by git, have to warn of a disk that is nearly
    full, or meet a full one. `says` are words of its output, `alert` is a pattern of its alert, and `check`
    returns faults afterwards.
    """

    what: str
    outcome: str
    change: Callable[[Machine], None] = _change_nothing
    jump: int = 0
    command: Callable[[Machine], Sequence[str]] | None = None
    ended: tuple[signal.Signals, str] | None = None
    is_distrusted: bool = False
    is_warned: bool = False
    is_full: bool = False
    says: str = ""
    alert: str = ""
    check: Callable[[Machine], Iterator[str]] = _find_files_of_others


def _trust(_machine: Machine) -> Iterator[str]:
    """Find nothing: if git refuses, files of others look like our own."""
    yield from ()


NIGHTS: Final = (
    Night("a new store, a new home of Dagster; a checkout with vendored, generated and ignored programs", "promoted"),
    Night("nothing", "unchanged"),
    Night(
        "programs in UTF-16, with CRLF, with a byte order mark, with a secret",
        "promoted",
        _save_elsewhere,
        check=_find_misread,
    ),
    Night(
        "git refuses: the checkout is somebody else's (`safe.directory`)",
        "promoted",
        is_distrusted=True,
        says="dubious ownership",
        check=_trust,
    ),
    Night(
        "git answers again; a quarter of the programs vanish, a tenth get syntax errors",
        "promoted",
        _combine(partial(_lose, share=0.25), partial(_break, share=0.1)),
    ),
    Night("telemetry begins; the clock jumps ahead by 400 days during the run", "promoted", _begin_telemetry, 400),
    Night(
        "a column of the telemetry is renamed", "failed", partial(_rename, before="optimal_response", after="answer")
    ),
    Night(
        "the column has its old name; the clock is right",
        "unchanged",
        partial(_rename, before="answer", after="optimal_response"),
    ),
    Night(
        "3 new programs; 5 % of the disk is free; the clock jumps back by 30 days during the run",
        "promoted",
        _combine(_add, partial(_fill, left=_NEARLY_FULL)),
        -30,
        is_warned=True,
    ),
    Night("the disk is full", "failed", partial(_fill, left=_FULL), is_full=True),
    Night("the disk has room", "unchanged"),
    Night("`config/pipeline.yaml` is not YAML", "failed", _break_config),
    Night(
        "configuration and programs are restored; kill -9 during training",
        "killed",
        _mend,
        ended=(signal.SIGKILL, "qlora_adapter"),
    ),
    Night("nothing; SIGTERM during training", "interrupted", ended=(signal.SIGTERM, "qlora_adapter")),
    Night("nothing; SIGINT during evaluation", "interrupted", ended=(signal.SIGINT, "eval_results")),
    Night("nothing", "promoted"),
    Night("this build of the code replaces another one", "unchanged", _upgrade),
    Night("the workspace is not mounted", "failed", partial(_move, before="workspace", after="gone")),
    Night("the workspace is mounted", "unchanged", partial(_move, before="gone", after="workspace")),
    Night(
        "3 new programs; all gates block, as shipped",
        "refused",
        _combine(_add, _block_by_all),
        says="first evaluation on this eval suite",
        alert=r"\d % measured, \d+\.\d % required",
    ),
    Night(
        "held-out programs are renamed, and one is removed; all gates block",
        "refused",
        _rename_heldout,
        says="second evaluation on this eval suite",
    ),
    Night("the gates are as before", "promoted", set_up_config),
    Night("`mens promote --rollback`", "refused", command=_roll_back, alert="withdrawn by a rollback: not promoted"),
    Night(
        "`mens store forget` of a program; its folder is moved",
        "promoted",
        partial(_move, before=f"{_GOLDEN}/app", after=f"{_GOLDEN}/moved"),
        command=_name_seen,
        check=_find_unforgotten,
    ),
    Night("more than half of the programs get syntax errors", "failed", partial(_break, share=0.6)),
    Night("the programs are repaired", "unchanged", _mend_programs),
    Night(
        "circular and broken links, a pipe, an empty file, a name that is not text; a program and a page of "
        "3 MB, a program of 1 GB",
        "unchanged",
        _combine(_add_strange, _add_huge),
    ),
    Night("the home of Dagster is gone", "unchanged", _lose_home),
    Night("the database of the telemetry is cut in half", "failed", _halve_telemetry),
    Night("the database is restored", "unchanged", partial(_move, before="telemetry.sound", after="telemetry.db")),
)
