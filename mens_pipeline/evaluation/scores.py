"""The figures of one model over some tasks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.statistics import Rate, mean_rate, pass_at_k
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.language.interpreter import ErrorClass

_USUAL: Final = (1, 5, 10, 20, 50, 100)
"""Numbers of samples that pass@k is told of, so that runs with different numbers can be compared."""


class Coverage(BaseModel):
    """Constructs of the parser that the accepted answers show."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    present: tuple[str, ...]
    missing: tuple[str, ...]
    share: float = Field(ge=0, le=1)


class Scores(BaseModel):
    """Rates are over tasks; a task with several samples counts with the share of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_tasks: int = Field(ge=0)
    num_samples: int = Field(ge=0)
    parse_rate: Rate = Field(description="The front end accepts the answer, and it declares something.")
    resolve_rate: Rate = Field(description="It parses, and nothing is known to be wrong with its names and types.")
    stop_rate: Rate = Field(description="The model ended its turn.")
    construct_rate: Rate = Field(description="The answer declares the construct that was asked for.")
    name_rate: Rate = Field(description="It has the name that was asked for; over tasks that ask for one.")
    pass_at_1: Rate = Field(description="Complete Vox of that construct and name that meets all requirements.")
    pass_at_k: Rate = Field(description="The chance that one of `k` samples is that, without bias.")
    k: int = Field(ge=1, description="Samples of a task.")
    pass_at: dict[int, Rate] = Field(
        description="Number of samples, 1, 5, 10 and so on to `k` -> the chance that one of them passes, without bias."
    )
    test_rate: Rate = Field(description="All hidden tests pass; over tasks that have any.")
    empty_rate: Rate
    refusal_rate: Rate
    stub_rate: Rate = Field(description="A placeholder stands where code should.")
    duplicate_rate: Rate = Field(description="The program was also the answer to another prompt.")
    mean_tokens: float = Field(ge=0, description="Tokens of an answer.")
    coverage: Coverage
    errors: dict[str, int] = Field(description="Code of the first error -> answers.")
    semantic_errors: dict[str, int] = Field(
        description="Code of the first error in names and types -> accepted answers."
    )
    execution_errors: dict[str, int] = Field(
        description="parse, unsupported, runtime, wrong_answer, timeout -> answers to tasks with tests."
    )


class ModelScores(BaseModel):
    """One model: over everything, and part by part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    overall: Scores
    suites: dict[str, Scores]
    constructs: dict[str, Scores] = Field(description="By the construct that was asked for.")
    difficulties: dict[str, Scores]


def scores_of_model(tasks: Sequence[Task], judgements: Iterable[Judgement]) -> ModelScores:
    """Compute the figures of a model.

    Each task has the same number of answers.
    """
    by_task = grouped(judgements)
    repeated = _repeated(by_task)

    def parts(key: Callable[[Task], str]) -> dict[str, Scores]:
        names = dict.fromkeys(key(task) for task in tasks)
        return {name: scores_of([t for t in tasks if key(t) == name], by_task, repeated) for name in names}

    return ModelScores(
        overall=scores_of(tasks, by_task, repeated),
        suites=parts(lambda task: str(task.suite)),
        constructs=parts(lambda task: task.construct),
        difficulties=parts(lambda task: task.difficulty),
    )


def grouped(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    """Group judgements by their tasks."""
    by_task: defaultdict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        by_task[judgement.task].append(judgement)
    return by_task


def scores_of(
    tasks: Sequence[Task], by_task: Mapping[str, Sequence[Judgement]], repeated: frozenset[str] = frozenset()
) -> Scores:
    """Compute the figures over some tasks.

    Each task has as many judged answers, at least one; `repeated` are programs that answer more than one task.
    """
    flat = [judgement for task in tasks for judgement in by_task[task.id]]
    tested = [task for task in tasks if task.tests is not None]
    named = [task for task in tasks if task.name is not None]
    k = len(by_task[tasks[0].id]) if tasks else 1

    def mean(value: Callable[[Sequence[Judgement]], float], among: Sequence[Task] = tasks) -> Rate:
        return mean_rate([value(by_task[task.id]) for task in among], [task.file for task in among])

    def share(of: Callable[[Judgement], bool], among: Sequence[Task] = tasks) -> Rate:
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
        pass_at={number: passing(number) for number in _numbers_up_to(k)},
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


def _numbers_up_to(k: int) -> list[int]:
    """Return the numbers k that pass@k is reported for: the usual ones, and all samples."""
    return [*(number for number in _USUAL if number < k), k]


def _execution_errors(judgements: Iterable[Judgement]) -> dict[str, int]:
    classes = (ErrorClass.PARSE if j.execution is None else j.execution.error_class for j in judgements)
    return dict(Counter(str(found) for found in classes if found is not None).most_common())


def _coverage(judgements: Iterable[Judgement]) -> Coverage:
    seen = {construct for judgement in judgements for construct in judgement.constructs}
    present = tuple(name for name in CONSTRUCTS if name in seen)
    missing = tuple(name for name in CONSTRUCTS if name not in seen)
    return Coverage(present=present, missing=missing, share=len(present) / len(CONSTRUCTS))


def _repeated(by_task: Mapping[str, Sequence[Judgement]]) -> frozenset[str]:
    """Return programs that more than one task got as its answer; empty ones are counted elsewhere."""
    answered = Counter(program for some in by_task.values() for program in {j.program for j in some if not j.empty})
    return frozenset(program for program, count in answered.items() if count > 1)
