"""Models side by side: one table of figures, with what a model differs from the first one, and how far by chance.

Reports, `mens compare`, `mens eval-local`, the choice of the best adapter and the metadata of Dagster all show it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mens_pipeline.evaluation.results import BestOf, BestOfScores, EvalResults, ScoredCompletion
from mens_pipeline.evaluation.scores import ModelScores, Score, Scores
from mens_pipeline.evaluation.statistics import Rate, compare_paired, p_text
from mens_pipeline.evaluation.tasks import FAMILIES, Suite

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
    """What is counted of completions.

    Attributes:
        rate: Its figure among scores; None where they have none.
        holds: What is compared completion by completion; None of it where the prompt does not ask. Without it,
            differences are not tested.
        better: 1 where more is better, -1 where less is.
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
        "It parses, and nothing is known to be wrong with its names and types.",
        lambda s: s.resolve_rate,
        lambda j: j.resolves,
    ),
    Measure(
        PASS_AT_1,
        "Complete Vox of the kind and name asked for that meets all that is required.",
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
        "right construct", "It declares what was asked for.", lambda s: s.construct_rate, lambda j: j.has_construct
    ),
    Measure("right name", "Under the name asked for, where one was.", lambda s: s.name_rate, lambda j: j.has_name),
    Measure("stubs", "A placeholder stands where code should.", lambda s: s.stub_rate, lambda j: j.stub, -1),
    Measure("empty", "Nothing was written.", lambda s: s.empty_rate, lambda j: j.empty, -1),
    Measure("refusals", "It says that it cannot.", lambda s: s.refusal_rate, lambda j: j.refusal, -1),
    Measure("duplicates", "The same program completes another prompt.", lambda s: s.duplicate_rate, better=-1),
)
_CHOSEN: Final[Mapping[str, Callable[[BestOfScores], Rate]]] = {
    "": lambda s: s.pass_rate,
    ", hidden tests": lambda s: s.test_rate,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One model.

    Attributes:
        scores: Over the prompts of the eval suites.
        completions: Its completions, as far as they are kept.
        families: Its scores on synthetic tasks, which are part of no other figure.
        best_of: Its scores where one of several completions is chosen.
    """

    name: str
    scores: ModelScores
    completions: Sequence[ScoredCompletion] = ()
    families: Mapping[str, Scores] = field(default_factory=dict)
    best_of: BestOf | None = None

    def scores_in(self, suite: Suite | None) -> Scores | None:
        """Return the scores over one suite, or over all; None where it was not asked."""
        return self.scores.overall if suite is None else {**self.scores.suites, **self.families}.get(suite)

    def outcomes(self, measure: Measure, suite: Suite | None) -> dict[str, bool]:
        """Return whether the first completion of each prompt does what a measure counts."""
        found = {}
        for completion in self.completions:
            is_asked = completion.suite == suite if suite is not None else completion.suite not in FAMILIES
            if measure.holds is not None and is_asked and completion.score.sample == 0:
                found[completion.score.task] = measure.holds(completion.score)
        return {task: holds for task, holds in found.items() if holds is not None}


@dataclass(frozen=True, slots=True)
class Difference:
    """A model less the first one, over the `num_tasks` prompts that both were asked.

    `p_value` is the chance of a difference at least as large between equal models, by the exact paired test over first
    completions; `tone` is good or bad where that is small.
    """

    value: float
    p_value: float
    num_tasks: int
    tone: Tone

    def __str__(self) -> str:
        """Format for people: `+50.0 points (p < 0.001)`."""
        return f"{points(self.value)} ({p_text(self.p_value)})"


@dataclass(frozen=True, slots=True)
class Cell:
    """A measure of a model; `rate` is None where it is no rate, or where the model was not asked."""

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
class Row:
    """A measure over the prompts of a suite, or over all where `suite` is None; a cell for each model.

    `is_detail`: such a row stands over all prompts alone, not suite by suite.
    """

    suite: Suite | None
    label: str
    meaning: str
    cells: tuple[Cell, ...]
    is_detail: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Models, and what is measured of them; what no model was asked for is left out."""

    models: tuple[str, ...]
    rows: tuple[Row, ...]

    def row(self, label: str) -> Row:
        """Return a measure over all prompts."""
        return next(row for row in self.rows if row.label == label)

    def lines(self) -> list[tuple[str, ...]]:
        """Format each row, with intervals, and behind each model but the first its difference."""
        others = [text for name in self.models[1:] for text in (name, f"less {self.models[0]}")]
        lines = [("suite", "figure", self.models[0], *others)]
        for suite, row in _with_suites(self.rows):
            first, *rest = row.cells
            texts = [text for cell in rest for text in (str(cell), str(cell.difference or ""))]
            lines.append((suite, row.label, str(first), *texts))
        return lines

    def lines_by_suite(self) -> list[tuple[str, ...]]:
        """Format what is measured suite by suite, with intervals and without differences."""
        rows = _with_suites(row for row in self.rows if row.suite is not None and not row.is_detail)
        return [("suite", "figure", *self.models), *((suite, row.label, *map(str, row.cells)) for suite, row in rows)]


def _with_suites(rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    """Yield each row with the name of its suite, empty but for the first row of that suite."""
    last = ""
    for row in rows:
        suite = row.suite or "all"
        yield (suite if suite != last else ""), row
        last = suite


def table_of(columns: Sequence[Column]) -> Table:
    """Lay models side by side; the first is what the others are compared with."""
    suites = [*dict.fromkeys(Suite(suite) for column in columns for suite in column.scores.suites)]
    families = [*dict.fromkeys(Suite(suite) for column in columns for suite in column.families)]
    whole = suites[0] if len(suites) == 1 else None  # all there is stands there once
    rows = [*_rows(columns, whole), *_detail_rows(columns, whole)]
    for suite in (*(suites if whole is None else ()), *families):
        rows += _rows(columns, suite)
    return Table(tuple(column.name for column in columns), tuple(rows))


def columns_of(results: EvalResults, completions: Iterable[ScoredCompletion] = ()) -> tuple[Column, ...]:
    """Return the models of an evaluation, the base first; the completions of the champion are not kept."""
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
    """Return the completions of an adapter, second tries, constrained by the parser, in the place of first ones."""
    second = {(a.score.task, a.score.sample): a for a in completions if a.model == "fallback"}
    own = (completion for completion in completions if completion.model == "adapter")
    return tuple(second.get((a.score.task, a.score.sample), a) for a in own)


def points(difference: float) -> str:
    """Format a difference of two shares in percentage points."""
    return f"{100 * difference:+.1f} points"


def _rows(columns: Sequence[Column], suite: Suite | None) -> Iterator[Row]:
    """Yield the main measures, pass@k for every number of samples, and best-of-n of what is served."""
    scores = [found for column in columns if (found := column.scores_in(suite)) is not None]
    numbers = sorted({number for found in scores for number in found.pass_at} - {1})
    for measure in (*_MAIN, *map(_pass_at, numbers), _TESTED):
        yield from _measure(columns, suite, measure)
    for number in sorted({column.best_of.n for column in columns if column.best_of is not None}):
        meaning = f"Of {number} completions the one chosen by parser, names, the examples of the prompt, likelihood."
        for label, rate in _CHOSEN.items():
            chosen = [_find_chosen(column.best_of, suite) for column in columns]
            rates = [rate(found) if found is not None else None for found in chosen]
            if any(found is not None and found.denominator for found in rates):
                yield Row(suite, f"best-of-{number}{label}", meaning, tuple(map(rate_cell, rates)))


def _detail_rows(columns: Sequence[Column], suite: Suite | None) -> Iterator[Row]:
    for measure in _DETAILS:
        yield from _measure(columns, suite, measure, is_detail=True)
    meaning = "Constructs of the language that accepted completions show."
    found = [column.scores.overall.coverage for column in columns]
    shares = [f"{len(c.present)}/{len(c.present) + len(c.missing)} ({100 * c.share:.1f} %)" for c in found]
    yield Row(suite, "coverage", meaning, tuple(map(Cell, shares)), is_detail=True)
    cells = tuple(Cell(f"{column.scores.overall.mean_tokens:.1f}") for column in columns)
    yield Row(suite, "mean tokens", "Length of a completion.", cells, is_detail=True)


def _pass_at(number: int) -> Measure:
    meaning = f"At least one of {number} completions passes."
    return Measure(f"pass@{number}", meaning, lambda scores: scores.pass_at.get(number))


def _find_chosen(best_of: BestOf | None, suite: Suite | None) -> BestOfScores | None:
    if best_of is None:
        return None
    return best_of.overall if suite is None else best_of.suites.get(suite)


def _measure(
    columns: Sequence[Column], suite: Suite | None, measure: Measure, *, is_detail: bool = False
) -> Iterator[Row]:
    """Yield the row of a measure, unless no model was asked for it."""
    scores = [column.scores_in(suite) for column in columns]
    rates = [measure.rate(found) if found is not None else None for found in scores]
    if not any(rate is not None and rate.denominator for rate in rates):
        return
    baseline, *others = (column.outcomes(measure, suite) for column in columns)
    differences = [None, *(_difference(measure, baseline, outcomes) for outcomes in others)]
    yield Row(suite, measure.label, measure.meaning, tuple(map(rate_cell, rates, differences)), is_detail)


def _difference(measure: Measure, first: Mapping[str, bool], second: Mapping[str, bool]) -> Difference | None:
    both = [task for task in second if task in first]
    if not both:
        return None
    test, tone = compare_paired([first[task] for task in both], [second[task] for task in both]), Tone.OPEN
    if test.p_value < _SIGNIFICANT and test.difference:
        tone = Tone.GOOD if test.difference * measure.better > 0 else Tone.BAD
    return Difference(test.difference, test.p_value, test.num_tasks, tone)


def rate_cell(rate: Rate | None, difference: Difference | None = None) -> Cell:
    """Return the cell of a rate; an empty one where nothing was asked."""
    return Cell() if rate is None or not rate.denominator else Cell(rate.short, rate, difference)
