"""When asking more prompts is worth it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.statistics import compare_paired, rate_of
from mens_pipeline.evaluation.suite import EvalSuite
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.promotion.ledger import record_try
from mens_pipeline.promotion.policy import GateName, load_gate_policy
from mens_pipeline.promotion.referee import find_undecided, try_of
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.scored import (
    GOOD,
    PROGRESS,
    evaluation,
    heldout_files,
    task,
    with_overall,
    with_suite,
)
from mens_pipeline_tests.every import every

_CI = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("ci")


_EXAM: Final = tuple(
    task(
        number,
        file=f"golden/{number}.vox",
        prompt=f"Write a function `f{number}` in Vox.",
        reference=f"fn f{number}() to int {{\n    return {number}\n}}\n",
    )
    for number in range(20)
)


def _rename_files(tasks: Sequence[Task]) -> list[Task]:
    return [replace(one, id=f"heldout/1{n:03}", file=f"v1/{one.file}") for n, one in enumerate(tasks)]


def _rewrite_texts(tasks: Sequence[Task], write: Callable[[str], str]) -> list[Task]:
    return [replace(one, prompt=write(one.prompt), reference=write(one.reference)) for one in tasks]


_OTHERS: Final = _rewrite_texts(_EXAM, lambda text: text.replace("f", "g"))


@pytest.mark.threat("M13")
@every(
    "case",
    [
        ("itself", _EXAM, 1),
        ("renamed", _rename_files(_EXAM), 1),
        ("reordered", _rename_files(_EXAM[::-1]), 1),
        ("thinned out", _rename_files(_EXAM)[1:], 2),
        ("halved", _rename_files(_EXAM)[::2], 2),
        (
            "reflowed",
            _rewrite_texts(_rename_files(_EXAM), lambda text: text.replace(" ", "\n\t").replace("{", " {")),
            2,
        ),
        ("reworded", [replace(one, prompt=f"Please: {one.prompt}") for one in _rename_files(_EXAM)], 2),
        ("mended", [replace(one, reference=f"// {one.name}\n{one.reference}") for one in _rename_files(_EXAM)], 2),
        ("grown", [*_rename_files(_EXAM), *_OTHERS, *_rename_files(_OTHERS)], 2),
        ("half new", _rename_files([*_EXAM[:10], *_OTHERS[10:]]), 2),
        ("mostly new", _rename_files([*_EXAM[:9], *_OTHERS[9:]]), None),
        ("new", _rename_files(_OTHERS), None),
    ],
    ids=itemgetter(0),
)
def test_an_exam_is_known_by_what_it_asks(tmp_path: Path, case: tuple[str, Sequence[Task], int | None]) -> None:
    """Whatever its files are called: the number of the same adapter on it, None where it is another exam."""
    name, tasks, again = case
    store = ArtifactStore(tmp_path / name)
    first, asked = _exam(_EXAM), _exam(tasks)

    assert _count(store, ("a", first), ("a", asked)) == [1, again or 1]
    assert _count(store, ("b", asked)) == [(again or 1) + 1]


def test_another_benchmark_is_another_try(tmp_path: Path) -> None:
    """One with a task less, of the same held-out rows, or none."""
    none = _exam(_EXAM)
    exams = [none, *(replace(none, benchmark=Benchmark(tmp_path, "", sha256 * 64, ())) for sha256 in "ef")]

    assert _count(ArtifactStore(tmp_path), *(("a", exam) for exam in (*exams, *exams))) == [1, 2, 3, 1, 2, 3]


def _exam(tasks: Sequence[Task]) -> EvalSuite:
    return EvalSuite(tuple(tasks), "c" * 64, None, first_heldout_tasks=20, max_rounds=1)


def _count(store: ArtifactStore, *tries: tuple[str, EvalSuite]) -> list[int]:
    device = "cpu float32 dense"
    return [record_try(store, try_of(name * 64, Decoding(), device, exam), now=1).attempt for name, exam in tries]


def _results(hits: int, total: int = 100, **overall: Any) -> EvalResults:
    rate = rate_of([True] * hits + [False] * (total - hits))
    good = {
        "coverage": evaluation().results.adapter.overall.coverage.model_copy(update={"share": 0.9}),
        "stub_rate": rate_of([False] * 100),
        "stop_rate": rate_of([True] * 100),
        **overall,
    }
    gain = compare_paired([False] * 20, [True] * 20)
    served = evaluation(adapter=(GOOD,) * 3, second=(None,)).results
    heldout = {"parse_rate": rate, "resolve_rate": rate_of([True] * total), "num_tasks": total}
    results = with_suite(with_overall(served, **good), Suite.HELDOUT, **heldout)
    progress = PROGRESS.model_copy(update={"num_rounds": 2, "num_reserve": 60})
    return results.model_copy(update={"parse_difference": gain, "test_difference": gain, "progress": progress})


def _asks(
    results: EvalResults, reserve: Sequence[Task] = heldout_files(*[6] * 10), **changes: object
) -> tuple[GateName, ...]:
    thresholds = _CI.model_copy(update=changes)
    return find_undecided(results, thresholds, reserve, is_benchmark_asked=True)


@pytest.mark.parametrize(
    ("hits", "asks"),
    [(90, False), (70, True), (66, True), (60, False), (50, False)],
    ids=["passes", "nearly", "may", "hopeless", "fails"],
)
def test_more_is_asked_where_it_may_tell(hits: int, *, asks: bool) -> None:
    assert _asks(_results(hits)) == ((GateName.PARSE_RATE,) if asks else ())


def test_more_is_asked_where_it_may_tell_how_many_answers_resolve() -> None:
    """In a policy where that blocks: `full`, not `ci`."""
    nearly, hopeless = (
        with_suite(_results(95), Suite.HELDOUT, resolve_rate=rate_of([True] * hits + [False] * (100 - hits)))
        for hits in (47, 30)
    )

    assert _asks(nearly) == ()
    assert _asks(nearly, warn_only=()) == (GateName.RESOLVE_RATE,)
    assert _asks(hopeless, warn_only=()) == ()


def test_a_reserve_that_is_too_small_is_not_asked() -> None:
    assert _asks(_results(74), heldout_files(3)) == ()
    assert _asks(_results(74), ()) == ()


def test_nothing_more_is_asked_of_what_fails_elsewhere() -> None:
    """Ten stubs of a hundred with a ceiling of one: whatever else cannot be told is no matter."""
    stubs = rate_of([True] * 30 + [False] * 70)

    assert _asks(_results(78, stub_rate=stubs)) == ()


def test_gates_that_only_warn_ask_for_nothing() -> None:
    assert _asks(_results(90, stop_rate=rate_of([True] * 85 + [False] * 15))) == ()
    assert _asks(_results(90, stop_rate=rate_of([True] * 85 + [False] * 15)), warn_only=()) == (GateName.STOP_RATE,)


def test_a_small_exam_grows() -> None:
    small = _results(40, 40)
    uncovered = _results(95, coverage=small.adapter.overall.coverage.model_copy(update={"share": 0.4}))

    assert _asks(small) == (GateName.SUITE_SIZE,)
    assert _asks(uncovered) == (GateName.COVERAGE,)


def test_hidden_tests_ask_for_more_where_there_are_more() -> None:
    gain = compare_paired([False] * 20, [True] * 3 + [False] * 17)
    results = _results(95).model_copy(update={"test_difference": gain})
    tested = tuple(task(number, file=f"{number}.vox", tests="@test fn t() { assert(true) }") for number in range(5))

    assert _asks(results, tested) == (GateName.TEST_GAIN,)
    assert _asks(results) == ()


@pytest.mark.parametrize(
    ("changes", "overall", "name"),
    [
        ({"min_test_rate": 0.1}, {"test_rate": rate_of([True] * 5 + [False] * 25)}, GateName.TEST_RATE),
        ({}, {"stub_rate": rate_of([True] * 4 + [False] * 96)}, GateName.ANTI_STUB),
    ],
)
def test_other_rates_ask_for_more_as_well(changes: dict[str, object], overall: dict[str, Any], name: GateName) -> None:
    tested = tuple(task(number, file=f"{number}.vox", tests="@test fn t() { assert(true) }") for number in range(40))

    assert _asks(_results(95, **overall), tested, **changes) == (name,)


def test_the_benchmark_cannot_grow() -> None:
    results = with_suite(_results(95), Suite.BENCHMARK, pass_at_1=rate_of([True] * 5 + [False] * 25))

    assert _asks(results, min_benchmark=0.1) == ()


def test_a_gain_over_the_base_asks_for_more() -> None:
    results = _results(95).model_copy(update={"parse_difference": compare_paired([False] * 5, [True] * 5)})

    assert _asks(results) == (GateName.GAIN_OVER_BASE,)


_POLICY: Final = {
    '    THROUGHPUT = "throughput"\n': '    THROUGHPUT = "throughput"\n    LENGTH = "length"\n',
    "    max_truncation: Share": "    max_length: float = 9\n    max_truncation: Share",
}
_GATE: Final = {
    "GATES: Final": """def _length(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    return Measured(GateStatus.UNDECIDED, 12.0, thresholds.max_length, "completions have 12 tokens: cannot tell yet")


GATES: Final""",
    "    GateName.THROUGHPUT: Gate": """    GateName.LENGTH: Gate("Completions are short", RESULTS, _length),
    GateName.THROUGHPUT: Gate""",
}
_ASK: Final = """
from mens_pipeline.promotion import gate
from mens_pipeline.promotion.report.page import headline
from mens_pipeline_tests.promotion import test_referee
from mens_pipeline_tests.promotion.verdicts import RESULTS, inputs, receipt_of
print(gate.__file__)
print(*test_referee._asks(test_referee._results(90)))
print(*test_referee._asks(test_referee._results(66)))
receipt = receipt_of(*gate.decide(inputs(), test_referee._CI))
print([row.title for row in headline(RESULTS, receipt).gates if row.word == "cannot tell"])
"""


@pytest.mark.slow
def test_a_gate_is_added_in_two_files_and_asks_for_more_where_it_cannot_tell(tmp_path: Path) -> None:
    """As CONTRIBUTING says: name and threshold in one, the measure in the other; rounds and page know it from there."""
    package = tmp_path / "mens_pipeline"
    shutil.copytree(PROJECT_ROOT / "mens_pipeline", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in (("policy.py", _POLICY), ("gate.py", _GATE)):
        text = (package / "promotion" / name).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (package / "promotion" / name).write_text(text)
    for name in ("mens_pipeline_tests", "config"):
        (tmp_path / name).symlink_to(PROJECT_ROOT / name)
    found = subprocess.run(
        [sys.executable, "-c", _ASK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        str(package / "promotion" / "gate.py"),
        "length",
        "parse_rate length",
        "['Completions are short']",
    ]
