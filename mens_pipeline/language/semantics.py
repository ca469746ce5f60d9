"""Names and types of a program: the one entry point.

The rules, such as `Q1` and `W6`, are those of `vox-names-and-types.md` beside this file. Sound before complete: what
cannot be known is not spoken of, so a finding is a mistake, but a program without findings may still be wrong.
"""

from collections.abc import Sequence
from typing import Any, Final

from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.completion import complete
from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity
from mens_pipeline.language.front_end import DEEP_STACK, analyze, collector_paused, diagnostic_records
from mens_pipeline.language.names.declarations import Findings, Place
from mens_pipeline.language.names.references import resolve
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.types.declarations import check

_NOBODY: Final = "q0"
"""A member that no value has."""


def semantic_diagnostics(module: Module, source: str, assumed: frozenset[str] = frozenset()) -> tuple[Diagnostic, ...]:
    """Find what is wrong with the names and types of a program.

    Names of `assumed` are declared where the program goes; nothing else is known of them.

    Returns:
        The findings in source order, at most a hundred; errors are mistakes, warnings are doubtful.
    """
    return _findings(module, source, assumed).diagnostics()


def members_after(text: str, mode: Mode = Mode.SOURCE, unsettled: str | None = None) -> frozenset[str] | None:
    """Return the names that may stand behind the dot with which a text ends.

    Its completion depends on `unsettled` alone (`ViableText.unsettled`); None for all of it.

    Returns:
        Fields and methods of the value before the dot; None where that is not known, also by what declarations that
        are still to come can tell, or the dot is no access.
    """
    tail = text if unsettled is None else unsettled
    fields, methods = (_members(text, tail, ending, mode) for ending in (_NOBODY, f"{_NOBODY}()"))
    return fields | methods if fields is not None and methods is not None else None


def _members(text: str, tail: str, ending: str, mode: Mode) -> frozenset[str] | None:
    rest = complete(tail + ending, mode, is_strict=True)
    source = text + ending + (rest or "")
    module = analyze(source, mode).module
    return members_at(module, source, len(text)) if module is not None else None


def members_at(module: Module, source: str, offset: int) -> frozenset[str] | None:
    """Return the members of a value that is asked, behind `offset` characters, for one that it has not.

    Returns:
        The fields, or where the name is called the methods; None where the value may have any, or has this one.
    """
    return _findings(module, source, frozenset()).choices.get(offset)


def first_error(module: Module, source: str, assumed: frozenset[str] = frozenset()) -> Diagnostic | None:
    """Return the first mistake in names and types of a program; None where none is known."""
    found = semantic_diagnostics(module, source, assumed)
    return next((one for one in found if one.severity is Severity.ERROR), None)


def semantic_records(found: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Return findings in JSON types: records as those of `verdict_record`, each with its `severity`."""
    records = zip(found, diagnostic_records(found), strict=True)
    return [{"severity": str(one.severity), **record} for one, record in records]


def _findings(module: Module, source: str, assumed: frozenset[str]) -> Findings:
    with collector_paused():
        try:
            return DEEP_STACK.run(lambda: _check(module, source, assumed))
        except RecursionError:
            return _too_deep(source)


def _check(module: Module, source: str, assumed: frozenset[str]) -> Findings:
    findings = Findings(source)
    names, resolution = resolve(module, findings, assumed)
    check(module, names, resolution, findings)
    return findings


def _too_deep(source: str) -> Findings:
    findings = Findings(source)
    message = "nested too deeply for names and types to be checked"
    findings.add(Code.NESTING_LIMIT, Place(0, 0), message, "Split it into functions.", Severity.WARNING)
    return findings
