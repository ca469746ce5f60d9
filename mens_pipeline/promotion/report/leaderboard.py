"""Several models on the same tasks of a benchmark: figures, what their differences are worth, and every answer."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, JudgedAnswer
from mens_pipeline.evaluation.statistics import Rate, mean_rate, p_text
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.evaluation.trial import TRIAL
from mens_pipeline.promotion.report.answers import TaskView, task_views
from mens_pipeline.promotion.report.page import rendered
from mens_pipeline.promotion.report.score_table import FIGURES, Figure, outcomes_of, paired_over, points, tone_of
from mens_pipeline.promotion.report.verdict import Tone
from mens_pipeline.storage.jsonl import models_in, open_rows

SHOWN: Final = tuple(figure for figure in FIGURES if figure.suite is None and figure.holds is not None)
"""Figures of a leaderboard: those that each answer shows by itself."""

RANKED_BY: Final = next(figure for figure in SHOWN if figure.label == "pass@1")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One model with its name and the judged answers that it is ranked by, under the name of an adapter."""

    name: str
    answers: tuple[JudgedAnswer, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """One model with its figures over the tasks that all were asked, in the order of SHOWN."""

    contestant: Contestant
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True)
class Duel:
    """One figure of two models over the same tasks.

    Attributes:
        difference: Rate of the second less that of the first.
        p_value: Of the exact paired test over first answers.
        tone: Good where the second is better and chance hardly explains it.
    """

    figure: str
    first: str
    second: str
    difference: float
    p_value: float
    tone: Tone


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Models by pass@1, the best first.

    Attributes:
        num_tasks: Tasks that all were asked in the same words.
        notes: What a reader must know, a sentence each.
    """

    standings: tuple[Standing, ...]
    num_tasks: int
    notes: tuple[str, ...]

    def duels(self, figure: Figure) -> Iterator[Duel]:
        """Yield each two models, the better ranked one as the second."""
        outcomes = [
            (standing.contestant.name, outcomes_of(figure, standing.contestant.answers, "adapter"))
            for standing in self.standings
        ]
        for place, (better, of_better) in enumerate(outcomes):
            for worse, of_worse in outcomes[place + 1 :]:
                test = paired_over(of_worse, of_better)
                if test is not None:
                    tone = tone_of(figure, test.difference, test.p_value)
                    yield Duel(figure.label, worse, better, test.difference, test.p_value, tone)


def answers_at(place: Path) -> Path | None:
    """Return the file of judged answers that a path is, or that the folder of a run or endpoint holds; None without.

    Raises:
        RefusedError: A folder holds both an exam and a trial.
    """
    if place.is_file():
        return place
    found = [place / name for name in (JUDGED_ANSWERS, TRIAL) if (place / name).is_file()]
    if len(found) > 1:
        raise RefusedError(f"{place}: holds {found[0].name} of an exam and {found[1].name} of a trial. Name one.")
    return found[0] if found else None


def read_contestant(path: Path) -> Contestant:
    """Read the judged answers of a model, called by its folder, or by the file where that has a name of its own.

    Raises:
        SourceNotFoundError: It cannot be read.
        RefusedError: A line is no judged answer.
    """
    advice = "Write it with `mens eval-local --trial`, or with --endpoint."
    with open_rows(path) as lines:
        answers = tuple(models_in(lines, path, JudgedAnswer, "judged answer", advice))
    return contestant(path.absolute().parent.name if path.name in {TRIAL, JUDGED_ANSWERS} else path.stem, answers)


def contestant(name: str, answers: Sequence[JudgedAnswer]) -> Contestant:
    """Return a model with its answers to a benchmark, second tries in the place of first ones, as a trial has them."""
    served: dict[tuple[str, int], JudgedAnswer] = {}
    for model in ("adapter", "fallback"):
        own = (answer for answer in answers if answer.model == model and answer.suite == Suite.BENCHMARK)
        served |= {(a.judgement.task, a.judgement.sample): a.model_copy(update={"model": "adapter"}) for a in own}
    return Contestant(name, tuple(served.values()))


def leaderboard(contestants: Sequence[Contestant]) -> Leaderboard:
    """Rank models over the tasks that all were asked in the same words.

    Raises:
        RefusedError: There is no such task, or two models have one name.
    """
    names = [found.name for found in contestants]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(f"found two models called {', '.join(twice)}. Copy one of the files to another name.")
    prompts = [{answer.judgement.task: answer.prompt for answer in found.answers} for found in contestants]
    shared = {task for task, prompt in prompts[0].items() if all(other.get(task) == prompt for other in prompts)}
    if not shared:
        told = ", ".join(f"{name} {len(asked)}" for name, asked in zip(names, prompts, strict=True))
        advice = "Ask each the same benchmark: `mens eval-local --trial --bench DIR`."
        raise RefusedError(f"found no task that all were asked (tasks: {told}). {advice}")
    standings = [_standing(found, shared) for found in contestants]
    place = SHOWN.index(RANKED_BY)
    standings.sort(key=lambda standing: (-(standing.rates[place].value or 0.0), standing.contestant.name))
    return Leaderboard(tuple(standings), len(shared), tuple(_notes(contestants, prompts, shared)))


def _standing(found: Contestant, shared: set[str]) -> Standing:
    kept = Contestant(found.name, tuple(answer for answer in found.answers if answer.judgement.task in shared))
    return Standing(kept, tuple(_rate(figure, kept.answers) for figure in SHOWN))


def _rate(figure: Figure, answers: Sequence[JudgedAnswer]) -> Rate:
    """Return the mean over tasks of the share of answers that do what a figure counts."""
    assert figure.holds is not None, "those of SHOWN compare answers"  # noqa: S101 - our own impossibility
    by_task: defaultdict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        holds = figure.holds(answer.judgement)
        if holds is not None:
            by_task[answer.judgement.task].append(holds)
    return mean_rate([sum(some) / len(some) for some in by_task.values()])


def _notes(contestants: Sequence[Contestant], prompts: Sequence[Mapping[str, str]], shared: set[str]) -> Iterator[str]:
    for found, asked in zip(contestants, prompts, strict=True):
        if len(asked) != len(shared):
            yield f"{found.name} was asked {len(asked)} tasks; the {len(shared)} that all were asked count."
        samples = len(found.answers) / len(asked)
        if samples != 1:
            yield f"{found.name} gave {samples:g} answers to each task; its figures are means over them."


def leaderboard_page(board: Leaderboard) -> str:
    """Render a leaderboard."""
    return rendered(
        "leaderboard.html.jinja",
        board=board,
        figures=SHOWN,
        duels=[(figure, tuple(board.duels(figure))) for figure in SHOWN],
        tasks=_tasks(board),
        points=points,
        p_text=p_text,
    )


def _tasks(board: Leaderboard) -> list[tuple[TaskView, list[tuple[str, TaskView]]]]:
    """Return each task with how every model answered it; those where the models differ come first."""
    views = [
        (standing.contestant.name, {view.id: view for view in task_views(standing.contestant.answers)})
        for standing in board.standings
    ]
    found = [(view, [(name, of_model[task]) for name, of_model in views]) for task, view in views[0][1].items()]
    return sorted(found, key=lambda row: len({view.adapter.passed for _, view in row[1]}) == 1)
