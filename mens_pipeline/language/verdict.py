"""An analysis as a record for machines."""

from collections.abc import Sequence
from typing import Any

from mens_pipeline.language.diagnostics import Diagnostic
from mens_pipeline.language.front_end import Analysis
from mens_pipeline.language.taxonomy import histogram, kind_of


def verdict_record(analysis: Analysis) -> dict[str, Any]:
    """Return an analysis in JSON types.

    Returns:
        `ok`; `declarations`, their kinds in order (A2); `constructs`, the histogram (A10), both empty if rejected;
        `diagnostics`, the errors, empty exactly when accepted; `warnings`. Lines count from 1, columns from 0,
        offsets are bytes.
    """
    module = analysis.module
    return {
        "ok": analysis.ok,
        "declarations": [kind_of(declaration) for declaration in module.declarations] if module else [],
        "constructs": histogram(module) if module else {},
        "diagnostics": diagnostic_records(analysis.errors),
        "warnings": diagnostic_records(analysis.warnings),
    }


def diagnostic_records(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Return diagnostics in JSON types."""
    return [
        {
            "line": diagnostic.start.line,
            "column": diagnostic.start.column,
            "offset": diagnostic.start.offset,
            "code": str(diagnostic.code),
            "message": diagnostic.message,
            "advice": diagnostic.advice,
        }
        for diagnostic in diagnostics
    ]
