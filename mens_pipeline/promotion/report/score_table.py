"""The figures of all models side by side, and what their differences are worth."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.results import AnsweringModel, BestOf, EvalResults, JudgedAnswer
from mens_pipeline.evaluation.scores import ModelScores, Scores
from mens_pipeline.evaluation.statistics import Paired, Rate, p_text, paired
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.promotion.report.verdict import Tone

_SIGNIFICANT: Final = 0.05
_OVERALL: Final = "pass@1"
_BEFORE_AT_K: Final = "Benchmark pass@1"
_FAMILIES: Final = {
    Suite.NEW_CONSTANTS: "New constants of a task that it was trained on",
    Suite.UNKNOWN_TASK: "A task of a family that never trained",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one model.

    Attributes:
        rate: What its bar shows; None for a figure that is no rate.
    """

    text: str
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One figure of all models.

    Attributes:
        cells: Of the models in the order of `models_of`.
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
class Figure:
    """One figure of a model, and what of an answer it counts.

    Attributes:
        holds: What is compared answer by answer; None of it where the task does not ask. No comparison without.
        suite: Which prompts it is over; None for all.
        better: 1 where more is better, -1 where less is.
        only_tested: Whether it is over prompts with hidden tests alone.
    """

    label: str
    meaning: str
    rate: Callable[[Scores], Rate]
    holds: Callable[[Judgement], bool | None] | None
    suite: Suite | None = None
    better: int = 1
    only_tested: bool = False


def _tests(label: str, meaning: str, suite: Suite | None = None) -> Figure:
    return Figure(
        label,
        meaning,
        lambda s: s.test_rate,
        lambda j: j.passes_tests if j.has_tests else None,
        suite,
        only_tested=True,
    )


FIGURES: Final = (
    Figure("Parse rate", "The front end accepts the answer.", lambda s: s.parse_rate, lambda j: j.parses),
    Figure(
        "Parse rate, held-out prompts",
        "On what the workspace itself contains; its gate looks at this one.",
        lambda s: s.parse_rate,
        lambda j: j.parses,
        Suite.HELDOUT,
    ),
    Figure(
        "Resolve rate",
        "It parses, and nothing is known to be wrong with its names and types.",
        lambda s: s.resolve_rate,
        lambda j: j.resolves,
    ),
    Figure(
        "Resolve rate, held-out prompts",
        "The same, on what the workspace itself contains; a gate of its own looks at this one.",
        lambda s: s.resolve_rate,
        lambda j: j.resolves,
        Suite.HELDOUT,
    ),
    Figure(
        _OVERALL,
        "Complete Vox of the kind and name asked for that meets all that is required.",
        lambda s: s.pass_at_1,
        lambda j: j.passed,
    ),
    Figure(
        _BEFORE_AT_K,
        "The same, on the prompts written to judge by.",
        lambda s: s.pass_at_1,
        lambda j: j.passed,
        Suite.BENCHMARK,
    ),
    _tests("Hidden tests", "The program was run, and all tests pass; over all prompts that have tests."),
    _tests("Hidden tests, held-out prompts", "On functions of the workspace itself.", Suite.HELDOUT),
    _tests("Hidden tests, benchmark", "On the prompts written to judge by.", Suite.BENCHMARK),
    Figure("Ends by itself", "The answer ended before the limit.", lambda s: s.stop_rate, lambda j: j.stopped),
    Figure("Right construct", "It declares what was asked for.", lambda s: s.construct_rate, lambda j: j.has_construct),
    Figure("Right name", "Under the name asked for, where one was.", lambda s: s.name_rate, lambda j: j.has_name),
    Figure("Stubs", "A placeholder stands where code should.", lambda s: s.stub_rate, lambda j: j.stub, better=-1),
    Figure("Duplicates", "The same program answers another prompt.", lambda s: s.duplicate_rate, None, better=-1),
)


def models_of(results: EvalResults) -> dict[str, ModelScores]:
    """Return the models that have figures, in the order of the columns of the table.

    Returns:
        What a column is called -> its figures: base, base with examples, adapter, adapter with the fallback, champion;
        the second is of a sample of the prompts.
    """
    models = {"Base": results.base}
    if results.few_shot is not None:
        asked = results.few_shot.scores.overall.num_tasks
        models[f"Base with examples, {asked} prompts"] = results.few_shot.scores
    models["Adapter"] = results.adapter
    if results.fallback is not None:
        models["Adapter with fallback"] = results.fallback.scores
    if results.champion is not None:
        models["Champion"] = results.champion.scores
    return models


def score_rows(results: EvalResults, answers: Sequence[JudgedAnswer]) -> Iterator[ScoreRow]:
    """Yield the rows of the table.

    Returns:
        One row for each figure that was measured; that of a suite only where base and adapter were asked it, and of
        hidden tests only where there are any.
    """
    models = list(models_of(results).values())
    both = (results.base, results.adapter)
    for figure in figures_of(models):
        if all(is_measured(figure, model) for model in both):
            yield _rate_row(figure, models, both, answers)
        if figure.label in {_OVERALL, _BEFORE_AT_K} and results.best_of is not None:
            yield from _best_of_row(results, results.best_of, figure.suite)
    yield _coverage_row(models, both)
    tokens = [model.overall.mean_tokens for model in both]
    cells = tuple(Cell(f"{model.overall.mean_tokens:.1f}") for model in models)
    yield ScoreRow("Mean tokens", "Length of an answer.", cells, f"{tokens[1] - tokens[0]:+.1f}", "", Tone.OPEN)


def family_rows(results: EvalResults) -> tuple[tuple[str, Scores], ...]:
    """Return the display names of the synthetic suites that the adapter was asked, with its figures."""
    return tuple((_FAMILIES[Suite(suite)], scores) for suite, scores in results.families.items())


