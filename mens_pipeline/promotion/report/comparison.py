"""Any number of models on the prompts that all of them were asked, in the same words."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import SCORED_COMPLETIONS, EvalResults, ScoredCompletion
from mens_pipeline.evaluation.scores import ModelScores, scores_of_model
from mens_pipeline.evaluation.tasks import FAMILIES, Prompt, Suite
from mens_pipeline.evaluation.trial import TRIAL
from mens_pipeline.promotion.report.table import Column, Table, as_served, table_of
from mens_pipeline.storage.jsonl import models_in, open_rows

_ADVICE: Final = "Ask each the same benchmark: `mens eval-local --trial --bench DIR`."


@dataclass(frozen=True, slots=True)
class Entry:
    """One model with its scored completions; `results` and `verdict` are those of a run of the graph."""

    name: str
    completions: tuple[ScoredCompletion, ...]
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
        raise RefusedError(f"found no task that all were asked (tasks: {details}). {_ADVICE}")
    notes = tuple(_notes(entries, completions, num_tasks, is_served=is_served))
    return Comparison((first, *others), ordered, table_of(ordered), num_tasks, notes)


def find_completions(place: Path) -> Path | None:
    """Return the file of scored completions that a path is, or that the folder of a run or endpoint holds; else None.

    Raises:
        RefusedError: A folder holds both an eval suite and a trial.
    """
    if place.is_file():
        return place
    found = [place / name for name in (SCORED_COMPLETIONS, TRIAL) if (place / name).is_file()]
    if len(found) > 1:
        raise RefusedError(f"{place}: holds {found[0].name} of an eval suite and {found[1].name} of a trial. Name one.")
    return found[0] if found else None


def read_entry(path: Path) -> Entry:
    """Read the scored completions of a model, called by its folder, or by the file where that has a name of its own.

    Raises:
        SourceNotFoundError: It cannot be read.
        RefusedError: A line is no scored completion, or not each task has as many.
    """
    advice = "Write it with `mens eval-local --trial`, or with --endpoint."
    with open_rows(path) as lines:
        completions = tuple(models_in(lines, path, ScoredCompletion, "scored completion", advice))
    samples = Counter(completion.score.task for completion in completions if completion.model == "adapter")
    if len(found := sorted(set(samples.values()))) > 1:
        raise RefusedError(f"{path}: some tasks have {found[0]} completions, others {found[-1]}. {advice}")
    return Entry(path.absolute().parent.name if path.name in {TRIAL, SCORED_COMPLETIONS} else path.stem, completions)


def _column(entry: Entry, completions: Sequence[ScoredCompletion], shared: set[str], *, is_served: bool) -> Column:
    """Score a model over the shared prompts."""
    kept = [completion for completion in completions if completion.score.task in shared]
    if not is_served and entry.results is not None and len(kept) == len(completions):
        # Scored with the source file of each prompt, over which intervals are wider.
        return Column(entry.name, entry.results.adapter, kept, entry.results.families)
    families = [completion for completion in kept if completion.suite in FAMILIES]
    eval_suite = [completion for completion in kept if completion.suite not in FAMILIES]
    return Column(entry.name, _scores(eval_suite), kept, _scores(families).suites)


def _scores(completions: Sequence[ScoredCompletion]) -> ModelScores:
    # Each prompt stands for itself: from which file it is was not kept.
    prompts = {
        a.score.task: Prompt(a.score.task, Suite(a.suite), a.score.task, a.asked, a.difficulty) for a in completions
    }
    return scores_of_model([*prompts.values()], [completion.score for completion in completions])


def _notes(
    entries: Sequence[Entry],
    completions: Mapping[str, Sequence[ScoredCompletion]],
    num_tasks: int,
    *,
    is_served: bool,
) -> Iterator[str]:
    results = [entry.results for entry in entries if entry.results is not None]
    if len({found.subject.adapter_sha256 for found in results}) < len(results):
        yield "Two of them are the same adapter."
    if any(found.decoding != results[0].decoding for found in results):
        yield "They completed under different settings of config/evaluation.yaml."
    if is_served:
        yield "An adapter counts as it is served: where the parser steered a second try, that one."
    for name, some in completions.items():
        eval_suite = [completion for completion in some if completion.suite not in FAMILIES]
        num_asked = len({completion.score.task for completion in eval_suite})
        if num_asked != num_tasks:
            yield f"{name} was asked {num_asked} tasks; the {num_tasks} that all were asked count."
        if len(eval_suite) != num_asked:
            yield f"{name} gave {len(eval_suite) / num_asked:g} completions of each task; figures are means over them."
