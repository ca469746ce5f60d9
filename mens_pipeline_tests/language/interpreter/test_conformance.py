"""The interpreter gives the outcome that the run-time rules demand, on every example of them."""

import json
from pathlib import Path

from mens_pipeline.language.interpreter import Limits, ProgramStatus, run_tests
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.interpreter.verdicts import verdict

_LINES = (Path(__file__).parent / "conformance.jsonl").read_text(encoding="utf-8").splitlines()
_EXAMPLES = [json.loads(line) for line in _LINES]


_PATIENT = Limits(test_seconds=60.0, program_seconds=60.0)
"""On a machine that does much else beside, what runs into its number of steps would run into the clock before."""


def _outcome(source: str) -> str:
    report = run_tests(source, _PATIENT)
    if report.status is not ProgramStatus.RAN:
        return str(report.status)
    if len(report.tests) == 1:
        return verdict(report.tests[0])
    return " ".join(f"{result.name}={verdict(result)}" for result in report.tests)


@every("example", _EXAMPLES, ids=lambda example: example["id"])
def test_example_has_its_outcome(example: dict[str, str]) -> None:
    """One line of the file, one program, one outcome."""
    assert _outcome(example["source"]) == example["outcome"]


def test_there_are_examples_of_both_kinds() -> None:
    """The file is read whole: what must pass, and what must not."""
    passing = sum(example["outcome"] == "pass" for example in _EXAMPLES)

    assert (len(_EXAMPLES), passing) == (234, 151)
