"""Measure how fast the sandbox runs hidden tests: ten completions of each task of HumanEval-Vox."""

from itertools import cycle, islice
from time import perf_counter
from typing import Final

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.language.interpreter import Features, Sandbox
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.machine import machine_name

_WORKERS: Final = 2
_SAMPLES: Final = 10


def main() -> None:
    print(f"{machine_name()}, {_WORKERS} workers")
    tasks = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox").tasks
    pairs = [
        (completion, task.tests or "")
        for task in tasks
        for completion in islice(cycle((task.solution, *task.wrong)), _SAMPLES)
    ]
    with Sandbox(_WORKERS, features=Features(check_contracts=True, database=True)) as sandbox:
        before = perf_counter()
        reports = list(sandbox.map_with_tests(pairs))
        seconds = perf_counter() - before
    num_passed = sum(report.passed for report in reports)
    print(f"HumanEval-Vox: {len(tasks)} tasks x {_SAMPLES} answers, {num_passed} right: {seconds:.1f} s")


if __name__ == "__main__":
    main()
