"""Whether a program is right beside what its task has already: its hidden tests, and its names and types.

An answer is the part of a program that was asked for. The rest is there: some of it as code, which is put in front;
some the prompt shows or names; some of it only the reference relies on. Of the last two the names are known, and they
may mean anything.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.schema.prompts import mentioned_names
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.language import (
    Code,
    DeclarationSpan,
    Diagnostic,
    Mode,
    Position,
    Severity,
    analyze,
    declaration_spans,
)
from mens_pipeline.language.interpreter import ErrorClass, Features, ProgramReport, ProgramStatus, Sandbox
from mens_pipeline.language.semantics import semantic_diagnostics

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


_UNDECLARED: Final = frozenset((Code.UNKNOWN_NAME, Code.UNKNOWN_TYPE, Code.UNKNOWN_VARIANT))


def first_semantic_error(task: Task, program: str) -> Diagnostic | None:
    """Return the first error in names and types of an answer; None where nothing is known to be wrong."""
    asked = frozenset(name for name in (task.name, *(need.name for need in task.requires)) if name is not None)
    assumed = _find_assumed(task.prompt, task.reference, task.given, task.mode, asked)
    return next((error for error, _ in errors_beside(task.given, program, task.mode, assumed)), None)


@lru_cache(maxsize=1024)
def _find_assumed(prompt: str, reference: str, given: str, mode: Mode, asked: frozenset[str]) -> frozenset[str]:
    """Return the names that are there: the prompt mentions them, or the reference relies on them undeclared.

    What the answer is asked to declare is not there yet, though the prompt has its name.
    """
    mentioned = frozenset(mentioned_names(prompt)) - asked
    left = errors_beside(given, reference, mode, mentioned)
    return mentioned | {name for error, name in left if error.code in _UNDECLARED}


def errors_beside(given: str, program: str, mode: Mode, assumed: frozenset[str]) -> list[tuple[Diagnostic, str]]:
    """Return the errors in names and types of a program, each with the text at its place.

    `given` are accepted declarations that are there; their own errors are not those of the program. `assumed` are names
    that are there as well.
    """
    text = completed(program, given, mode)
    module = analyze(text, mode).module
    if module is None:  # what is given cannot stand in a script: nothing is known
        return []
    data = text.encode("utf-8", "surrogatepass")
    before = text[: len(text) - len(program)]
    first = Position(len(before.encode("utf-8", "surrogatepass")), before.count("\n"), 0)
    return [
        (
            replace(found, start=_behind(first, found.start), end=_behind(first, found.end)),
            data[found.start.offset : found.end.offset].decode("utf-8", "surrogatepass"),
        )
        for found in semantic_diagnostics(module, text, assumed)
        if found.severity is Severity.ERROR and found.start.offset >= first.offset
    ]


def _behind(first: Position, place: Position) -> Position:
    """Return a place as it is counted from the beginning of a line."""
    return Position(place.offset - first.offset, place.line - first.line, place.column)
