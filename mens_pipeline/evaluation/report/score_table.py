"""The figures of base, adapter and champion side by side, and what their differences are worth."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.report.verdict import Tone
from mens_pipeline.evaluation.results import EvalResults, JudgedAnswer
from mens_pipeline.evaluation.scores import ModelScores, Scores
from mens_pipeline.evaluation.statistics import Paired, Rate, p_text, paired
from mens_pipeline.evaluation.tasks import Suite

_SIGNIFICANT: Final = 0.05
_BEFORE_AT_K: Final = "Benchmark pass@1"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one model.

    Attributes:
        text: As people read it.
        rate: What its bar shows; None for a figure that is no rate.
    """

    text: str
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One figure of all models.

    Attributes:
        label: What it is.
        meaning: In a sentence.
        cells: Base, adapter, and the champion if there is one.
        difference: Adapter less base.
        p_value: Of the difference; empty where there is no test for it.
        tone: Good or bad where chance hardly explains the difference.
    """

    label: str
    meaning: str
    cells: tuple[Cell, ...]
    difference: str
    p_value: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class _Figure:
    label: str
    meaning: str
    rate: Callable[[Scores], Rate]
    holds: Callable[[Judgement], bool | None] | None
    """What is compared answer by answer; None of it where the task does not ask. No comparison without."""
    suite: Suite | None = None
    better: int = 1


_FIGURES: Final = (
    _Figure("Parse rate", "The front end accepts the answer.", lambda s: s.parse_rate, lambda j: j.parses),
    _Figure(
        "Parse rate, held-out requests",
        "On what the workspace itself contains; the gate looks at this one.",
        lambda s: s.parse_rate,
        lambda j: j.parses,
        Suite.HELDOUT,
    ),
    _Figure(
        "pass@1",
        "Complete Vox of the kind and name asked for that meets all that is required.",
        lambda s: s.pass_at_1,
        lambda j: j.passed,
    ),
    _Figure(
        _BEFORE_AT_K,
        "The same, on the requests written to judge by.",
        lambda s: s.pass_at_1,
        lambda j: j.passed,
        Suite.BENCHMARK,
    ),
    _Figure(
        "Hidden tests",
        "The program was run, and all tests pass; over requests that have tests.",
        lambda s: s.test_rate,
        lambda j: (j.execution is not None and j.execution.passed) if j.has_tests else None,
        Suite.BENCHMARK,
    ),
    _Figure("Ends by itself", "The answer ended before the limit.", lambda s: s.stop_rate, lambda j: j.stopped),
    _Figure(
        "Right construct", "It declares what was asked for.", lambda s: s.construct_rate, lambda j: j.has_construct
    ),
    _Figure("Right name", "Under the name asked for, where one was.", lambda s: s.name_rate, lambda j: j.has_name),
    _Figure("Stubs", "A placeholder stands where code should.", lambda s: s.stub_rate, lambda j: j.stub, better=-1),
    _Figure("Duplicates", "The same program answers another request.", lambda s: s.duplicate_rate, None, better=-1),
)


def score_rows(results: EvalResults, answers: Sequence[JudgedAnswer]) -> Iterator[ScoreRow]:
    """The rows of the table.

    Args:
        results: The figures.
        answers: The answers that they were made from.

    Returns:
        One row for each figure that was measured; that of a suite only where it was run.
    """
    models = [results.base, results.adapter, *([results.champion.scores] if results.champion else [])]
    for figure in _figures_of(models):
        if all(_is_measured(figure, model) for model in models):
            yield _rate_row(figure, models, answers)
    yield _coverage_row(models)
    tokens = [model.overall.mean_tokens for model in models]
    cells = tuple(Cell(f"{mean:.1f}") for mean in tokens)
    yield ScoreRow("Mean tokens", "Length of an answer.", cells, f"{tokens[1] - tokens[0]:+.1f}", "", Tone.OPEN)


def points(difference: float) -> str:
    """A difference of two shares as people read it.

    Args:
        difference: -1 to 1.
    """
    return f"{100 * difference:+.1f} points"


def _is_measured(figure: _Figure, model: ModelScores) -> bool:
    """Whether a model was asked for what a figure is about."""
    return figure.suite is None or figure.suite in model.suites


def _figures_of(models: Sequence[ModelScores]) -> Iterator[_Figure]:
    """The figures, with pass@k for every number of samples but one that all models have."""
    numbers = [set(model.suites[Suite.BENCHMARK].pass_at) for model in models if Suite.BENCHMARK in model.suites]
    for figure in _FIGURES:
        yield figure
        if figure.label == _BEFORE_AT_K and numbers:
            for number in sorted(set.intersection(*numbers) - {1}):
                meaning = f"At least one of {number} answers passes."
                yield _Figure(f"Benchmark pass@{number}", meaning, _pass_at(number), None, Suite.BENCHMARK)


def _pass_at(number: int) -> Callable[[Scores], Rate]:
    return lambda scores: scores.pass_at[number]


def _rate_row(figure: _Figure, models: Sequence[ModelScores], answers: Iterable[JudgedAnswer]) -> ScoreRow:
    rates = [figure.rate(_scores(model, figure.suite)) for model in models]
    cells = tuple(Cell(rate.short, rate) for rate in rates)
    base, adapter = rates[0].value, rates[1].value
    if base is None or adapter is None:
        return ScoreRow(figure.label, figure.meaning, cells, "", "", Tone.OPEN)
    test = _test(figure, answers)
    is_clear = test is not None and test.p_value < _SIGNIFICANT and adapter != base
    tone = (Tone.GOOD if (adapter - base) * figure.better > 0 else Tone.BAD) if is_clear else Tone.OPEN
    p_value = p_text(test.p_value) if test is not None else ""
    return ScoreRow(figure.label, figure.meaning, cells, points(adapter - base), p_value, tone)


def _scores(model: ModelScores, suite: Suite | None) -> Scores:
    return model.overall if suite is None else model.suites[suite]


def _test(figure: _Figure, answers: Iterable[JudgedAnswer]) -> Paired | None:
    """The exact test over the first answers to the requests that both models were asked."""
    if figure.holds is None:
        return None
    outcomes: dict[str, dict[str, bool]] = {"base": {}, "adapter": {}}
    for answer in answers:
        judgement = answer.judgement
        holds = figure.holds(judgement)
        if judgement.sample == 0 and holds is not None and figure.suite in {None, answer.suite}:
            outcomes[answer.model][judgement.task] = holds
    base, adapter = outcomes["base"], outcomes["adapter"]
    both = [task for task in adapter if task in base]
    return paired([base[task] for task in both], [adapter[task] for task in both]) if both else None


def _coverage_row(models: Sequence[ModelScores]) -> ScoreRow:
    found = [model.overall.coverage for model in models]
    cells = tuple(
        Cell(f"{len(c.present)}/{len(c.present) + len(c.missing)} ({100 * c.share:.1f} %)", _exact(c.share))
        for c in found
    )
    meaning = "Constructs of the language that accepted answers show."
    return ScoreRow("Coverage", meaning, cells, points(found[1].share - found[0].share), "", Tone.OPEN)


def _exact(share: float) -> Rate:
    """A share that was counted, not sampled: its interval is the share itself."""
    return Rate(numerator=share, denominator=1, value=share, low=share, high=share)
