"""Hostile telemetry databases, and the limits of reading them."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mens_pipeline.corpus.schema.records import MAX_TEXT
from mens_pipeline.corpus.telemetry.table import beginning, read_telemetry
from mens_pipeline.errors import ConfigurationError
from mens_pipeline_tests.corpus.telemetry_databases import query_of, run_script, write_database
from mens_pipeline_tests.every import every_row


@pytest.mark.threat("R4")
@pytest.mark.parametrize("kind", ["BLOB", "JSON", "NUMERIC", "TEXT", ""])
@pytest.mark.parametrize("value", [b"x" * 1_000_000, "x" * 1_000_000], ids=["bytes", "text"])
def test_large_values_are_cut(tmp_path: Path, kind: str, value: object) -> None:
    schema = f"CREATE TABLE t (query {kind}, optimal_response {kind})"
    path = write_database(tmp_path / "t.db", schema, [(value, value), (1, 2.5)])
    run_script(path, "CREATE VIEW v AS SELECT query AS query, optimal_response AS optimal_response FROM t")
    for table in ("t", "v"):
        rows = list(read_telemetry(query_of(path, table=table)))

        assert max(len(str(row.query)) for row in rows) <= MAX_TEXT + 1 + len("b''")
        assert {"1", "2.5"} < {str(value) for row in rows for value in (row.query, row.response)}


def test_a_text_does_not_end_at_a_nul(tmp_path: Path) -> None:
    path = write_database(tmp_path / "t.db", "CREATE TABLE t (query, optimal_response)", [("q", "fn f() { }\0x")])

    assert [row.response for row in read_telemetry(query_of(path, table="t"))] == [b"\0"]


@pytest.mark.threat("R4")
def test_an_endless_view_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mens_pipeline.corpus.telemetry.table._MOST_STEPS", 3_000_000)
    path = run_script(
        tmp_path / "endless.db",
        "CREATE VIEW endless AS WITH RECURSIVE n(query, optimal_response) AS "
        "(SELECT 1, 1 UNION ALL SELECT query + 1, 1 FROM n) SELECT * FROM n",
    )

    with pytest.raises(ConfigurationError, match=r"endless\.db: interrupted\. Check"):
        list(read_telemetry(query_of(path, table="endless")))


@pytest.mark.threat("R4")
def test_a_huge_generated_value_is_refused(tmp_path: Path) -> None:
    view = "CREATE VIEW large AS SELECT zeroblob(900000000) AS query, 'x' AS optimal_response"
    path = run_script(tmp_path / "large.db", view)

    with pytest.raises(ConfigurationError, match=r"large\.db: string or blob too big\. Check"):
        list(read_telemetry(query_of(path, table="large")))


@pytest.mark.threat("R4")
@pytest.mark.parametrize("column", [b"extra VARCHAR(" + b"9" * 5_000 + b")", b'"\xff" TEXT PRIMARY KEY'])
def test_a_schema_that_cannot_be_read_is_refused(tmp_path: Path, column: bytes) -> None:
    schema = f"CREATE TABLE t (query TEXT, optimal_response TEXT, {column.decode('latin-1')})"
    path = run_script(tmp_path / "odd.db", schema)
    path.write_bytes(path.read_bytes().replace("\xff".encode(), b"\xff\xfe"))

    with pytest.raises(ConfigurationError, match=r"odd\.db: its schema cannot be read .*Name another table"):
        list(read_telemetry(query_of(path, table="t")))


@every_row(
    (sa.Integer(), "c"),
    (sa.Numeric(), "c"),
    (sa.Text(), "substr(c, 1, 20001)"),
    (sa.LargeBinary(), "substr(c, 1, 20001)"),
    (sa.JSON(), "convert_to(substr(CAST(c AS TEXT), 1, 20001), 'UTF8')"),
)
def test_postgresql_cuts_values(kind: "sa.types.TypeEngine[Any]", read: str) -> None:
    """Numbers are read unchanged, texts and bytes cut, other types as bytes, which do not train."""
    bound = {"literal_binds": True}

    assert str(beginning(sa.column("c"), kind).compile(compile_kwargs=bound)) == read.replace(
        "20001", str(MAX_TEXT + 1)
    )
