"""Corrupted programs for the front end, and corrupted files for all readers."""

import random
import resource
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from mens_pipeline.errors import MensError
from mens_pipeline.language import Mode, analyze
from mens_pipeline_tests.language.examples import golden_programs, reference_examples
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.noise import noise
from mens_pipeline_tests.soak.readers import readers

_LONGEST = 6_000

Judge = Callable[[bytes], None]


def front_end(budget: Budget, _folder: Path) -> list[Figure]:
    programs = [*golden_programs().values(), *(case.source for case in reference_examples())]
    whole = [source.encode() for source in programs if len(source) < _LONGEST]
    modes = tuple(Mode)

    def judge(content: bytes) -> None:
        source = content.decode(errors="surrogateescape" if len(content) % 2 else "replace")
        verdict = analyze(source, modes[len(content) % len(modes)])
        if verdict.ok == bool(verdict.errors):
            raise AssertionError("a verdict that contradicts its errors")

    return [_fuzz("corrupted programs given to the front end", [("", judge, whole)], budget)]


def files(budget: Budget, folder: Path) -> list[Figure]:
    found = readers(folder)
    kinds = [(f"{name}: ", _write_and_read(path, read), [path.read_bytes()]) for name, (path, read) in found.items()]
    return [_fuzz(f"corrupted files given to {len(found)} readers", kinds, budget)]


def _write_and_read(path: Path, read: Callable[[Path], object]) -> Judge:
    def judge(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read(path)
        except MensError:
            return

    return judge


def _fuzz(what: str, kinds: Sequence[tuple[str, Judge, list[bytes]]], budget: Budget) -> Figure:
    dice, wrong, slowest = random.Random(0), dict[str, None](), (0.0, "")
    before = _peak_megabytes()
    budget.begin()
    while budget.goes_on():
        name, judge, whole = kinds[budget.done % len(kinds)]
        content = noise(whole, dice)
        start = time.process_time()
        try:
            judge(content)
        except Exception as error:  # noqa: BLE001 - every exception is a finding
            wrong.setdefault(f"{name}{type(error).__name__} in {_find_place(error)}")
        slowest = max(slowest, (time.process_time() - start, f", {name.removesuffix(': ')}" if name else ""))
    value = f"{budget.done:,} in {budget.spent:.0f} s; slowest {slowest[0]:.2f} s{slowest[1]}; "
    return Figure(what, f"{value}peak memory {_peak_megabytes()} MB, {before} MB of it before", tuple(wrong))


def _find_place(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "mens_pipeline" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def _peak_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
