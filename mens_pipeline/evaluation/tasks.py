"""Tasks of an eval suite: prompts, and the requirements on their completions."""

import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mens_pipeline.corpus.schema import records
from mens_pipeline.corpus.schema.records import Lane, TrainingPair, parsed_code
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.requirements import Requirement
from mens_pipeline.inference.generation import Request
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, declaration_spans
from mens_pipeline.language.ast import Forall, Test
from mens_pipeline.language.interpreter import hidden_module

_EASIER: Final = (3, 6)  # highest difficulties of a pair that count as easy and as medium


class Suite(StrEnum):
    """Origin of a task."""

    HELDOUT = "heldout"  # a source file of the workspace that never trains
    BENCHMARK = "benchmark"  # a folder of tasks written for evaluation
    NEW_CONSTANTS = records.NEW_CONSTANTS
    """Synthetic tasks of families that train, with other constants."""
    UNKNOWN_TASK = records.UNKNOWN_TASK  # synthetic tasks of families that never train
    TRAINING = "training"
    """A row of the train set, for training with rewards; never part of an eval suite."""


FAMILIES: Final = (Suite.NEW_CONSTANTS, Suite.UNKNOWN_TASK)
"""The suites of synthetic tasks, which only the adapter completes."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, with its groups in reports.

    `id` is unique in an evaluation: `benchmark/fn_add`. `file` is the sampling unit; every task that is not held out is
    its own unit. `construct` is a name of CONSTRUCTS, or a category of a user's benchmark; `difficulty` is `easy`,
    `medium` or `hard`.
    """

    id: str
    suite: Suite
    file: str
    construct: str
    difficulty: str


@dataclass(frozen=True, slots=True)
class Task(Prompt):
    """A prompt, and the requirements on its completions.

    `name` is None if the prompt requests no name; `reference` may be empty in a user's benchmark. Without other
    requirements, a completion must contain the `needles`. It may use the declarations of `given` without declaring
    them.
    """

    prompt: str
    name: str | None
    mode: Mode
    reference: str
    requires: tuple[Requirement, ...] = ()
    needles: tuple[str, ...] = ()
    tests: str | None = None
    given: str = ""

    @property
    def request(self) -> Request:
        """The request to a model, without reference and hidden tests."""
        return Request(task=self.id, prompt=self.prompt, mode=self.mode)


@dataclass(frozen=True, slots=True)
class FewShot:
    """System prompt with examples for the base, and the sample of the eval suite that it completes."""

    prompt: str
    tasks: tuple[Task, ...]


def heldout_tasks(pairs: Iterable[TrainingPair]) -> tuple[Task, ...]:
    """Turn held-out pairs of code into tasks, skipping prose.

    Completions may use declarations next to the hidden tests of a pair, since the prompt shows or names them.
    `ConfigurationError` if the front end rejects hidden tests of a pair, or they hold no test.
    """
    tasks = (_build_task(pair, f"heldout/{number:04}", Suite.HELDOUT) for number, pair in enumerate(pairs))
    return tuple(task for task in tasks if task is not None)


def family_tasks(pairs: Iterable[TrainingPair], number: int) -> tuple[Task, ...]:
    """Turn synthetic pairs into tasks, the same ones every time.

    Their `task_family` names the suite, one of FAMILIES; `number` limits the tasks of each suite. `ConfigurationError`
    if a pair names another suite, or its hidden tests cannot be run.
    """
    tasks: dict[Suite, list[Task]] = {suite: [] for suite in FAMILIES}
    for place, pair in enumerate(pairs):
        if pair.task_family not in tasks:
            advice = f"Expected {' or '.join(FAMILIES)}; make the split again."
            raise ConfigurationError(f"family task {place}: found task_family {pair.task_family!r}. {advice}")
        suite = Suite(pair.task_family)
        task = _build_task(pair, f"{suite}/{place:04}", suite)
        if task is not None:
            tasks[suite].append(task)
    return tuple(task for some in tasks.values() for task in draw_tasks(some, number))


