"""Programs with the findings that they must give."""

from typing import NamedTuple

from mens_pipeline.language import Code, Diagnostic, Mode
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline_tests.language.examples import parse

SEMANTIC_CODES = frozenset(
    (
        *(Code.UNKNOWN_NAME, Code.UNKNOWN_TYPE, Code.UNKNOWN_VARIANT, Code.DUPLICATE_DECLARATION),
        *(Code.DUPLICATE_FIELD, Code.DUPLICATE_VARIANT, Code.NOT_MUTABLE, Code.OUTSIDE_LOOP),
        *(Code.UNKNOWN_FIELD, Code.MISSING_FIELD, Code.UNKNOWN_METHOD, Code.WRONG_ARGUMENT_COUNT),
        *(Code.WRONG_ARGUMENT_NAME, Code.TYPE_MISMATCH, Code.NOT_CALLABLE, Code.MISSING_VARIANT),
        *(Code.UNREACHABLE_ARM, Code.TRY_OUTSIDE_RESULT, Code.MISSING_RETURN),
    )
)
"""The kinds of findings about names and types; besides them there is `nesting-limit`."""

SHAPE = "type S = | Dot | Bar(n: int) | Box(w: int, name: str)\n"
POINT = "type P { x: int, name: str, note: Option[str] }\n"
NOTE = "@table type Note { title: str, stars: int }\n"
"""Declarations that programs begin with."""


class Row(NamedTuple):
    """A program and its expected findings: codes, each with the text at its place, in source order.

    `says` is what the first message and its advice must contain.
    """

    source: str
    found: tuple[str, ...] = ()
    says: str = ""
    mode: Mode = Mode.SOURCE


def diagnostics_of(source: str, mode: Mode = Mode.SOURCE) -> tuple[Diagnostic, ...]:
    return semantic_diagnostics(parse(source, mode), source)


def assert_row(row: Row) -> None:
    data = row.source.encode()
    found = diagnostics_of(row.source, row.mode)
    shown = tuple(f"{one.code} {data[one.start.offset : one.end.offset].decode()}" for one in found)

    assert shown == row.found, [one.message for one in found]
    assert not row.says or row.says in f"{found[0].message} | {found[0].advice}"
