"""What a model is asked to write, and what a good answer shows."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mens_pipeline.corpus.records import Lane
from mens_pipeline.corpus.training_pair import TrainingPair
from mens_pipeline.corpus.validate import judged_code
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.requirements import Requirement
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, declaration_spans

_EASY_UP_TO: Final = 3
_MEDIUM_UP_TO: Final = 6


class Suite(StrEnum):
    """Where a task comes from."""

    HELDOUT = "heldout"
    """A source file of the workspace that never trained."""
    BENCHMARK = "benchmark"
    """A folder of tasks written to judge by."""


@dataclass(frozen=True, slots=True)
class Task:
    """One request and what is looked for in its answers.

    Attributes:
        id: Its name, unique in an evaluation: `benchmark/fn_add`.
        suite: Where it comes from.
        prompt: What the model is asked.
        construct: What is asked for, a name of CONSTRUCTS; or the category that a benchmark of one's own counts by.
        name: The name that the request asks for; None where it leaves that open.
        difficulty: `easy`, `medium` or `hard`.
        mode: How an answer is read.
        reference: An answer that is good.
        requires: What an answer must declare.
        tests: Hidden `@test` functions.
    """

    id: str
    suite: Suite
    prompt: str
    construct: str
    name: str | None
    difficulty: str
    mode: Mode
    reference: str
    requires: tuple[Requirement, ...] = ()
    tests: str | None = None


def heldout_tasks(pairs: Iterable[TrainingPair]) -> tuple[Task, ...]:
    """The held-out pairs of code as tasks; prose is not judged.

    Args:
        pairs: Held out by `heldout_split`, each prompt once.
    """
    tasks = []
    for number, pair in enumerate(pairs):
        code = judged_code(pair)
        if pair.lane is Lane.CODEGEN and code is not None and pair.category in CONSTRUCTS:
            task = Task(
                id=f"heldout/{number:04}",
                suite=Suite.HELDOUT,
                prompt=pair.prompt,
                construct=pair.category,
                name=_asked_name(pair, *code),
                difficulty=_difficulty_of(pair.difficulty),
                mode=code[1],
                reference=pair.response,
            )
            tasks.append(task)
    return tuple(tasks)


def benchmark_tasks(benchmark: Benchmark) -> tuple[Task, ...]:
    """The tasks of a benchmark.

    Args:
        benchmark: As it was loaded.
    """
    tasks = []
    for task in benchmark.tasks:
        spec = task.spec
        asked = (requirement.name for requirement in spec.requires if requirement.construct_ == spec.category)
        made = Task(
            id=f"benchmark/{spec.id}",
            suite=Suite.BENCHMARK,
            prompt=spec.description,
            construct=spec.category,
            name=next((name for name in asked if name is not None), None),
            difficulty=spec.difficulty,
            mode=spec.mode,
            requires=spec.requires,
            tests=task.tests,
            reference=task.solution,
        )
        tasks.append(made)
    return tuple(tasks)


def _asked_name(pair: TrainingPair, source: str, mode: Mode) -> str | None:
    """The name of the first declaration of the asked construct in the answer, if the request says it."""
    module = analyze(source, mode).module
    if module is None:
        return None
    names = [span.name for span in declaration_spans(source, module) if span.construct.name == pair.category]
    return next((name for name in names if name is not None and _says(pair.prompt, name)), None)


def _says(prompt: str, name: str) -> bool:
    """Whether a request says a name as a whole word; that of an index holds a dot."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prompt) is not None


def _difficulty_of(difficulty: int) -> str:
    if difficulty <= _EASY_UP_TO:
        return "easy"
    return "medium" if difficulty <= _MEDIUM_UP_TO else "hard"
