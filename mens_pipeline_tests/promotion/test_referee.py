"""Evaluating more prompts only if they can decide a gate."""

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
from mens_pipeline_tests.promotion.verdicts import rate

_CI = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("ci")


_SUITE: Final = tuple(
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


_OTHERS: Final = _rewrite_texts(_SUITE, lambda text: text.replace("f", "g"))


@pytest.mark.threat("M13")
@every(
    "case",
    [
        ("itself", _SUITE, 1),
        ("renamed", _rename_files(_SUITE), 1),
        ("reordered", _rename_files(_SUITE[::-1]), 1),
        ("thinned out", _rename_files(_SUITE)[1:], 2),
        ("halved", _rename_files(_SUITE)[::2], 2),
        (
            "reflowed",
            _rewrite_texts(_rename_files(_SUITE), lambda text: text.replace(" ", "\n\t").replace("{", " {")),
            2,
        ),
        ("reworded", [replace(one, prompt=f"Please: {one.prompt}") for one in _rename_files(_SUITE)], 2),
        ("mended", [replace(one, reference=f"// {one.name}\n{one.reference}") for one in _rename_files(_SUITE)], 2),
        ("grown", [*_rename_files(_SUITE), *_OTHERS, *_rename_files(_OTHERS)], 2),
        ("half new", _rename_files([*_SUITE[:10], *_OTHERS[10:]]), 2),
        ("mostly new", _rename_files([*_SUITE[:9], *_OTHERS[9:]]), None),
        ("new", _rename_files(_OTHERS), None),
    ],
    ids=itemgetter(0),
)
def test_a_suite_is_identified_by_its_prompts(tmp_path: Path, case: tuple[str, Sequence[Task], int | None]) -> None:
    """File names do not matter: the number of the same adapter on it, None if it is another suite."""
    name, tasks, again = case
    store = ArtifactStore(tmp_path / name)
    first, asked = _build_suite(_SUITE), _build_suite(tasks)

    assert _count(store, ("a", first), ("a", asked)) == [1, again or 1]
    assert _count(store, ("b", asked)) == [(again or 1) + 1]


def test_another_benchmark_is_another_try(tmp_path: Path) -> None:
    """Another benchmark beside the same held-out rows, or none."""
    none = _build_suite(_SUITE)
    suites = [none, *(replace(none, benchmark=Benchmark(tmp_path, "", sha256 * 64, ())) for sha256 in "ef")]

    assert _count(ArtifactStore(tmp_path), *(("a", suite) for suite in (*suites, *suites))) == [1, 2, 3, 1, 2, 3]


def _build_suite(tasks: Sequence[Task]) -> EvalSuite:
    return EvalSuite(tuple(tasks), "c" * 64, None, first_heldout_tasks=20, max_rounds=1)


def _count(store: ArtifactStore, *tries: tuple[str, EvalSuite]) -> list[int]:
    device = "cpu float32 dense"
    return [record_try(store, try_of(name * 64, Decoding(), device, suite), now=1).attempt for name, suite in tries]


def _results(hits: int, total: int = 100, **overall: Any) -> EvalResults:
    good = {
        "coverage": evaluation().results.adapter.overall.coverage.model_copy(update={"share": 0.9}),
        "stub_rate": rate_of([False] * 100),
        "stop_rate": rate_of([True] * 100),
        **overall,
    }
    gain = compare_paired([False] * 20, [True] * 20)
    served = evaluation(adapter=(GOOD,) * 3, second=(None,)).results
    heldout = {"parse_rate": rate(hits, total), "resolve_rate": rate_of([True] * total), "num_tasks": total}
    results = with_suite(with_overall(served, **good), Suite.HELDOUT, **heldout)
    progress = PROGRESS.model_copy(update={"num_rounds": 2, "num_reserve": 60})
    return results.model_copy(update={"parse_difference": gain, "test_difference": gain, "progress": progress})


def _list_undecided(
    results: EvalResults, reserve: Sequence[Task] = heldout_files(*[6] * 10), **changes: object
) -> tuple[GateName, ...]:
    thresholds = _CI.model_copy(update=changes)
    return find_undecided(results, thresholds, reserve, is_benchmark_asked=True)


def _add_gain(results: EvalResults, name: str, gains: int, total: int) -> EvalResults:
    gain = compare_paired([False] * total, [True] * gains + [False] * (total - gains))
    return results.model_copy(update={name: gain})


_TESTED: Final = tuple(
    task(number, file=f"{number}.vox", tests="@test fn t() { assert(true) }") for number in range(40)
)
_WARNING: Final = _results(90, stop_rate=rate(85, 100))
_RESOLVING, _HOPELESS = (with_suite(_results(95), Suite.HELDOUT, resolve_rate=rate(hits, 100)) for hits in (47, 30))
_UNCOVERED: Final = _results(95).adapter.overall.coverage.model_copy(update={"share": 0.4})
_NO_GAIN: Final = _add_gain(_results(95), "test_difference", 3, 20)
_NOTHING: Final[dict[str, Any]] = {}


@every(
    "case",
    [
        ("passes", _results(90), _NOTHING, None),
        ("nearly passes", _results(70), _NOTHING, GateName.PARSE_RATE),
        ("may pass", _results(66), _NOTHING, GateName.PARSE_RATE),
        ("hopeless", _results(60), _NOTHING, None),
        ("fails", _results(50), _NOTHING, None),
        ("small reserve", _results(74), {"reserve": heldout_files(3)}, None),
        ("no reserve", _results(74), {"reserve": ()}, None),
        ("fails elsewhere", _results(78, stub_rate=rate(30, 100)), _NOTHING, None),
        ("only warns", _WARNING, _NOTHING, None),
        ("blocks", _WARNING, {"warn_only": ()}, GateName.STOP_RATE),
        ("resolves, which warns", _RESOLVING, _NOTHING, None),
        ("resolves, which blocks", _RESOLVING, {"warn_only": ()}, GateName.RESOLVE_RATE),
        ("never resolves", _HOPELESS, {"warn_only": ()}, None),
        ("small suite", _results(40, 40), _NOTHING, GateName.SUITE_SIZE),
        ("uncovered", _results(95, coverage=_UNCOVERED), _NOTHING, GateName.COVERAGE),
        ("more hidden tests", _NO_GAIN, {"reserve": _TESTED[:5]}, GateName.TEST_GAIN),
        ("no more hidden tests", _NO_GAIN, _NOTHING, None),
        ("tests", _results(95, test_rate=rate(5, 30)), {"reserve": _TESTED, "min_test_rate": 0.1}, GateName.TEST_RATE),
        ("stubs", _results(95, stub_rate=rate(4, 100)), {"reserve": _TESTED}, GateName.ANTI_STUB),
        (
            "benchmark, which cannot grow",
            with_suite(_results(95), Suite.BENCHMARK, pass_at_1=rate(5, 30)),
            {"min_benchmark": 0.1},
            None,
        ),
        ("gain", _add_gain(_results(95), "parse_difference", 5, 5), _NOTHING, GateName.GAIN_OVER_BASE),
    ],
    ids=itemgetter(0),
)
def test_more_prompts_follow_if_they_can_decide(case: tuple[str, EvalResults, dict[str, Any], GateName | None]) -> None:
    """Not for a gate that only warns, nor if another one fails, nor from a reserve that cannot decide."""
    _, results, given, name = case

    assert _list_undecided(results, **given) == (() if name is None else (name,))


_POLICY: Final = {
    '    THROUGHPUT = "throughput"\n': '    THROUGHPUT = "throughput"\n    LENGTH = "length"\n',
    "    max_truncation: Share": "    max_length: float = 9\n    max_truncation: Share",
}
_GATE: Final = {
    "GATES: Final": """def _length(inputs: GateInputs, thresholds: Thresholds) -> Measured:
    return Measured(GateStatus.UNDECIDED, 12.0, thresholds.max_length, "completions have 12 tokens: undecided")


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
print(*test_referee._list_undecided(test_referee._results(90)))
print(*test_referee._list_undecided(test_referee._results(66)))
receipt = receipt_of(*gate.decide(inputs(), test_referee._CI))
print([row.title for row in headline(RESULTS, receipt).gates if row.word == "undecided"])
"""


@pytest.mark.slow
def test_a_new_gate_needs_two_files_and_gets_more_prompts(tmp_path: Path) -> None:
    """As CONTRIBUTING says: name and threshold in one, the measure in the other; rounds and page use them."""
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
