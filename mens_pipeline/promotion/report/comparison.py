"""Any number of models on the prompts that all of them were asked, in the same words."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, EvalResults, JudgedAnswer
from mens_pipeline.evaluation.scores import ModelScores, scores_of_model
from mens_pipeline.evaluation.tasks import FAMILIES, Suite, Task
from mens_pipeline.evaluation.trial import TRIAL
from mens_pipeline.language import Mode
from mens_pipeline.promotion.report.table import Column, Table, as_served, table_of
from mens_pipeline.storage.jsonl import models_in, open_rows

_ADVICE: Final = "Ask each the same benchmark: `mens eval-local --trial --bench DIR`."


@dataclass(frozen=True, slots=True)
class Entry:
    """One model with its judged completions; `results` and `verdict` are those of a run of the graph."""

    name: str
    answers: tuple[JudgedAnswer, ...]
    results: EvalResults | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Models, each over the same prompts.

    Attributes:
        entries: The first is what the others are compared with; those stand by pass@1, the best first.
        num_tasks: Prompts of eval suites that all were asked.
        notes: What a reader must know, a sentence each.
    """

    entries: tuple[Entry, ...]
    columns: tuple[Column, ...]
    table: Table
    num_tasks: int
    notes: tuple[str, ...]


def compare(entries: Sequence[Entry]) -> Comparison:
    """Lay models side by side; every figure and every difference is over the prompts that all were asked.

    What an adapter wrote freely counts, as for its verdict; beside models of which nothing but completions is known, as
    of a trial, it counts as it is served.

    Raises:
        RefusedError: There is no such prompt, or two models have one name.
    """
    names = [entry.name for entry in entries]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusedError(f"found two models called {', '.join(twice)}. Copy one of the files to another name.")
    is_served = any(entry.results is None for entry in entries)
    answers = {entry.name: _counted(entry, is_served=is_served) for entry in entries}
    prompts = [{a.judgement.task: a.prompt for a in some} for some in answers.values()]
    shared = {task for task, prompt in prompts[0].items() if all(other.get(task) == prompt for other in prompts)}
    columns = {e.name: _column(e, answers[e.name], shared, is_served=is_served) for e in entries}
    first, *others = entries
    others.sort(key=lambda entry: (-(columns[entry.name].scores.overall.pass_at_1.value or 0.0), entry.name))
    ordered = tuple(columns[entry.name] for entry in (first, *others))
    num_tasks = ordered[0].scores.overall.num_tasks
    if not num_tasks:
        told = ", ".join(f"{name} {len(asked)}" for name, asked in zip(names, prompts, strict=True))
        raise RefusedError(f"found no task that all were asked (tasks: {told}). {_ADVICE}")
    notes = tuple(_notes(entries, answers, num_tasks, is_served=is_served))
    return Comparison((first, *others), ordered, table_of(ordered), num_tasks, notes)


def find_answers(place: Path) -> Path | None:
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


def read_entry(path: Path) -> Entry:
    """Read the judged answers of a model, called by its folder, or by the file where that has a name of its own.

    Raises:
        SourceNotFoundError: It cannot be read.
        RefusedError: A line is no judged answer, or not each task has as many.
    """
    advice = "Write it with `mens eval-local --trial`, or with --endpoint."
    with open_rows(path) as lines:
        answers = tuple(models_in(lines, path, JudgedAnswer, "judged answer", advice))
    samples = Counter(answer.judgement.task for answer in answers if answer.model == "adapter")
    if len(found := sorted(set(samples.values()))) > 1:
        raise RefusedError(f"{path}: some tasks have {found[0]} answers, others {found[-1]}. {advice}")
    return Entry(path.absolute().parent.name if path.name in {TRIAL, JUDGED_ANSWERS} else path.stem, answers)


def _counted(entry: Entry, *, is_served: bool) -> tuple[JudgedAnswer, ...]:
    """Return the completions that count: one for each prompt and sample."""
    return as_served(entry.answers) if is_served else tuple(a for a in entry.answers if a.model == "adapter")


def _column(entry: Entry, answers: Sequence[JudgedAnswer], shared: set[str], *, is_served: bool) -> Column:
    """Score a model over the shared prompts."""
    kept = [answer for answer in answers if answer.judgement.task in shared]
    if not is_served and entry.results is not None and len(kept) == len(answers):
        # Scored with the source file of each prompt, over which intervals are wider.
        return Column(entry.name, entry.results.adapter, kept, entry.results.families)
    families = [answer for answer in kept if answer.suite in FAMILIES]
    exam = [answer for answer in kept if answer.suite not in FAMILIES]
    return Column(entry.name, _scores(exam), kept, _scores(families).suites)


def _scores(answers: Sequence[JudgedAnswer]) -> ModelScores:
    tasks = {answer.judgement.task: _task_of(answer) for answer in answers}
    return scores_of_model([*tasks.values()], [answer.judgement for answer in answers])


def _task_of(answer: JudgedAnswer) -> Task:
    """Return what was asked as far as scores look at it; each prompt stands for itself."""
    judgement = answer.judgement
    return Task(
        id=judgement.task,
        suite=Suite(answer.suite),
        file=judgement.task,
        prompt=answer.prompt,
        construct=answer.asked,
        name="" if judgement.has_name is not None else None,
        difficulty=answer.difficulty,
        mode=Mode.SOURCE,
        reference=answer.reference,
        tests="" if judgement.has_tests else None,
    )


def _notes(
    entries: Sequence[Entry],
    answers: Mapping[str, Sequence[JudgedAnswer]],
    num_tasks: int,
    *,
    is_served: bool,
) -> Iterator[str]:
    results = [entry.results for entry in entries if entry.results is not None]
    if len({found.subject.adapter_sha256 for found in results}) < len(results):
        yield "Two of them are the same adapter."
    if any(found.decoding != results[0].decoding for found in results):
        yield "They answered under different settings of config/evaluation.yaml."
    if is_served:
        yield "An adapter counts as it is served: where the parser steered a second try, that one."
    for name, some in answers.items():
        exam = [answer for answer in some if answer.suite not in FAMILIES]
        num_asked = len({answer.judgement.task for answer in exam})
        if num_asked != num_tasks:
            yield f"{name} was asked {num_asked} tasks; the {num_tasks} that all were asked count."
        if len(exam) != num_asked:
            yield f"{name} gave {len(exam) / num_asked:g} answers to each task; its figures are means over them."
