"""Correct programs, such as our data, have no findings, and planted mistakes are found."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.families.templates import load_families
from mens_pipeline.language import Mode, analyze, mode_of
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.language import interpreter
from mens_pipeline_tests.language.examples import GOLDEN, golden_programs
from mens_pipeline_tests.language.semantics.mutations import KINDS, mutants

_DATA = PROJECT_ROOT / "data"
_BENCHMARK = _DATA / "heldout_bench"
_FENCED = re.compile(r"^(?:> )?```vox[^\n]*\n(.*?)^(?:> )?```", re.DOTALL | re.MULTILINE)
_CASES = Path(interpreter.__file__).parent / "conformance.jsonl"
_WITHOUT_THEIR_CONTEXT = {"test/given"}
"""Families whose programs use a function of the request."""

_PASS_DESPITE_MISTAKES = {
    "C1-6": {"duplicate-declaration"},  # the last function of a name counts
    "J2-1": {"type-mismatch"},  # the mistake is not reached
    "J2-2": {"type-mismatch"},  # the value of the wrong type is not used
}
"""Cases that pass although they contain mistakes."""

_WRONG_BY_TYPE = {"hev_064_find_first_3.vox": "type-mismatch"}
"""Wrong solutions of HumanEval-Vox with a mistake in types: an int instead of an Option is returned."""


def _findings(name: str, source: str, *modes: Mode) -> Iterator[str]:
    for mode in modes:
        module = analyze(source, mode).module
        if module is not None:
            for found in semantic_diagnostics(module, source):
                yield f"{name}:{found.start.line}:{found.start.column + 1}: {found.code}: {found.message}"
            return


def test_golden_programs_have_no_findings() -> None:
    findings = [line for name, text in golden_programs().items() for line in _findings(name, text, mode_of(name))]

    assert findings == []
    assert GOLDEN.is_dir()


def test_reference_solutions_have_no_findings() -> None:
    paths = [path for path in sorted(_BENCHMARK.rglob("*.vox*")) if path.parent.name == "solutions"]
    findings = [line for path in paths for line in _findings(path.name, path.read_text("utf-8"), mode_of(path.name))]

    assert findings == []
    assert len(paths) == 250


def test_wrong_solutions_are_wrong_by_value() -> None:
    paths = sorted((_BENCHMARK / "humaneval_vox" / "wrong").glob("*.vox"))
    findings = [line for path in paths for line in _findings(path.name, path.read_text("utf-8"), Mode.SOURCE)]

    assert [line for line in findings if line.partition(":")[0] not in _WRONG_BY_TYPE] == []
    assert len(findings) == len(_WRONG_BY_TYPE)
    assert len(paths) == 660


def test_code_of_pages_has_no_findings() -> None:
    pages = sorted((_DATA / "docs").rglob("*.md"))
    blocks = [
        (page.name, block.replace("\n> ", "\n").removeprefix("> "))
        for page in pages
        for block in _FENCED.findall(page.read_text("utf-8"))
    ]
    findings = [line for name, block in blocks for line in _findings(name, block, Mode.SOURCE, Mode.SCRIPT, Mode.UI)]

    assert findings == []
    assert len(blocks) > 100


def test_generated_programs_have_no_findings() -> None:
    findings: list[str] = []
    for family in load_families():
        for seed in range(2):
            sample = family.make(Random(seed))  # noqa: S311 - a reproducible draw
            if family.name not in _WITHOUT_THEIR_CONTEXT:
                findings += _findings(family.name, sample.response, sample.mode)

    assert findings == []


def test_findings_agree_with_the_interpreter() -> None:
    rows = [json.loads(line) for line in _CASES.read_text("utf-8").splitlines()]
    passing = [row for row in rows if row["outcome"] == "pass"]
    codes = {row["id"]: {line.split(": ")[1] for line in _findings("", row["source"], Mode.SOURCE)} for row in passing}

    assert {name: found for name, found in codes.items() if found} == _PASS_DESPITE_MISTAKES

    kinds = re.compile("TypeError|Undefined|UnknownMethod|Arity|Named|Immutable|NotCallable|Missing|Duplicate|Variant")
    wrong = [row for row in rows if kinds.search(row["outcome"])]
    missed = [row["id"] for row in wrong if not list(_findings("", row["source"], Mode.SOURCE))]

    assert (len(wrong), missed) == (46, [])


@pytest.mark.parametrize("num_mutants", [400, pytest.param(1500, marks=pytest.mark.nightly)])
def test_nearly_all_mistakes_are_found(num_mutants: int) -> None:
    """90 % of each kind, and 97 % of all."""
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for kind, source, module in mutants(golden_programs(), mode_of, num_mutants, seed=0):
        made[kind] += 1
        found[kind] += bool(semantic_diagnostics(module, source))

    assert set(made) == set(KINDS)
    assert made.total() > 0.9 * num_mutants
    assert {kind for kind in KINDS if found[kind] < 0.9 * made[kind]} == set()
    assert found.total() >= 0.97 * made.total()
