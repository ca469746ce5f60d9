"""HumanEval-Vox, for its tests."""

from typing import Final

from mens_pipeline.evaluation.benchmark import BenchmarkTask, load_benchmark
from mens_pipeline.evaluation.judge import FEATURES
from mens_pipeline.language.interpreter import Limits, ProgramReport, run_with_tests
from mens_pipeline_tests.evaluation.benches import SHIPPED

NUM_TASKS: Final = 164
"""The number of tasks, which are numbered from 1."""

_PATIENT: Final = Limits(test_seconds=60.0, program_seconds=60.0)
"""A busy machine must not turn a right completion into a timeout."""

HUMANEVAL: Final = load_benchmark(SHIPPED / "humaneval_vox")


def scored(task: BenchmarkTask, completion: str, limits: Limits = _PATIENT) -> ProgramReport:
    assert task.tests is not None, f"{task.id} is judged by hidden tests"
    return run_with_tests(completion, task.tests, limits, features=FEATURES)
