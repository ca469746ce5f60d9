"""The interpreter gives the outcome that the run-time rules demand, on every example and every golden program."""

import json
import re
from pathlib import Path

from mens_pipeline import language
from mens_pipeline.language import mode_of
from mens_pipeline.language.interpreter import Features, Limits, ProgramStatus, Refusal, run_tests
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.examples import golden_programs
from mens_pipeline_tests.language.interpreter.verdicts import verdict

_LINES = (Path(__file__).parent / "conformance.jsonl").read_text(encoding="utf-8").splitlines()
_EXAMPLES = [json.loads(line) for line in _LINES]


_PATIENT = Limits(test_seconds=60.0, program_seconds=60.0)  # on a busy machine, steps must run out before the time


def _outcome(source: str) -> str:
    report = run_tests(source, _PATIENT)
    if report.status is not ProgramStatus.RAN:
        return str(report.status)
    if len(report.tests) == 1:
        return verdict(report.tests[0])
    return " ".join(f"{result.name}={verdict(result)}" for result in report.tests)


@every("example", _EXAMPLES, ids=lambda example: example["id"])
def test_example_has_its_outcome(example: dict[str, str]) -> None:
    assert _outcome(example["source"]) == example["outcome"]


_WITHOUT_EXAMPLE = {"J7", "T10", "U5", "U6", "R5", "R6", "R7", "R8", "R9", "R10"}
"""Rules about reports, options of a run and the sandbox, which no outcome shows; other tests of this package do."""


def test_the_examples_cite_the_rules_of_the_page() -> None:
    page = (Path(language.__file__).parent / "vox-semantics.md").read_text(encoding="utf-8")

    assert {rule for example in _EXAMPLES for rule in example["rules"]} == (
        set(re.findall(r"\*\*([A-Z]\d+)\*\*", page)) - _WITHOUT_EXAMPLE
    )


_UNSUPPORTED = {
    "agentic/actor_print_shop.vox": Refusal.DATABASE,  # a chain of queries
    "agentic/embed_recipe_match.vox": Refusal.DATABASE,  # a search by vector
    "agentic/pii_patron_erasure.vox": Refusal.CRYPTO,  # a BLAKE3 hash
}
"""Programs whose tests need features that the interpreter does not provide."""

_ALL = Features(check_contracts=True, database=True)
_TESTED = [name for name, source in golden_programs().items() if "@test" in source or "@forall" in source]


def test_golden_programs_pass_their_own_tests() -> None:
    reports = {name: run_tests(golden_programs()[name], features=_ALL, mode=mode_of(name)) for name in _TESTED}
    failures = {(name, result.reason) for name in _TESTED for result in reports[name].tests if not result.passed}

    assert failures == set(_UNSUPPORTED.items())
    assert {report.status for report in reports.values()} <= {ProgramStatus.RAN, ProgramStatus.NO_TESTS}
    assert sum(len(report.tests) for report in reports.values()) == 139


def test_without_contracts_a_fallback_is_not_used() -> None:
    report = run_tests(golden_programs()["core/safe_average.vox"])

    assert not report.passed
