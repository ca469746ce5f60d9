"""Measure the speed of the front end on one core, and the time to find an ending for a truncated program."""

import ast
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import mens_pipeline
from mens_pipeline.language import Mode, ViableText, analyze_uncached, complete, mode_of, scan, tokenize
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.bench.ratios import note
from mens_pipeline_tests.language.examples import golden_programs

_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_SECONDS_A_ROW = 2.0
_MOST_REPEATS = 30
_EVERY = 10
"""One in this many programs is truncated after each token."""


def main() -> None:
    programs = [source for name, source in golden_programs().items() if mode_of(name) is Mode.SOURCE]
    python = [path.read_text(encoding="utf-8") for path in Path(mens_pipeline.__file__).parent.rglob("*.py")]
    yardstick = _megabytes(python) / _best(lambda: [ast.parse(source) for source in python])
    print(f"{machine_name()}, one core, best of several runs")
    print(f"yardstick: ast.parse of CPython on the Python files of this package, {yardstick:.2f} MB/s")
    print()
    print(f"{'input':<32}{'MB':>8}{'lex MB/s':>10}{'parse MB/s':>12}{'both MB/s':>11}{'of yardstick':>14}")
    note("front end, beside ast.parse of CPython", _row("golden programs, each", programs, yardstick))
    for size in _SIZES:
        _row(f"golden programs, {size:,} B", [_join_programs(programs, size)], yardstick)
    _time_all_endings(programs)


def _time_all_endings(programs: list[str]) -> None:
    print()
    endings = sorted(cost for source in programs[::_EVERY] for cost in _time_endings(source))
    print(f"how it ends, behind each of {len(endings):,} beginnings:", end=" ")
    print(
        f"median {median(endings):.3f} ms, p99 {endings[int(0.99 * len(endings))]:.3f} ms, at most {endings[-1]:.3f} ms"
    )


def _time_endings(source: str) -> list[float]:
    text, costs = ViableText(is_strict=True), []
    for token in tokenize(source):
        beginning = text.unsettled + token.text[: (len(token.text) + 1) // 2]
        before = process_time()
        complete(beginning, is_strict=True)
        costs.append(1000 * (process_time() - before))
        text.append(token.text)
    return costs


def _row(name: str, sources: list[str], yardstick: float) -> float:
    for source in sources:
        if not analyze_uncached(source).ok:
            sys.exit(f"{name}: a program of the bench is rejected, so its speed means nothing. Run make test.")
    size = _megabytes(sources)
    lexing = _best(lambda: [scan(source) for source in sources])
    both = _best(lambda: [analyze_uncached(source) for source in sources])
    rates = f"{size / lexing:>10.2f}{size / (both - lexing):>12.2f}{size / both:>11.2f}"
    print(f"{name:<32}{size:>8.2f}{rates}{size / both / yardstick:>13.2f}x")
    return size / both / yardstick


def _join_programs(programs: list[str], size: int) -> str:
    parts: list[str] = []
    length = 0
    for program in cycle(programs):
        parts.append(program)
        length += len(program)
        if length >= size:
            break
    return "\n".join(parts)


def _megabytes(sources: list[str]) -> float:
    return sum(len(source.encode()) for source in sources) / 1e6


def _best(work: Callable[[], object]) -> float:
    started = perf_counter()
    times: list[float] = []
    while not times or (perf_counter() - started < _SECONDS_A_ROW and len(times) < _MOST_REPEATS):
        before = perf_counter()
        work()
        times.append(perf_counter() - before)
    return min(times)


if __name__ == "__main__":
    main()
