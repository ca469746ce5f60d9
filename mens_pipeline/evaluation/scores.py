"""The score of one completion, and the figures of one model over some tasks."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from pydantic import Field

from mens_pipeline.evaluation.statistics import Paired, Rate, compare_paired, mean_rate, pass_at_k
from mens_pipeline.evaluation.tasks import Prompt
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.storage.validation import Strict

_USUAL: Final = (1, 5, 10, 20, 50, 100)
"""Values of k to report pass@k for, so that runs with different numbers of samples can be compared."""


class Execution(Strict):
    """Result of the hidden tests of a task on one completion."""

    num_tests: int = Field(ge=0, description="Tests that were run.")
    num_passed: int = Field(ge=0)
    error_class: ErrorClass | None = Field(description="Class of the first failure; null when all pass.")
    message: str = Field(description="Message of the first failure; empty when all pass.")

    @property
    def passed(self) -> bool:
        """Whether there are tests and all of them pass."""
        return self.error_class is None and 0 < self.num_tests == self.num_passed


def count_from_one(error: str) -> str:
    """Convert the column of a stored error from 0-based to 1-based, like its line."""
    return re.sub(r"^(\d+):(\d+):", lambda place: f"{place[1]}:{int(place[2]) + 1}:", error)


class Score(Strict):
    """Score of one completion. Fields that need a syntax tree are false without one."""

    task: str
    sample: int
    program: str = Field(description="The evaluated text: the fenced block of the completion, or all of it.")
    num_tokens: int
    stopped: bool = Field(description="The model ended its turn.")
    empty: bool
    refusal: bool = Field(description="It refuses the request, and is not a program.")
    stub: bool = Field(
        description="A placeholder comment, or a function that promises a value and has no body or only panics."
    )
    parses: bool = Field(description="The front end accepts it, and it declares something.")
    error: str | None = Field(description="The first error, `line:column: code: message`, columns from 0.")
    error_code: str | None
    resolves: bool = Field(description="It parses without known errors in names and types.")
    semantic_error: str | None = Field(
        description="The first error in names and types of an accepted completion, without those of given code."
    )
    semantic_code: str | None
    constructs: dict[str, int] = Field(description="Construct -> declarations of it in an accepted completion.")
    has_construct: bool = Field(description="It declares the requested construct.")
    has_name: bool | None = Field(description="It declares the requested name; null without a requested name.")
    unmet: tuple[str, ...] = Field(description="Requirements of the task that it does not meet, a sentence each.")
    has_tests: bool = Field(description="The task has hidden tests.")
    execution: Execution | None = Field(
        default=None, description="Result of the hidden tests; null without tests, or if it does not parse."
    )

    @property
    def passes_tests(self) -> bool:
        """Whether it was run and passes all hidden tests."""
        return self.execution is not None and self.execution.passed

    @property
    def passed(self) -> bool:
        """Whether it is complete Vox of the requested construct and name, meets all requirements, and is not a stub.

        It must also pass all hidden tests, if there are any.
        """
        asked = self.has_construct and self.has_name is not False and not self.unmet
        works = self.execution is None or self.passes_tests
        return self.parses and self.stopped and asked and not self.stub and works


class Coverage(Strict):
    """Constructs of the language that accepted completions contain, and the missing ones."""

    present: tuple[str, ...]
    missing: tuple[str, ...]
    share: float = Field(ge=0, le=1)


class Scores(Strict):
    """Figures over some tasks; a task with several samples counts with the share of them."""

    num_tasks: int = Field(ge=0)
    num_samples: int = Field(ge=0)
    parse_rate: Rate = Field(description="The front end accepts the completion, and it declares something.")
    resolve_rate: Rate = Field(description="It parses without known errors in names and types.")
    stop_rate: Rate = Field(description="The model ended its turn.")
    construct_rate: Rate = Field(description="The completion declares the requested construct.")
    name_rate: Rate = Field(description="It declares the requested name; over tasks with a name.")
    pass_at_1: Rate = Field(description="Complete Vox of that construct and name that meets all requirements.")
    pass_at_k: Rate = Field(description="Unbiased estimate of the probability that one of `k` samples passes.")
    k: int = Field(ge=1, description="Samples of each task.")
    pass_at: dict[int, Rate] = Field(
        description="Number of samples (1, 5, 10 and so on to `k`) -> unbiased probability that one of them passes."
    )
    test_rate: Rate = Field(description="All hidden tests pass; over tasks with tests.")
    empty_rate: Rate
    refusal_rate: Rate
    stub_rate: Rate = Field(description="It has a placeholder or an empty function in place of code.")
    duplicate_rate: Rate = Field(description="The same program completes another prompt.")
    mean_tokens: float = Field(ge=0, description="Mean tokens of a completion.")
    coverage: Coverage
    errors: dict[str, int] = Field(description="Code of the first error -> completions.")
    semantic_errors: dict[str, int] = Field(
        description="Code of the first error in names and types -> accepted completions."
    )
    execution_errors: dict[str, int] = Field(
        description="parse, unsupported, runtime, wrong_answer, timeout -> completions of tasks with tests."
    )


class ModelScores(Strict):
    """Scores of one model, overall and by group."""

    overall: Scores
    suites: dict[str, Scores]
    constructs: dict[str, Scores] = Field(description="By the requested construct.")
    difficulties: dict[str, Scores]


def scores_of_model(tasks: Sequence[Prompt], scores: Iterable[Score]) -> ModelScores:
    """Compute the figures of a model; each task has the same number of scores."""
    by_task = group_by_task(scores)
    completed = Counter(program for some in by_task.values() for program in {j.program for j in some if not j.empty})
    repeated = frozenset(program for program, count in completed.items() if count > 1)

    def parts(key: Callable[[Prompt], str]) -> dict[str, Scores]:
        names = dict.fromkeys(key(task) for task in tasks)
        return {name: compute_scores([t for t in tasks if key(t) == name], by_task, repeated) for name in names}

    return ModelScores(
        overall=compute_scores(tasks, by_task, repeated),
        suites=parts(lambda task: str(task.suite)),
        constructs=parts(lambda task: task.construct),
        difficulties=parts(lambda task: task.difficulty),
    )


def compare_scores(pairs: Sequence[tuple[Score, Score]], files: Mapping[str, str]) -> dict[str, Paired]:
    """Compare two models by pairs of completions of the same prompts.

    Return `parse_difference`, `pass_difference`, and `test_difference` over the prompts with hidden tests. A prompt
    without an entry in `files` is its own sampling unit.
    """

    def compare(does: Callable[[Score], bool], some: Sequence[tuple[Score, Score]] = pairs) -> Paired:
        units = [files.get(a.task, a.task) for a, _ in some]
        return compare_paired([does(a) for a, _ in some], [does(b) for _, b in some], units)

    return {
        "parse_difference": compare(lambda j: j.parses),
        "pass_difference": compare(lambda j: j.passed),
        "test_difference": compare(lambda j: j.passes_tests, [pair for pair in pairs if pair[0].has_tests]),
    }


def group_by_task(scores: Iterable[Score]) -> dict[str, list[Score]]:
    """Group scores by their tasks."""
    by_task: defaultdict[str, list[Score]] = defaultdict(list)
    for score in scores:
        by_task[score.task].append(score)
    return by_task


def compute_scores(
    tasks: Sequence[Prompt], by_task: Mapping[str, Sequence[Score]], repeated: frozenset[str] = frozenset()
) -> Scores:
    """Compute the figures over some tasks; all have the same number of scores, at least one.

    `repeated` are programs that were written for more than one task.
    """
    flat = [score for task in tasks for score in by_task[task.id]]
    tested = [task for task in tasks if by_task[task.id][0].has_tests]
    named = [task for task in tasks if by_task[task.id][0].has_name is not None]
    k = len(by_task[tasks[0].id]) if tasks else 1

    def mean(value: Callable[[Sequence[Score]], float], among: Sequence[Prompt] = tasks) -> Rate:
        return mean_rate([value(by_task[task.id]) for task in among], [task.file for task in among])

    def share(of: Callable[[Score], bool], among: Sequence[Prompt] = tasks) -> Rate:
        return mean(lambda some: sum(map(of, some)) / len(some), among)

    def passing(number: int) -> Rate:
        return mean(lambda some: pass_at_k(k, sum(j.passed for j in some), number))

    return Scores(
        num_tasks=len(tasks),
        num_samples=len(flat),
        parse_rate=share(lambda j: j.parses),
        resolve_rate=share(lambda j: j.resolves),
        stop_rate=share(lambda j: j.stopped),
        construct_rate=share(lambda j: j.has_construct),
        name_rate=share(lambda j: j.has_name is True, named),
        pass_at_1=share(lambda j: j.passed),
        pass_at_k=passing(k),
        k=k,
        pass_at={number: passing(number) for number in (*(usual for usual in _USUAL if usual < k), k)},
        test_rate=share(lambda j: j.passes_tests, tested),
        empty_rate=share(lambda j: j.empty),
        refusal_rate=share(lambda j: j.refusal),
        stub_rate=share(lambda j: j.stub),
        duplicate_rate=share(lambda j: j.program in repeated),
        mean_tokens=sum(j.num_tokens for j in flat) / len(flat) if flat else 0.0,
        coverage=_coverage(flat),
        execution_errors=_execution_errors(j for task in tested for j in by_task[task.id]),
        errors=dict(Counter(j.error_code or "declares_nothing" for j in flat if not j.parses).most_common()),
        semantic_errors=dict(Counter(j.semantic_code for j in flat if j.semantic_code is not None).most_common()),
    )


def _execution_errors(scores: Iterable[Score]) -> dict[str, int]:
    classes = (ErrorClass.PARSE if j.execution is None else j.execution.error_class for j in scores)
    return dict(Counter(str(found) for found in classes if found is not None).most_common())


def _coverage(scores: Iterable[Score]) -> Coverage:
    seen = {construct for score in scores for construct in score.constructs}
    present = tuple(name for name in CONSTRUCTS if name in seen)
    missing = tuple(name for name in CONSTRUCTS if name not in seen)
    return Coverage(present=present, missing=missing, share=len(present) / len(CONSTRUCTS))
