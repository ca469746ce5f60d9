"""Whether a program is right: its hidden tests, run in a sandbox."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.language import DeclarationSpan, Mode, analyze, declaration_spans
from mens_pipeline.language.interpreter import ErrorClass, Features, ProgramReport, ProgramStatus, Sandbox

FEATURES: Final = Features(check_contracts=True, database=True)
"""What tests may rely on: contracts hold, and tables are lists of records in memory."""


class Execution(BaseModel):
    """Result of the hidden tests of a task on one answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_tests: int = Field(ge=0, description="Tests that were run.")
    num_passed: int = Field(ge=0)
    error_class: ErrorClass | None = Field(description="Of the first test that does not pass; null when all do.")
    message: str = Field(description="What it says; empty when all pass.")

    @property
    def passed(self) -> bool:
        """Whether there are tests and all of them pass."""
        return self.error_class is None and 0 < self.num_tests == self.num_passed


def run_hidden_tests(pairs: Sequence[tuple[str, str]], num_workers: int = 2) -> list[Execution]:
    """Run programs of a model against hidden tests; nothing they do can hang or harm this process.

    Raises:
        ConfigurationError: Some tests are rejected by the front end, or there are none.
    """
    if not pairs:
        return []
    with Sandbox(num_workers, features=FEATURES) as sandbox:
        return [_execution(report) for report in sandbox.map_with_tests(pairs)]


def completed(program: str, given: str, mode: Mode) -> str:
    """Put in front of a program the given declarations that are not its own."""
    if not given:
        return program
    names = {span.name for span in _spans(program, mode)}
    return "\n\n".join([*(span.cut(given) for span in _spans(given, Mode.SOURCE) if span.name not in names), program])


def _spans(text: str, mode: Mode) -> tuple[DeclarationSpan, ...]:
    module = analyze(text, mode).module
    assert module is not None, "only accepted programs are run"  # noqa: S101 - our own impossibility
    return declaration_spans(text, module)


def _execution(report: ProgramReport) -> Execution:
    return Execution(
        num_tests=len(report.tests),
        num_passed=report.num_passed,
        error_class=report.error_class,
        message=_writable(_message(report)),
    )


def _writable(text: str) -> str:
    """Escape halves of a character, which JSON can smuggle in, so that any file can hold the text of a program."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _message(report: ProgramReport) -> str:
    if report.status is ProgramStatus.REJECTED:
        return report.diagnostics[0].message if report.diagnostics else report.message
    if report.status is not ProgramStatus.RAN:
        return report.message
    failed = next((test for test in report.tests if not test.passed), None)
    return f"{failed.name}: {failed.message}" if failed is not None else ""
