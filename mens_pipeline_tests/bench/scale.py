"""Measure how store, telemetry, eval suite, champions, rows, mixing and near duplicates grow with ten times the size.

`python -m mens_pipeline_tests.bench.scale [PART ...] [--share 1.0]`; seconds are CPU time, which other
work on the machine affects little. Each size runs in its own process, with its own peak memory. Constant costs have a
ratio of 1, linear costs a ratio of 10.
"""

import sqlite3
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from hashlib import sha256
from itertools import islice
from os import devnull, environ
from pathlib import Path
from random import Random
from typing import Any, Final

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.mix import load_mix_config, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN, add_infill_rows, read_sources, write_mix
from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.corpus.synthesis.tasks.draw import draw_tasks
from mens_pipeline.corpus.telemetry.table import (
    TelemetryAccount,
    read_telemetry,
    telemetry_fingerprint,
    telemetry_pairs,
)
from mens_pipeline.evaluation.eval_results import write_documents
from mens_pipeline.evaluation.evaluate import evaluate_completions, with_sound_tests
from mens_pipeline.evaluation.results import SCORED_COMPLETIONS, Subject
from mens_pipeline.evaluation.tasks import Task, heldout_tasks
from mens_pipeline.inference.generation import Completion
from mens_pipeline.jobs.progress import Follower, TelemetryLog
from mens_pipeline.models.adapter import WEIGHTS, adapter_digest
from mens_pipeline.promotion.history import HistoryEvent, find_champion, lock_champion, record
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.promotion.report.page import build_curve
from mens_pipeline.settings import MIX_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of
from mens_pipeline.training.telemetry_log import losses_of, seconds_trained
from mens_pipeline_tests.bench.duplicates import duplicates_of
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.bench.sizes import Measured, apart, measure_time
from mens_pipeline_tests.bench.train_rows import build_line, rows_of
from mens_pipeline_tests.corpus.rows import mix_report
from mens_pipeline_tests.corpus.telemetry_databases import query_of
from mens_pipeline_tests.evaluation.runs import (
    BASE,
    DECODING,
    HELDOUT,
    NOW,
    PRESENT,
    fill_trained,
    promote,
    scored,
    trained,
    verdict_of,
)
from mens_pipeline_tests.evaluation.scored import PROGRESS

_STEP: Final = 10
_NIGHT: Final = ("qlora_adapter", "generations", "eval_results", "benchmark_gate")
_NUM_LOOKS: Final = 100
_EPOCH: Final = 1_700_000_000


