"""The entry point to the check of names and types; rules such as `Q1` and `W6` are in `vox-names-and-types.md`.

It is sound, not complete: each finding is a mistake, but a program without findings may still be wrong.
"""

from collections.abc import Sequence
from typing import Any

from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity
from mens_pipeline.language.front_end import DEEP_STACK, collector_paused, diagnostic_records
from mens_pipeline.language.names.declarations import Findings, Span
from mens_pipeline.language.names.resolver import resolve
from mens_pipeline.language.types.declarations import check


def semantic_diagnostics(module: Module, source: str, assumed: frozenset[str] = frozenset()) -> tuple[Diagnostic, ...]:
    """Check names and types; return up to a hundred findings in source order. `assumed` names need no declaration."""
    return _findings(module, source, assumed).diagnostics()


def first_error(module: Module, source: str, assumed: frozenset[str] = frozenset()) -> Diagnostic | None:
    """Return the first error in names and types; None if there are no errors."""
    found = semantic_diagnostics(module, source, assumed)
    return next((one for one in found if one.severity is Severity.ERROR), None)


def semantic_records(found: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Return findings in JSON types, like the diagnostics of `verdict_record`, each with its `severity`."""
    records = zip(found, diagnostic_records(found), strict=True)
    return [{"severity": str(one.severity), **record} for one, record in records]


def _findings(module: Module, source: str, assumed: frozenset[str]) -> Findings:
    with collector_paused():
        try:
            return DEEP_STACK.run(lambda: _check(module, source, assumed))
        except RecursionError:
            findings = Findings(source)
            message = "nested too deeply for names and types to be checked"
            findings.add(Code.NESTING_LIMIT, Span(0, 0), message, "Split it into functions.", Severity.WARNING)
            return findings


def _check(module: Module, source: str, assumed: frozenset[str]) -> Findings:
    findings = Findings(source)
    names, resolution = resolve(module, findings, assumed)
    check(module, names, resolution, findings)
    return findings