def points(difference: float) -> str:
    """Format a difference of two shares in percentage points."""
    return f"{100 * difference:+.1f} points"


def is_measured(figure: Figure, model: ModelScores) -> bool:
    """Return whether a model was asked for what a figure is about; no figure of tests is shown where there are none."""
    scores = scores_in(model, figure.suite)
    return scores is not None and (not figure.only_tested or scores.test_rate.denominator > 0)


def figures_of(models: Sequence[ModelScores]) -> Iterator[Figure]:
    """Yield the figures, with pass@k for every number of samples but one that all models have."""
    numbers = [set(model.suites[Suite.BENCHMARK].pass_at) for model in models if Suite.BENCHMARK in model.suites]
    for figure in FIGURES:
        yield figure
        if figure.label == _BEFORE_AT_K and numbers:
            for number in sorted(set.intersection(*numbers) - {1}):
                meaning = f"At least one of {number} answers passes."
                yield Figure(f"Benchmark pass@{number}", meaning, _pass_at(number), None, Suite.BENCHMARK)


def _pass_at(number: int) -> Callable[[Scores], Rate]:
    return lambda scores: scores.pass_at[number]


def _rate_row(
    figure: Figure,
    models: Iterable[ModelScores],
    both: tuple[ModelScores, ModelScores],
    answers: Sequence[JudgedAnswer],
) -> ScoreRow:
    cells = tuple(_cell(figure, model) for model in models)
    base, adapter = (_value(figure, model) for model in both)
    if base is None or adapter is None:
        return ScoreRow(figure.label, figure.meaning, cells, "", "", Tone.OPEN)
    test = _test(figure, answers)
    tone = tone_of(figure, adapter - base, test.p_value) if test is not None else Tone.OPEN
    p_value = p_text(test.p_value) if test is not None else ""
    return ScoreRow(figure.label, figure.meaning, cells, points(adapter - base), p_value, tone)


def tone_of(figure: Figure, difference: float, p_value: float) -> Tone:
    """Return whether a difference is good or bad; open where chance explains it well enough."""
    if p_value >= _SIGNIFICANT or difference == 0:
        return Tone.OPEN
    return Tone.GOOD if difference * figure.better > 0 else Tone.BAD


def _cell(figure: Figure, model: ModelScores) -> Cell:
    """Return the cell with a figure of a model; a dash where it was not asked for it."""
    scores = scores_in(model, figure.suite)
    if scores is None:
        return Cell("\u2013")
    rate = figure.rate(scores)
    return Cell(rate.short, rate)


def _value(figure: Figure, model: ModelScores) -> float | None:
    scores = scores_in(model, figure.suite)
    return figure.rate(scores).value if scores is not None else None


def scores_in(model: ModelScores, suite: Suite | None) -> Scores | None:
    """Return the scores over one suite, or over all; None where it was not asked."""
    return model.overall if suite is None else model.suites.get(suite)


def _test(figure: Figure, answers: Sequence[JudgedAnswer]) -> Paired | None:
    """Compute the exact test over the first completions of the prompts that both models were asked."""
    return paired_over(outcomes_of(figure, answers, "base"), outcomes_of(figure, answers, "adapter"))


def outcomes_of(figure: Figure, answers: Iterable[JudgedAnswer], model: AnsweringModel) -> dict[str, bool]:
    """Return whether the first answer of a model does what a figure counts, by prompt."""
    outcomes = {}
    for answer in answers:
        is_meant = answer.model == model and answer.judgement.sample == 0 and figure.suite in {None, answer.suite}
        holds = figure.holds(answer.judgement) if figure.holds is not None and is_meant else None
        if holds is not None:
            outcomes[answer.judgement.task] = holds
    return outcomes


def paired_over(first: Mapping[str, bool], second: Mapping[str, bool]) -> Paired | None:
    """Compare what two models do of the prompts that both were asked; None where there are none."""
    both = [task for task in second if task in first]
    return paired([first[task] for task in both], [second[task] for task in both]) if both else None


def _best_of_row(results: EvalResults, best_of: BestOf, suite: Suite | None) -> Iterator[ScoreRow]:
    """Return the figure of chosen answers, in the column of what is served; none of a suite that was not asked."""
    scores = best_of.overall if suite is None else best_of.suites.get(suite)
    if scores is None:
        return
    served = results.adapter if results.fallback is None else results.fallback.scores
    cell = Cell(scores.pass_rate.short, scores.pass_rate)
    cells = tuple(cell if model is served else Cell("\u2013") for model in models_of(results).values())
    label = f"{'Benchmark b' if suite is not None else 'B'}est-of-{best_of.n}"
    meaning = (
        f"Of {best_of.n} answers the one chosen by parser, names, the examples of the prompt, outputs, likelihood."
    )
    yield ScoreRow(label, meaning, cells, "", "", Tone.OPEN)


def _coverage_row(models: Iterable[ModelScores], both: tuple[ModelScores, ModelScores]) -> ScoreRow:
    found = [model.overall.coverage for model in models]
    cells = tuple(
        Cell(f"{len(c.present)}/{len(c.present) + len(c.missing)} ({100 * c.share:.1f} %)", _exact(c.share))
        for c in found
    )
    gain = both[1].overall.coverage.share - both[0].overall.coverage.share
    meaning = "Constructs of the language that accepted answers show."
    return ScoreRow("Coverage", meaning, cells, points(gain), "", Tone.OPEN)


def _exact(share: float) -> Rate:
    """Return the rate of a share that was counted, not sampled: its interval is the share itself."""
    # No posterior has an interval without width, so this is the one rate that is not checked against its own.
    return Rate.model_construct(
        numerator=share, denominator=1, value=share, num_units=1, num_effective=inf, low=share, high=share
    )
