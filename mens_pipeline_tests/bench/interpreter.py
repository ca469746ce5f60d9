"""How many programs a second the sandbox scores against hidden tests, and how fast one step is."""

from itertools import cycle, islice
from time import perf_counter
from typing import Final

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.language.interpreter import Features, Limits, Sandbox, run_tests
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.machine import machine_name

_NUM_PAIRS: Final = 1640
_WORKERS: Final = 2
_SAMPLES: Final = 10

_CANDIDATE: Final = """
fn digit_value(digits: str, at: int) to int {
    return int(digits.slice(at, at + 1))
}

fn luhn(digits: str) to bool {
    let mut sum = 0
    let last = len(digits) - 1
    for offset in range(0, len(digits)) {
        let digit = digit_value(digits, last - offset)
        let twice = digit * 2
        sum += if offset % 2 is 0 { digit } else if twice > 9 { twice - 9 } else { twice }
    }
    return sum % 10 is 0
}

fn factorial(n: int) to int {
    if n <= 1 { return 1 }
    return n * factorial(n - 1)
}
"""
_TESTS: Final = """
@test fn valid() { assert(luhn("4539578763621486")) }
@test fn mistyped() { assert(not luhn("4539578763621487")) }
@test fn short() { assert(luhn("0")) }
@test fn base() { assert(factorial(0) is 1) }
@test fn step() { assert(factorial(10) is 3628800) }
@test fn large() { assert(factorial(20) is 2432902008176640000) }
"""
_LOOP: Final = "@test fn t() { let mut k = 0 let mut sum = 0 while true { k += 1 if k % 3 is 0 { sum += k } } }"


def main() -> None:
    print(f"{machine_name()}, {_WORKERS} workers")
    _sandbox_row()
    _benchmark_row()
    _in_process_row()
    _step_row()


def _sandbox_row() -> None:
    with Sandbox(_WORKERS) as sandbox:
        sandbox.run_with_tests(_CANDIDATE, _TESTS)
        before = perf_counter()
        reports = list(sandbox.map_with_tests([(_CANDIDATE, _TESTS)] * _NUM_PAIRS))
        seconds = perf_counter() - before
    assert all(report.passed for report in reports)
    rate = _NUM_PAIRS / seconds
    print(f"{_NUM_PAIRS:,} pairs of program and six hidden tests: {seconds:.1f} s, {rate:,.0f} programs/s")
    print(f"one pair in a warm worker: {1000 * _WORKERS * seconds / _NUM_PAIRS:.2f} ms")


def _benchmark_row() -> None:
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


def _in_process_row() -> None:
    before = perf_counter()
    num_runs = 100
    for _ in range(num_runs):
        assert run_tests(_CANDIDATE + _TESTS).passed
    print(f"the same in this process: {1000 * (perf_counter() - before) / num_runs:.2f} ms")


def _step_row() -> None:
    limits = Limits()
    before = perf_counter()
    run_tests(_LOOP, limits)
    print(f"{limits.max_steps:,} steps: {perf_counter() - before:.2f} s")


if __name__ == "__main__":
    main()