def main() -> None:
    parser = ArgumentParser(description="Measure how the parts of the pipeline grow.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--share", type=float, default=1.0, help="share of the full sizes, for a quicker look")
    options = parser.parse_args()
    print(machine_name())
    for name in options.parts or PARTS:
        measure, most = PARTS[name]
        sizes = [max(_STEP, round(most * options.share)) // by for by in (_STEP, 1)]
        small, large = (apart(measure, size) for size in sizes)
        print()
        print(f"{name:<60}{sizes[0]:>12,}{sizes[1]:>12,}{'ratio':>8}")
        for what, value in large.items():
            print(f"{what:<60}{small[what]:>12.4f}{value:>12.4f}{value / small[what]:>8.1f}")


def _command(store: ArtifactStore, *arguments: str) -> None:
    environ["MENS_STORE_ROOT"] = str(store.root)
    with Path(devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        app(list(arguments), standalone_mode=False)


def store_of(folder: Path, size: int) -> Measured:
    """Measure a store of about `size` artifacts: nights that share one train set and one base."""
    found: Measured = {}
    store = ArtifactStore(folder / "store")
    with measure_time(found, "write all artifacts"):
        refs = list(_fill(store, size))
    _command(store, "lineage", refs[0][1])  # warm up its imports
    with measure_time(found, "open", _NUM_LOOKS) as times:
        opened = [ArtifactStore(folder / "store") for _ in times].pop()
    with measure_time(found, "get one by its key", _NUM_LOOKS) as times:
        assert all(opened.get(*refs[-1 - n % len(refs)]) is not None for n in times)
    with measure_time(found, "get the latest of a kind", _NUM_LOOKS) as times:
        assert all(opened.get(_NIGHT[0], str(opened.read_pointer(_NIGHT[0], "latest"))) for _ in times)
    with measure_time(found, "write one more"):
        made = opened.build(_NIGHT[0], {"n": -1}, lambda path: fill_trained(path, "more"))[0]
    with measure_time(found, "mens store prune, nothing removed"):
        _command(store, "store", "prune")
    with measure_time(found, "mens lineage of one adapter"):
        _command(store, "lineage", made.key)
    return found


def _fill(store: ArtifactStore, size: int) -> Iterator[tuple[str, str]]:
    rows = [TrainingPair(prompt=f"Write {n}", response=f"fn f{n}() {{ }}\n") for n in range(100)]

    def mix(path: Path) -> dict[str, Any]:
        write_jsonl(path / TRAIN, rows)
        return mix_report({"path": "pairs.jsonl", "emitted_lines": len(rows)})

    mixed = store.build("mixed_train_set", {}, mix)[0]
    for night in range(max(1, (size - 1) // len(_NIGHT))):
        parents: list[Artifact] = [mixed]
        for kind in _NIGHT:
            parents = [store.build(kind, {"n": night}, lambda path: fill_trained(path, "weights"), parents)[0]]
            yield kind, parents[0].key


def table_of(folder: Path, size: int) -> Measured:
    """Measure a telemetry table of `size` rows in SQLite, read as in an import."""
    found: Measured = {}
    path = folder / "telemetry.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, at INT, query, optimal_response)")
        rows = (
            (n, n * 7919 % size, f"Write a function `f{n}`.", f"fn f{n}() to int {{\n    return {n}\n}}\n")
            for n in range(size)
        )
        connection.executemany("INSERT INTO AgentTelemetry VALUES (?, ?, ?, ?)", rows)
    connection.close()
    by_key, by_time = query_of(path), query_of(path, order_column="at")
    telemetry_fingerprint(by_key.model_copy(update={"limit": 1}))  # warm up its imports
    with measure_time(found, "newest 5,000 rows by the key, read and hashed"):
        telemetry_fingerprint(by_key)
    with measure_time(found, "newest 5,000 by a column without an index"):
        telemetry_fingerprint(by_time)
    with measure_time(found, "a tenth of the rows, at most 1,000,000, read and hashed"):
        telemetry_fingerprint(by_key.model_copy(update={"limit": min(1_000_000, max(1, size // 10))}))
    tally = TelemetryAccount()
    with measure_time(found, "newest 5,000 rows to pairs"):
        written = write_jsonl(folder / "pairs.jsonl", telemetry_pairs(read_telemetry(by_key), tally, by_key.table))
    assert written == min(size, 5000)
    return found


def log_of(folder: Path, size: int) -> Measured:
    """Measure the log of a training with `size` lines, one per step, and one resumption."""
    found: Measured = {}
    path = folder / "telemetry.jsonl"
    with measure_time(found, "write all lines, one by one"):
        log = TelemetryLog(path)
        log.write("train_start", {"resumed_from": None})
        for number in range(1, size + 1):
            if number == size // 2 + 1:
                log.write("train_start", {"resumed_from": f"checkpoint-{size // 2}"})
            loss, seconds = 1 + 1 / number, 0.5 * number
            step = {"step": number, "num_updates": 1, "loss": loss, "num_tokens": 100, "seconds": seconds}
            log.write("step", step)
    with measure_time(found, "begin to write or to follow it"):
        TelemetryLog(path)
        Follower(path, lambda _line: None)
    with measure_time(found, "seconds trained"):
        assert seconds_trained(path) == 0.5 * size
    found["log, MB"] = path.stat().st_size / 1e6
    with measure_time(found, "the curve of the report"):
        assert build_curve(losses_of(path)) is not None
    return found


def mix_of(folder: Path, size: int) -> Measured:
    """Measure a mix by `config/mix.yaml`: half from a workspace, half synthetic, and infill rows of both."""
    found: Measured = {}
    random, config = Random(0), load_mix_config(MIX_CONFIG)  # noqa: S311 - reproducible rows, no secret
    for place, kind in enumerate((SourceKind.VOX_FILE, SourceKind.SYNTHETIC)):
        with (folder / config.sources[place].path).open("wb") as target:
            target.writelines(build_line(number, random, kind) for number in range(place, size, 2))
    with measure_time(found, "read the sources"):
        sources = read_sources(config, folder)
    with measure_time(found, "cut infill rows"):
        infill = add_infill_rows(sources, (), config)
    with measure_time(found, "mix"):
        mix = mix_sources(config, sources)
    with measure_time(found, "write JSON lines and Parquet"):
        write_mix(mix, folder / TRAIN, {"infill": infill})
    found["train set, MB"] = (folder / TRAIN).stat().st_size / 1e6
    return found


def eval_suite_of(folder: Path, size: int) -> Measured:
    """Measure an eval suite of `size` functions with hidden tests; the adapter solves two of three, the base none."""
    found: Measured = {}
    pairs = list(islice(_pairs(), size))
    with measure_time(found, "tasks of the held-out pairs"):
        tasks = heldout_tasks(pairs)
    with measure_time(found, "hidden tests run on their references"):
        tasks, num_dropped = with_sound_tests(tasks)
    assert (len(tasks), num_dropped) == (size, 0)
    run, store = trained(folder / "run"), ArtifactStore(folder / "store")
    subject = Subject(
        adapter_sha256=adapter_digest(run),
        base_sha256=BASE,
        base_model="tiny",
        heldout_sha256=HELDOUT,
        benchmark_sha256=None,
    )
    free, base = _completions(tasks, 3), _completions(tasks, 1)
    again = [a.model_copy(update={"constrained": True}) for a in _completions(tasks[::3], 0)]
    completions = {"base": base, "adapter": (*free, *again)}
    with measure_time(found, "answers judged, run and counted"):
        evaluation = evaluate_completions(tasks, completions, subject, DECODING, PROGRESS)

    def write(path: Path) -> dict[str, Any]:
        write_documents(path, evaluation, "")
        return {"name": "eval-gate"}

    with measure_time(found, "documents written"):
        artifact = store.build(Kind.EVAL_RESULTS, {}, write)[0]
    with measure_time(found, "verdict and report page"):
        gate = scored(run, store, artifact)
    found["judged answers, MB"] = (artifact.path / SCORED_COMPLETIONS).stat().st_size / 1e6
    found["report page, MB"] = (gate.path / PAGE).stat().st_size / 1e6
    return found


def _pairs() -> Iterator[TrainingPair]:
    for number, pair in enumerate(draw_tasks(seed=0)):
        path = f"generated/{number // 5}.vox"
        place = Source(path=path, blob="0" * 64, span=(0, 1), lines=(1, 1), kind=SourceKind.VOX_FILE)
        yield pair.model_copy(update={"source": place})


def _completions(tasks: Sequence[Task], every: int) -> tuple[Completion, ...]:
    random = Random(0)  # noqa: S311 - no secret

    def text(place: int, task: Task) -> str:
        is_cut = every and place % every == 0
        return task.reference[: random.randrange(1, len(task.reference) - 2)] if is_cut else task.reference

    return tuple(
        Completion(task=task.id, sample=0, text=text(place, task), num_tokens=60, stopped=True)
        for place, task in enumerate(tasks)
    )


def champions_of(folder: Path, size: int) -> Measured:
    """Measure a history of `size` champions, then one promotion by a verdict and its rollback."""
    found: Measured = {}
    store = ArtifactStore(folder / "store")
    run = trained(folder / "run")
    verdict_of(trained(folder / "warm", "warm"), ArtifactStore(folder / "other"))  # warm up its imports
    for number in range(size):
        _record(store, number)
    with measure_time(found, "record one more change", _NUM_LOOKS // 5) as times:
        for number in times:
            _record(store, size + number)
    with measure_time(found, "the champion, found and checked", _NUM_LOOKS) as times:
        assert all(find_champion(store) is not None for _ in times)
    _command(store, "promote", "--history")  # warm up its imports
    with measure_time(found, "mens promote --history"):
        _command(store, "promote", "--history")
    gate = verdict_of(run, store)
    with measure_time(found, "promote one more"):
        promote(gate, run, store, PRESENT, now=NOW)
    with measure_time(found, "roll it back"):
        roll_back(store, now=NOW, reason="measured")
    return found


def _record(store: ArtifactStore, number: int) -> None:
    weights = f"weights of {number}"
    digest = key_of({WEIGHTS: sha256(weights.encode()).hexdigest()})
    made = store.build(Kind.PROMOTED_ADAPTER, {"adapter_sha256": digest}, lambda path: fill_trained(path, weights))[0]
    with lock_champion(store) as seen:
        before = find_champion(store)
        event = HistoryEvent(
            timestamp_unix=_EPOCH + number,
            action="promote",
            key=made.key,
            previous=before.key if before is not None else None,
            adapter_sha256=digest,
            reason="the gate passed: policy ci, first evaluation on this eval suite, 89/104 (85.6 %)",
        )
        record(store, event, made, seen)


PARTS: Final[dict[str, tuple[Callable[[Path, int], Measured], int]]] = {
    "store": (store_of, 10_000),
    "table": (table_of, 10_000_000),
    "log": (log_of, 10_000_000),
    "eval_suite": (eval_suite_of, 10_000),
    "champions": (champions_of, 1_000),
    "rows": (rows_of, 1_000_000),
    "mix": (mix_of, 100_000),
    "duplicates": (duplicates_of, 100_000),
}
"""Name -> function that measures it, and its full size."""


if __name__ == "__main__":
    main()
