"""Whether the names and types of an answer hold, beside what its task has already.

An answer is the part of a program that was asked for. The rest is there: some of it as code, which is put in front;
some the prompt shows or names; some of it only the reference relies on. Of the last two the names are known, and they
may mean anything.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Final

from mens_pipeline.evaluation.execution import completed
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.language import Code, Diagnostic, Mode, Position, Severity, analyze
from mens_pipeline.language.requests import mentioned_names
from mens_pipeline.language.semantics import semantic_diagnostics

_UNDECLARED: Final = frozenset((Code.UNKNOWN_NAME, Code.UNKNOWN_TYPE, Code.UNKNOWN_VARIANT))


def first_semantic_error(task: Task, program: str) -> Diagnostic | None:
    """Return the first error in names and types of an answer; None where nothing is known to be wrong."""
    asked = frozenset(name for name in (task.name, *(need.name for need in task.requires)) if name is not None)
    assumed = _assumed(task.prompt, task.reference, task.given, task.mode, asked)
    return next((error for error, _ in errors_beside(task.given, program, task.mode, assumed)), None)


@lru_cache(maxsize=1024)
def _assumed(prompt: str, reference: str, given: str, mode: Mode, asked: frozenset[str]) -> frozenset[str]:
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
