"""Trials: one model on a benchmark, or completions of another program. No verdict uses them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from pydantic import Field

from mens_pipeline.corpus.evolution.operators import ModelRequest as Asking
from mens_pipeline.corpus.evolution.operators import TextModel
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.eval_results import read_completions, scored_completion
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.results import BestOf, ScoredCompletion
from mens_pipeline.evaluation.scores import ModelScores, Score, scores_of_model
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob, as_served
from mens_pipeline.inference.prepare import Conditions, generate_all, prepare_generation
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.jsonl import models_in, open_rows
from mens_pipeline.storage.store import ArtifactStore, key_of
from mens_pipeline.storage.validation import Strict

TRIAL: Final = "trial_completions.jsonl"


@dataclass(frozen=True, slots=True)
class Trial:
    """Scores and completions of a trial.

    `scores` are of free completions; `served`, `best_of` and the completions are as served, with constrained second
    tries. `served` is None without second tries, `best_of` with one completion per prompt. `num_too_long` counts tasks
    that were left out because their reference does not fit into a completion.
    """

    scores: ModelScores
    best_of: BestOf | None
    completions: tuple[ScoredCompletion, ...]
    num_too_long: int
    served: ModelScores | None = None


def try_adapter(  # noqa: PLR0913 - the inputs of a trial
    adapter: Adapter,
    benchmark: Benchmark,
    fits: Callable[[str], bool],
    conditions: Conditions,
    store: ArtifactStore,
    *,
    launch: Callable[[GenerationJob], int],
) -> Trial:
    """Complete and score a benchmark with an adapter; `launch` runs a generation process and returns its exit code.

    `RefusedError` if the generation failed, or no reference fits.
    """
    every = benchmark_tasks(benchmark)
    tasks = tuple(task for task in every if fits(task.reference))
    if not tasks:
        raise RefusedError(f"{benchmark.folder}: no reference completion fits the limit. Raise --max-tokens.")
    asked = {"trial": prepare_generation("adapter", adapter, [task.request for task in tasks], conditions)}
    completions = read_completions(generate_all(asked, store, launch, conditions.lock_path).values())
    return _trial(tasks, completions, num_too_long=len(every) - len(tasks))


def try_generator(generator: TextModel, benchmark: Benchmark, system: str, decoding: Decoding) -> Trial:
    """Complete and score a benchmark with another model, reusing its replies to earlier requests.

    Another seed in `decoding` sends new requests. The samples of a task are adjacent. `RefusedError` without a reply.
    """
    tasks = benchmark_tasks(benchmark)
    decides = {"by": [generator.name, generator.digest, dict(generator.decoding)], "seed": decoding.seed}

    def asking(task: Task, sample: int) -> Asking:
        key = key_of({**decides, "system": system, "prompt": task.prompt, "sample": sample})
        return Asking(key, system, task.prompt)

    asked = {(task.id, sample): asking(task, sample) for task in tasks for sample in range(decoding.num_samples)}
    replies = generator.ask([*{request.key: request for request in asked.values()}.values()], lambda: inf)
    completions = []
    for (task_id, sample), request in asked.items():
        reply = replies[request.key]
        num_tokens = reply.num_tokens if reply.num_written is None else reply.num_written
        completion = Completion(
            task=task_id, sample=sample, text=reply.text, num_tokens=num_tokens, stopped=reply.stopped
        )
        completions.append(completion)
    return _trial(tasks, completions, num_too_long=0)


def _trial(tasks: Sequence[Task], completions: Sequence[Completion], *, num_too_long: int) -> Trial:
    final = as_served(completions)
    evaluated = score_completions(tasks, final)
    first = {(one.task, one.sample): one for one in reversed(completions)}
    replaced = [first[one.task, one.sample] for one in final if first[one.task, one.sample] is not one]
    own = {(score.task, score.sample): score for score in (*evaluated, *score_completions(tasks, replaced))}
    by_id = {task.id: task for task in tasks}
    return Trial(
        scores=scores_of_model(tasks, tuple(own.values())),
        best_of=best_of(tasks, final, evaluated),
        completions=tuple(scored_completion("adapter", by_id[score.task], score) for score in evaluated),
        num_too_long=num_too_long,
        served=scores_of_model(tasks, evaluated) if replaced else None,
    )


PREFIX: Final = "benchmark/"
"""Prefix of task ids in our own documents; documents of other tools have none."""


class WrittenCompletion(Strict):
    """A completion, written by any program; several for one task are its samples, in order."""

    task: str = Field(description="Id of the task in the manifest.")
    text: str = Field(description="The full reply, with any fence around the program.")
    stopped: bool = Field(description="Whether the model ended its turn, rather than running into a limit.")


def read_written(path: Path) -> list[WrittenCompletion]:
    """Read completions, one JSON document a line; `RefusedError` for a malformed one."""
    advice = 'Write {"task": ID, "text": TEXT, "stopped": true or false}.'
    with open_rows(path) as lines:
        return list(models_in(lines, path, WrittenCompletion, "completion", advice))


def score_written(benchmark: Benchmark, written: Iterable[WrittenCompletion]) -> tuple[Score, ...]:
    """Score completions in their order, and run the hidden tests of their tasks.

    `RefusedError` if there are no completions, or one is for a task that is not in the benchmark.
    """
    tasks = {task.id: task for task in benchmark_tasks(benchmark)}
    completions, samples = [], Counter[str]()
    for number, one in enumerate(written, start=1):
        name = f"{PREFIX}{one.task}"
        if name not in tasks:
            advice = f"Expected an id of {benchmark.folder / 'manifest.json'}; name its folder with --bench."
            raise RefusedError(f"completion {number}: found no task `{one.task}`. {advice}")
        # Only the program that asked knows the number of tokens.
        completions.append(
            Completion(task=name, sample=samples[name], text=one.text, num_tokens=0, stopped=one.stopped)
        )
        samples[name] += 1
    if not completions:
        raise RefusedError("found no completion, expected at least one. Write one a line.")
    return score_completions(tuple(tasks.values()), completions)
