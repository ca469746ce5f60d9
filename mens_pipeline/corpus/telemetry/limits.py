"""Limits on reading a telemetry database of unknown origin: values are cut, and endless queries are stopped."""

import sqlite3
from itertools import count
from typing import Any, Final

import sqlalchemy as sa

from mens_pipeline.corpus.schema.records import MAX_TEXT

_LARGEST_VALUE: Final = 100_000_000
"""Bytes that a value or a row of an SQLite database may take in memory."""

_STEPS: Final = 1_000_000
_MOST_STEPS: Final = 1_000_000_000
"""What SQLite's machine may do for one import, about a minute; a view can be a loop without an end."""


def restrain(connection: Any, _: object) -> None:
    """Limit the bytes, size and time of queries on a database of unknown origin.

    A text that is not UTF-8 must not end the import; its surrogates tell it apart.
    """
    steps = count(_STEPS, _STEPS)
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    connection.set_progress_handler(lambda: next(steps) > _MOST_STEPS, _STEPS)


def short(column: "sa.ColumnElement[Any]") -> "sa.ColumnElement[Any]":
    """Cut a column of SQLite, where any value may stand in any column, as in `beginning`."""
    is_number = sa.func.typeof(column).in_(("integer", "real", "null"))
    return sa.case((is_number, column), else_=sa.func.substr(column, 1, MAX_TEXT + 1))


def beginning(column: "sa.ColumnElement[Any]", kind: object) -> "sa.ColumnElement[Any]":
    """Cut a column of PostgreSQL to what is not too long to train: a value of a gigabyte stays in the database."""
    if isinstance(kind, sa.Numeric | sa.Integer | sa.Boolean):
        return column
    if isinstance(kind, sa.String | sa.LargeBinary):
        return sa.func.substr(column, 1, MAX_TEXT + 1)
    # JSON, lists and whatever else is no text: as bytes, which do not train.
    return sa.func.convert_to(sa.func.substr(sa.cast(column, sa.Text), 1, MAX_TEXT + 1), "UTF8")
