"""Models side by side: one table of figures, the comparison of several models, and the leaderboard of a store."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import (
    RESULTS,
    SCORED_COMPLETIONS,
    BestOf,
    BestOfScores,
    EvalResults,
    ScoredCompletion,
    read_results,
)
from mens_pipeline.evaluation.scores import ModelScores, Score, Scores, scores_of_model
from mens_pipeline.evaluation.statistics import Rate, compare_paired, p_text
from mens_pipeline.evaluation.tasks import FAMILIES, Prompt, Suite
from mens_pipeline.evaluation.trial import TRIAL
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.models.base import read_object
from mens_pipeline.models.card import base_name, markdown_table, plain
from mens_pipeline.promotion.receipt import PIPELINE_COMMIT, Receipt, receipt_in
from mens_pipeline.storage.jsonl import models_in, open_rows, replacing
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.recipe import PREFLIGHT

PASS_AT_1: Final = "pass@1"  # noqa: S105 - a figure
_SIGNIFICANT: Final = 0.05


class Tone(StrEnum):
    """Severity; a class of the style sheet."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Measure:
    """A property of completions.

    `rate` selects its rate from scores. `holds` tells whether a completion has it, None if the prompt does not request
    it; without `holds`, differences are not tested. `better` is 1 if higher is better, -1 if lower is.
    """

    label: str
    meaning: str
    rate: Callable[[Scores], Rate | None]
    holds: Callable[[Score], bool | None] | None = None
    better: int = 1