def training_tasks(pairs: Iterable[TrainingPair]) -> dict[str, tuple[Task, TrainingPair]]:
    """Turn rows of a train set with hidden tests into tasks.

    Return them by name, a hash of the prompt, each with the first row that has the prompt. `ConfigurationError` if
    hidden tests of a row cannot be run.
    """
    found: dict[str, tuple[Task, TrainingPair]] = {}
    for pair in pairs:
        name = f"{Suite.TRAINING}/{hashlib.sha256(pair.prompt.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        if pair.tests is not None and name not in found:
            task = _build_task(pair, name, Suite.TRAINING)
            if task is not None:
                found[name] = (task, pair)
    return found


def draw_tasks(tasks: Sequence[Task], number: int | None) -> tuple[Task, ...]:
    """Draw up to `number` tasks by a hash of their prompts, and return them in order; None: all."""
    hashes = {task.id: hashlib.sha256(task.prompt.encode("utf-8", "surrogatepass")).digest() for task in tasks}
    chosen = set(sorted(hashes, key=lambda name: (hashes[name], name))[:number])
    return tuple(task for task in tasks if task.id in chosen)


def sample_with_tests(tasks: Sequence[Task], number: int | None) -> tuple[Task, ...]:
    """Draw about `number` tasks of all suites, always including those with hidden tests, in order; None: all."""
    chosen = {task.id for task in tasks if task.tests is not None}
    for suite in {task.suite for task in tasks}:
        of_suite = [task for task in tasks if task.suite is suite]
        room = len(of_suite) if number is None else math.ceil(number * len(of_suite) / len(tasks))
        others = [task for task in of_suite if task.tests is None]
        chosen |= {task.id for task in draw_tasks(others, max(0, room - len(of_suite) + len(others)))}
    return tuple(task for task in tasks if task.id in chosen)


def _build_task(pair: TrainingPair, name: str, suite: Suite) -> Task | None:
    code = parsed_code(pair)
    if pair.lane is not Lane.CODEGEN or code is None or pair.category not in CONSTRUCTS:
        return None
    # Rows without a file count as one file, since they may not be independent.
    file = pair.source.path if pair.source is not None else ""
    return Task(
        id=name,
        suite=suite,
        file=file if suite is Suite.HELDOUT else name,
        prompt=pair.prompt,
        construct=pair.category,
        name=_asked_name(pair, *code),
        difficulty=("easy", "medium", "hard")[bisect_left(_EASIER, pair.difficulty)],
        mode=code[1],
        reference=pair.response,
        tests=pair.tests,
        given=_find_given(name, pair.tests) if pair.tests is not None else "",
    )


def _find_given(task: str, tests: str) -> str:
    try:
        spans = declaration_spans(tests, hidden_module(tests))
    except ConfigurationError as error:
        raise ConfigurationError(f"{task}: {error}") from error
    return "\n\n".join(span.cut(tests) for span in spans if not isinstance(span.declaration, Test | Forall))


def benchmark_tasks(benchmark: Benchmark) -> tuple[Task, ...]:
    """Convert a benchmark to tasks."""
    tasks = []
    for task in benchmark.tasks:
        spec = task.spec
        asked = (requirement.name for requirement in spec.requires if requirement.construct_ == spec.category)
        made = Task(
            id=f"benchmark/{spec.id}",
            suite=Suite.BENCHMARK,
            file=f"benchmark/{spec.id}",
            prompt=spec.description,
            construct=spec.category,
            name=next((name for name in asked if name is not None), None),
            difficulty=spec.difficulty,
            mode=spec.mode,
            requires=spec.requires,
            needles=spec.needles,
            tests=task.tests,
            reference=task.solution,
        )
        tasks.append(made)
    return tuple(tasks)


def _asked_name(pair: TrainingPair, source: str, mode: Mode) -> str | None:
    module = analyze(source, mode).module
    if module is None:
        return None
    names = [span.name for span in declaration_spans(source, module) if span.construct.name == pair.category]
    found = (name for name in names if name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", pair.prompt))
    return next(found, None)
