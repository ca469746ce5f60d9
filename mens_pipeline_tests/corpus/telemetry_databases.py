"""Telemetry databases in SQLite, for tests."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from mens_pipeline.corpus.telemetry.table import TelemetryQuery


def write_database(path: Path, schema: str, rows: Iterable[tuple[object, ...]]) -> Path:
    """Write a database with one table, which the schema creates."""
    table = schema.split("(", maxsplit=1)[0].rsplit(maxsplit=1)[-1]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(schema)
        for row in rows:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - our own
    return path


def run_script(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return path


def query_of(path: Path, **parts: object) -> TelemetryQuery:
    url = sa.URL.create("sqlite", database=str(path)).render_as_string()
    return TelemetryQuery.model_validate({"url": url, **parts})
