"""Two adapters side by side: scores, what their differences are worth, and every prompt with both answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mens_pipeline.evaluation.results import EvalResults, JudgedAnswer
from mens_pipeline.evaluation.statistics import Rate, p_text
from mens_pipeline.promotion.report.answers import TaskView, task_views
from mens_pipeline.promotion.report.page import rendered
from mens_pipeline.promotion.report.score_table import (
    Figure,
    figures_of,
    is_measured,
    outcomes_of,
    paired_over,
    points,
    scores_in,
    tone_of,
)
from mens_pipeline.promotion.report.verdict import Tone

_GROUPS: Final = {
    (False, True): "Only the second passes",
    (True, False): "Only the first passes",
    (False, False): "Neither passes",
    (True, True): "Both pass",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One of two adapters.

    Attributes:
        verdict: What the gate said, if it was asked.
    """

    name: str
    results: EvalResults
    answers: Sequence[JudgedAnswer]
    verdict: str = "not judged"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One figure of both.

    Attributes:
        difference: Second less first, over the prompts that both were asked.
        p_value: Of the difference; empty where there is no test for it.
        num_tasks: Prompts that were compared.
        tone: Good where the second is better and chance hardly explains it.
    """

    label: str
    meaning: str
    rates: tuple[Rate, Rate]
    difference: str
    p_value: str
    num_tasks: int
    tone: Tone


@dataclass(frozen=True, slots=True)
class ComparedTasks:
    """Prompts of which the same is to be said.

    Attributes:
        pairs: The prompt as the first and as the second adapter answered it.
        is_open: Whether the answers are shown at once.
    """

    title: str
    pairs: tuple[tuple[TaskView, TaskView], ...]
    is_open: bool


def shared_answers(first: Side, second: Side) -> tuple[list[JudgedAnswer], list[JudgedAnswer]]:
    """Return the answers of both to the prompts that both were asked, in the same words."""
    prompts = [{a.judgement.task: a.prompt for a in side.answers if a.model == "adapter"} for side in (first, second)]
    shared = {task for task, prompt in prompts[0].items() if prompts[1].get(task) == prompt}
    kept = [[a for a in side.answers if a.judgement.task in shared] for side in (first, second)]
    return kept[0], kept[1]


def compared_rows(first: Side, second: Side) -> tuple[ComparedRow, ...]:
    """Return the rows of the table: each figure that both have, with the exact paired test over shared prompts."""
    answers = shared_answers(first, second)
    models = [side.results.adapter for side in (first, second)]
    measured = (figure for figure in figures_of(models) if all(is_measured(figure, model) for model in models))
    return tuple(_row(figure, (first, second), answers) for figure in measured)


def _row(
    figure: Figure, sides: tuple[Side, Side], answers: tuple[Sequence[JudgedAnswer], Sequence[JudgedAnswer]]
) -> ComparedRow:
    rates = tuple(_rate(figure, side) for side in sides)
    test = paired_over(*(outcomes_of(figure, some, "adapter") for some in answers))
    if test is None:
        return ComparedRow(figure.label, figure.meaning, (rates[0], rates[1]), "", "", 0, Tone.OPEN)
    tone, told = tone_of(figure, test.difference, test.p_value), (points(test.difference), p_text(test.p_value))
    return ComparedRow(figure.label, figure.meaning, (rates[0], rates[1]), *told, test.num_tasks, tone)


def _rate(figure: Figure, side: Side) -> Rate:
    scores = scores_in(side.results.adapter, figure.suite)
    assert scores is not None, "only measured figures are rows"  # noqa: S101 - our own impossibility
    return figure.rate(scores)


def compared_tasks(first: Side, second: Side) -> tuple[ComparedTasks, ...]:
    """Return the prompts that both were asked, by which of them passes; those where they differ come first."""
    one, other = ({view.id: view for view in task_views(some)} for some in shared_answers(first, second))
    found: dict[tuple[bool, bool], list[tuple[TaskView, TaskView]]] = {key: [] for key in _GROUPS}
    for task, view in one.items():
        found[view.adapter.passed, other[task].adapter.passed].append((view, other[task]))
    return tuple(
        ComparedTasks(title, tuple(found[key]), is_open=key[0] is not key[1]) for key, title in _GROUPS.items()
    )


def notes_on(first: Side, second: Side) -> tuple[str, ...]:
    """Return what a reader must know of a comparison, a sentence each."""
    notes = []
    one, other = first.results, second.results
    if one.subject.adapter_sha256 == other.subject.adapter_sha256:
        notes.append("Both are the same adapter.")
    shared = len({answer.judgement.task for answer in shared_answers(first, second)[0]})
    asked = [results.adapter.overall.num_tasks for results in (one, other)]
    if asked != [shared, shared]:
        notes.append(
            f"They were asked {asked[0]} and {asked[1]} prompts; differences are over the {shared} that both were."
        )
    if one.decoding != other.decoding:
        notes.append("They answered under different settings of config/evaluation.yaml.")
    return tuple(notes)


def compare_page(first: Side, second: Side) -> str:
    """Render the page of a comparison."""
    return rendered(
        "compare.html.jinja",
        sides=(first, second),
        rows=compared_rows(first, second),
        groups=compared_tasks(first, second),
        notes=notes_on(first, second),
    )