_MAIN: Final = (
    Measure("parse rate", "The front end accepts the completion.", lambda s: s.parse_rate, lambda j: j.parses),
    Measure(
        "resolve rate",
        "It parses without known errors in names and types.",
        lambda s: s.resolve_rate,
        lambda j: j.resolves,
    ),
    Measure(
        PASS_AT_1,
        "Complete Vox of the requested construct and name that meets all requirements.",
        lambda s: s.pass_at_1,
        lambda j: j.passed,
    ),
)
_TESTED: Final = Measure(
    "hidden tests",
    "The program was run, and all tests pass; over the prompts that have tests.",
    lambda s: s.test_rate,
    lambda j: j.passes_tests if j.has_tests else None,
)
_DETAILS: Final = (
    Measure("ends by itself", "It ended before the limit.", lambda s: s.stop_rate, lambda j: j.stopped),
    Measure(
        "right construct", "It declares the requested construct.", lambda s: s.construct_rate, lambda j: j.has_construct
    ),
    Measure("right name", "It declares the requested name, if any.", lambda s: s.name_rate, lambda j: j.has_name),
    Measure("stubs", "It has a placeholder in place of code.", lambda s: s.stub_rate, lambda j: j.stub, -1),
    Measure("empty", "Nothing was written.", lambda s: s.empty_rate, lambda j: j.empty, -1),
    Measure("refusals", "It refuses the request.", lambda s: s.refusal_rate, lambda j: j.refusal, -1),
    Measure("duplicates", "The same program completes another prompt.", lambda s: s.duplicate_rate, better=-1),
)
_CHOSEN: Final[Mapping[str, Callable[[BestOfScores], Rate]]] = {
    "": lambda s: s.pass_rate,
    ", hidden tests": lambda s: s.test_rate,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One model: its scores over the eval suites, and its stored completions.

    Scores on synthetic tasks (`families`) count in no other figure; `best_of` has the scores of chosen completions.
    """

    name: str
    scores: ModelScores
    completions: Sequence[ScoredCompletion] = ()
    families: Mapping[str, Scores] = field(default_factory=dict)
    best_of: BestOf | None = None

    def scores_in(self, suite: Suite | None) -> Scores | None:
        """Return the scores over one suite, or with None over all; None if the model has no scores on the suite."""
        return self.scores.overall if suite is None else {**self.scores.suites, **self.families}.get(suite)

    def outcomes(self, measure: Measure, suite: Suite | None) -> dict[str, bool]:
        """Return for each prompt whether the first completion has a property."""
        found = {}
        for completion in self.completions:
            is_asked = completion.suite == suite if suite is not None else completion.suite not in FAMILIES
            if measure.holds is not None and is_asked and completion.score.sample == 0:
                found[completion.score.task] = measure.holds(completion.score)
        return {task: holds for task, holds in found.items() if holds is not None}


@dataclass(frozen=True, slots=True)
class Difference:
    """A model minus the first one, over the `num_tasks` prompts that both completed.

    `p_value` is from the exact paired test over first completions; `tone` is good or bad if it is small.
    """

    value: float
    p_value: float
    num_tasks: int
    tone: Tone

    def __str__(self) -> str:
        """Format for people: `+50.0 points (p < 0.001)`."""
        return f"{points(self.value)} ({p_text(self.p_value)})"


@dataclass(frozen=True, slots=True)
class FigureCell:
    """A measure of a model; `rate` is None for a text, and if the model has no completions to measure."""

    text: str = "-"
    rate: Rate | None = None
    difference: Difference | None = None

    def __str__(self) -> str:
        """Format with the 95 % interval."""
        return f"{self.text} {self.interval}".rstrip()

    @property
    def interval(self) -> str:
        """The interval alone, in percent."""
        return self.rate.interval if self.rate is not None else ""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A measure over the prompts of a suite, or over all if `suite` is None; a cell for each model.

    `is_detail`: the row is over all prompts only, not suite by suite.
    """

    suite: Suite | None
    label: str
    meaning: str
    cells: tuple[FigureCell, ...]
    is_detail: bool = False


@dataclass(frozen=True, slots=True)
class FigureTable:
    """The figures of several models, without measures that apply to no model."""

    models: tuple[str, ...]
    rows: tuple[FigureRow, ...]

    def row(self, label: str) -> FigureRow:
        """Return the row of a measure over all prompts."""
        return next(row for row in self.rows if row.label == label)

    def lines(self) -> list[tuple[str, ...]]:
        """Format each row with intervals, and the difference after each model but the first."""
        others = [text for name in self.models[1:] for text in (name, f"less {self.models[0]}")]
        lines = [("suite", "figure", self.models[0], *others)]
        for suite, row in _with_suites(self.rows):
            first, *rest = row.cells
            texts = [text for cell in rest for text in (str(cell), str(cell.difference or ""))]
            lines.append((suite, row.label, str(first), *texts))
        return lines

    def lines_by_suite(self) -> list[tuple[str, ...]]:
        """Format the rows of single suites, with intervals and without differences."""
        rows = _with_suites(row for row in self.rows if row.suite is not None and not row.is_detail)
        return [("suite", "figure", *self.models), *((suite, row.label, *map(str, row.cells)) for suite, row in rows)]


def _with_suites(rows: Iterable[FigureRow]) -> Iterator[tuple[str, FigureRow]]:
    last = ""
    for row in rows:
        suite = row.suite or "all"
        yield (suite if suite != last else ""), row
        last = suite


def build_table(columns: Sequence[Column]) -> FigureTable:
    """Build the table of several models; the others are compared with the first."""
    suites = [*dict.fromkeys(Suite(suite) for column in columns for suite in column.scores.suites)]
    families = [*dict.fromkeys(Suite(suite) for column in columns for suite in column.families)]
    whole = suites[0] if len(suites) == 1 else None  # a single suite equals the whole
    rows = [*_rows(columns, whole), *_detail_rows(columns, whole)]
    for suite in (*(suites if whole is None else ()), *families):
        rows += _rows(columns, suite)
    return FigureTable(tuple(column.name for column in columns), tuple(rows))


def list_columns(results: EvalResults, completions: Iterable[ScoredCompletion] = ()) -> tuple[Column, ...]:
    """Return the models of an evaluation, the base first."""
    by_model: dict[str, list[ScoredCompletion]] = {"base": [], "few_shot": [], "adapter": [], "fallback": []}
    for completion in completions:
        by_model[completion.model].append(completion)
    columns = [Column("base", results.base, by_model["base"])]
    if results.few_shot is not None:
        columns.append(Column("few-shot", results.few_shot.scores, by_model["few_shot"]))
    best_of = results.best_of if results.fallback is None else None
    columns.append(Column("adapter", results.adapter, by_model["adapter"], results.families, best_of))
    if results.fallback is not None:
        served = as_served([*by_model["adapter"], *by_model["fallback"]])
        columns.append(Column("fallback", results.fallback.scores, served, best_of=results.best_of))
    if results.champion is not None:
        columns.append(Column("champion", results.champion.scores))
    return tuple(columns)


def as_served(completions: Sequence[ScoredCompletion]) -> tuple[ScoredCompletion, ...]:
    """Return the completions of an adapter as served: constrained second tries replace first ones."""
    second = {(a.score.task, a.score.sample): a for a in completions if a.model == "fallback"}
    own = (completion for completion in completions if completion.model == "adapter")
    return tuple(second.get((a.score.task, a.score.sample), a) for a in own)


def points(difference: float) -> str:
    """Format a difference of two shares in percentage points."""
    return f"{100 * difference:+.1f} points"


def _rows(columns: Sequence[Column], suite: Suite | None) -> Iterator[FigureRow]:
    scores = [found for column in columns if (found := column.scores_in(suite)) is not None]
    numbers = sorted({number for found in scores for number in found.pass_at} - {1})
    for measure in (*_MAIN, *map(_pass_at, numbers), _TESTED):
        yield from _measure(columns, suite, measure)
    for number in sorted({column.best_of.n for column in columns if column.best_of is not None}):
        meaning = f"The best of {number} completions by parser, names, examples in the prompt, and likelihood."
        for label, rate in _CHOSEN.items():
            chosen = [_find_chosen(column.best_of, suite) for column in columns]
            rates = [rate(found) if found is not None else None for found in chosen]
            if any(found is not None and found.denominator for found in rates):
                yield FigureRow(suite, f"best-of-{number}{label}", meaning, tuple(map(rate_cell, rates)))


def _detail_rows(columns: Sequence[Column], suite: Suite | None) -> Iterator[FigureRow]:
    for measure in _DETAILS:
        yield from _measure(columns, suite, measure, is_detail=True)
    meaning = "Share of the constructs of the language that occur in accepted completions."
    found = [column.scores.overall.coverage for column in columns]
    shares = [f"{len(c.present)}/{len(c.present) + len(c.missing)} ({100 * c.share:.1f} %)" for c in found]
    yield FigureRow(suite, "coverage", meaning, tuple(map(FigureCell, shares)), is_detail=True)
    cells = tuple(FigureCell(f"{column.scores.overall.mean_tokens:.1f}") for column in columns)
    yield FigureRow(suite, "mean tokens", "Length of a completion.", cells, is_detail=True)


def _pass_at(number: int) -> Measure:
    meaning = f"At least one of {number} completions passes."
    return Measure(f"pass@{number}", meaning, lambda scores: scores.pass_at.get(number))


def _find_chosen(best_of: BestOf | None, suite: Suite | None) -> BestOfScores | None:
    if best_of is None:
        return None
    return best_of.overall if suite is None else best_of.suites.get(suite)


def _measure(
    columns: Sequence[Column], suite: Suite | None, measure: Measure, *, is_detail: bool = False
) -> Iterator[FigureRow]:
    scores = [column.scores_in(suite) for column in columns]
    rates = [measure.rate(found) if found is not None else None for found in scores]
    if not any(rate is not None and rate.denominator for rate in rates):
        return
    baseline, *others = (column.outcomes(measure, suite) for column in columns)
    differences = [None, *(_difference(measure, baseline, outcomes) for outcomes in others)]
    yield FigureRow(suite, measure.label, measure.meaning, tuple(map(rate_cell, rates, differences)), is_detail)


def _difference(measure: Measure, first: Mapping[str, bool], second: Mapping[str, bool]) -> Difference | None:
    both = [task for task in second if task in first]
    if not both:
        return None
    test, tone = compare_paired([first[task] for task in both], [second[task] for task in both]), Tone.OPEN
    if test.p_value < _SIGNIFICANT and test.difference:
        tone = Tone.GOOD if test.difference * measure.better > 0 else Tone.BAD
    return Difference(test.difference, test.p_value, test.num_tasks, tone)


def rate_cell(rate: Rate | None, difference: Difference | None = None) -> FigureCell:
    """Return the cell of a rate; an empty one without cases."""
    return FigureCell() if rate is None or not rate.denominator else FigureCell(rate.short, rate, difference)


_ADVICE: Final = "Evaluate each on the same benchmark: `mens eval-local --trial --bench DIR`."


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """One model with its scored completions; `results` and `verdict` are set for a run of the graph."""

    name: str
    completions: tuple[ScoredCompletion, ...]
    results: EvalResults | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Models over the same `num_tasks` prompts of eval suites: the baseline, then the others by descending pass@1."""

    entries: tuple[ComparedModel, ...]
    columns: tuple[Column, ...]
    table: FigureTable
    num_tasks: int
    notes: tuple[str, ...]


def compare(entries: Sequence[ComparedModel]) -> SideBySide:
    """Compare models over the prompts that all completed; `RefusedError` for equal names, or if no prompt is shared.

    Adapters count by their free completions, as in a verdict; if a model has only completions, such as a trial, they
    count as served.
    """
    names = [entry.name for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(f"found two models called {', '.join(twice)}. Copy one of the files to another name.")
    is_served = any(entry.results is None for entry in entries)
    completions = {
        e.name: as_served(e.completions) if is_served else tuple(a for a in e.completions if a.model == "adapter")
        for e in entries
    }
    prompts = [{a.score.task: a.prompt for a in some} for some in completions.values()]
    shared = {task for task, prompt in prompts[0].items() if all(other.get(task) == prompt for other in prompts)}
    columns = {e.name: _column(e, completions[e.name], shared, is_served=is_served) for e in entries}
    first, *others = entries
    others.sort(key=lambda entry: (-(columns[entry.name].scores.overall.pass_at_1.value or 0.0), entry.name))
    ordered = tuple(columns[entry.name] for entry in (first, *others))
    num_tasks = ordered[0].scores.overall.num_tasks
    if not num_tasks:
        details = ", ".join(f"{name} {len(asked)}" for name, asked in zip(names, prompts, strict=True))
        raise RefusedError(f"found no task that all models completed (tasks: {details}). {_ADVICE}")
    notes = tuple(_notes(entries, completions, num_tasks, is_served=is_served))
    return SideBySide((first, *others), ordered, build_table(ordered), num_tasks, notes)


def find_completions(place: Path) -> Path | None:
    """Return a file of scored completions: the path itself, or the file in the folder of a run or endpoint; else None.

    `RefusedError` if the folder holds both an eval suite and a trial.
    """
    if place.is_file():
        return place
    found = [place / name for name in (SCORED_COMPLETIONS, TRIAL) if (place / name).is_file()]
    if len(found) > 1:
        raise RefusedError(f"{place}: holds {found[0].name} of an eval suite and {found[1].name} of a trial. Name one.")
    return found[0] if found else None


def read_model(path: Path) -> ComparedModel:
    """Read the scored completions of a model, named after its folder, or after a file with its own name.

    `RefusedError` if a line is malformed, or tasks have different numbers of completions.
    """
    advice = "Write it with `mens eval-local --trial`, or with --endpoint."
    with open_rows(path) as lines:
        completions = tuple(models_in(lines, path, ScoredCompletion, "scored completion", advice))
    samples = Counter(completion.score.task for completion in completions if completion.model == "adapter")
    if len(found := sorted(set(samples.values()))) > 1:
        raise RefusedError(f"{path}: some tasks have {found[0]} completions, others {found[-1]}. {advice}")
    return ComparedModel(
        path.absolute().parent.name if path.name in {TRIAL, SCORED_COMPLETIONS} else path.stem, completions
    )


def _column(
    entry: ComparedModel, completions: Sequence[ScoredCompletion], shared: set[str], *, is_served: bool
) -> Column:
    kept = [completion for completion in completions if completion.score.task in shared]
    if not is_served and entry.results is not None and len(kept) == len(completions):
        # These intervals are over source files, and wider.
        return Column(entry.name, entry.results.adapter, kept, entry.results.families)
    families = [completion for completion in kept if completion.suite in FAMILIES]
    eval_suite = [completion for completion in kept if completion.suite not in FAMILIES]
    return Column(entry.name, _scores(eval_suite), kept, _scores(families).suites)


def _scores(completions: Sequence[ScoredCompletion]) -> ModelScores:
    # Each prompt is its own unit: its file was not kept.
    prompts = {
        a.score.task: Prompt(a.score.task, Suite(a.suite), a.score.task, a.asked, a.difficulty) for a in completions
    }
    return scores_of_model([*prompts.values()], [completion.score for completion in completions])


def _notes(
    entries: Sequence[ComparedModel],
    completions: Mapping[str, Sequence[ScoredCompletion]],
    num_tasks: int,
    *,
    is_served: bool,
) -> Iterator[str]:
    results = [entry.results for entry in entries if entry.results is not None]
    if len({found.subject.adapter_sha256 for found in results}) < len(results):
        yield "Two of the models are the same adapter."
    if any(found.decoding != results[0].decoding for found in results):
        yield "The models were evaluated under different settings of config/evaluation.yaml."
    if is_served:
        yield "An adapter is scored as served: a constrained second try replaces the first one."
    for name, some in completions.items():
        eval_suite = [completion for completion in some if completion.suite not in FAMILIES]
        num_asked = len({completion.score.task for completion in eval_suite})
        if num_asked != num_tasks:
            yield f"{name} completed {num_asked} tasks; only the {num_tasks} that all completed count."
        if len(eval_suite) != num_asked:
            yield f"{name} has {len(eval_suite) / num_asked:g} completions per task; figures are means over them."


_RATES: Final = {
    "held-out parse rate": (Suite.HELDOUT, "parse_rate"),
    "benchmark parse rate": (Suite.BENCHMARK, "parse_rate"),
    "hidden tests, held out": (Suite.HELDOUT, "test_rate"),
    "hidden tests, benchmark": (Suite.BENCHMARK, "test_rate"),
}
_NAMED: Final = "recipe "
"""Prefix of the name of a recipe in the origin of a value."""
_MOST_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class LeaderboardEntry:
    """An adapter with its newest verdict, the commit of the pipeline, and the machine that trained it."""

    manifest: TrainingManifest
    results: EvalResults
    receipt: Receipt
    commit: str | None
    machine: str

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key: tasks whose hidden tests pass, then completions that parse."""
        overall = self.results.adapter.overall
        return overall.test_rate.value or 0.0, overall.parse_rate.value or 0.0

    @property
    def recipe(self) -> str:
        """The named recipes, else the preset."""
        origins = set(self.manifest.recipe_origins.values())
        named = sorted(origin.removeprefix(_NAMED) for origin in origins if origin.startswith(_NAMED))
        return ", ".join(named) or self.manifest.preset or "none"

    def find_rate(self, suite: Suite, name: str) -> Rate | None:
        """Return a rate of a suite; None if the suite was not evaluated."""
        suites = self.results.adapter.suites
        return getattr(suites[suite], name) if suite in suites else None

    @property
    def evaluated(self) -> datetime:
        """When the verdict was given."""
        return datetime.fromtimestamp(self.receipt.timestamp_unix, UTC)

    def cells(self) -> dict[str, str]:
        """Format the entry for people, by column."""
        manifest, result = self.manifest, self.manifest.result
        steps = f"{result.num_steps} of " if result.num_steps != result.planned_steps else ""
        return {
            "recipe": plain(self.recipe),
            "base": plain(base_name(manifest.base_model)),
            "training": f"{steps}{result.planned_steps} steps, {result.seconds / 60:.1f} min",
            **{head: str(self.find_rate(*rate) or "not evaluated") for head, rate in _RATES.items()},
            "verdict": str(self.receipt.status),
            "commit of data": (manifest.vcs_sha or "unknown")[:12],
            "commit of pipeline": self.commit[:12] if self.commit else "not on record",
            "evaluated": f"{self.evaluated:%Y-%m-%d}",
            "machine": plain(self.machine),
        }

    def figures(self) -> dict[str, Any]:
        """Return the entry for programs, by column: shares from 0 to 1, None for unknown values."""
        result = self.manifest.result
        return {
            "adapter_sha256": self.results.subject.adapter_sha256,
            "recipe": self.recipe,
            "base": base_name(self.manifest.base_model),
            "steps": result.num_steps,
            "planned_steps": result.planned_steps,
            "minutes": result.seconds / 60,
            **{"_".join(rate): (found := self.find_rate(*rate)) and found.value for rate in _RATES.values()},
            "verdict": str(self.receipt.status),
            "commit_of_data": self.manifest.vcs_sha,
            "commit_of_pipeline": self.commit,
            "evaluated": self.evaluated,
            "machine": self.machine,
        }


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The entries of a store, the best first; `num_without` counts verdicts with unreadable figures."""

    entries: tuple[LeaderboardEntry, ...]
    num_without: int

    def format(self) -> str:
        """Format the leaderboard as a table in Markdown."""
        lines = [entry.cells() for entry in self.entries]
        table = markdown_table([*lines[0]], ([*line.values()] for line in lines)) if lines else ()
        note = [f"\n{self.num_without} more verdicts have figures that this version cannot read."]
        return "\n".join([*table, *(note if self.num_without else [])]) + "\n"

    def write(self, path: Path) -> None:
        """Write the figures as `.csv` or `.parquet`; refuse (`ConfigurationError`) other endings and failing writes."""
        import pandas as pd

        frame = pd.DataFrame([entry.figures() for entry in self.entries])
        writers = {".csv": partial(frame.to_csv, index=False), ".parquet": frame.to_parquet}
        if path.suffix not in writers:
            raise ConfigurationError(f"{path}: expected a name that ends with .csv or .parquet. Name another file.")
        with replacing(path) as target:
            writers[path.suffix](target)


def read_leaderboard(store: ArtifactStore) -> Leaderboard:
    """Read the newest verdict on each adapter of a store; refuse (`RefusedError`) a store without any."""
    keys = sorted(path.parent.name for path in (store.root / Kind.BENCHMARK_GATE).glob(f"*/{STORE_MANIFEST}"))
    gates = [gate for key in keys if (gate := store.get(Kind.BENCHMARK_GATE, key)) is not None]
    if not gates:
        raise RefusedError(f"{store.root}: no adapter has been evaluated yet. Run `mens run`.")
    newest: dict[str, LeaderboardEntry] = {}
    num_without = 0
    for gate in gates:
        entry = _read_entry(gate, store)
        if entry is None:
            num_without += 1
            continue
        sha256 = entry.results.subject.adapter_sha256
        if sha256 not in newest or newest[sha256].receipt.timestamp_unix <= entry.receipt.timestamp_unix:
            newest[sha256] = entry
    entries = sorted(newest.values(), key=lambda entry: entry.rank, reverse=True)
    return Leaderboard(tuple(entries), num_without)


def _read_entry(gate: Artifact, store: ArtifactStore) -> LeaderboardEntry | None:
    """Read a verdict; None if documents are missing, or another version wrote them."""
    results = read_results(gate.file(RESULTS))
    try:
        manifest, receipt = TrainingManifest.read(gate.file(MANIFEST)), receipt_in(gate.path)
    except RefusedError:  # counted below the table
        return None
    if results is None:
        return None
    return LeaderboardEntry(manifest, results, receipt, gate.manifest.get(PIPELINE_COMMIT), _find_machine(gate, store))


def _find_machine(gate: Artifact, store: ArtifactStore) -> str:
    refs = [ref for ref in gate.parents if ref.kind == Kind.QLORA_ADAPTER]
    adapter = store.get(Kind.QLORA_ADAPTER, refs[0].key) if refs else None
    if adapter is None or not adapter.file(PREFLIGHT).is_file():
        return "not on record"
    try:
        return str(read_object(adapter.file(PREFLIGHT), _MOST_BYTES, "")["device"]["name"])
    except (RefusedError, LookupError, TypeError):  # damaged, or of another version
        return "not on record"
