"""Telemetry tables in a real PostgreSQL server."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from mens_pipeline.corpus.schema.reasons import TelemetryDrop
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane
from mens_pipeline.corpus.telemetry.table import (
    TelemetryAccount,
    TelemetryQuery,
    read_telemetry,
    telemetry_fingerprint,
    telemetry_pairs,
)
from mens_pipeline.errors import ConfigurationError

pytestmark = pytest.mark.postgres

_TABLES = """
CREATE SCHEMA agents;
CREATE TABLE agents."AgentTelemetry" (id serial PRIMARY KEY, query text, optimal_response text, rating numeric);
INSERT INTO agents."AgentTelemetry" (query, optimal_response, rating) VALUES
    ('Write f for ada@firm.de', 'fn f() { }', 5), ('Explain', 'Like this.', NULL), ('x', 'y', 2.5), (NULL, 'y', 1);
CREATE TABLE agenttelemetry (query text, optimal_response bytea);
INSERT INTO agenttelemetry VALUES ('x', 'y');
CREATE TABLE agents.odd (id serial PRIMARY KEY, query json, optimal_response integer[]);
INSERT INTO agents.odd (query, optimal_response) VALUES (to_json(repeat('x', 1000000)), array_fill(1, ARRAY[100000]));
CREATE TABLE many (query text, optimal_response text);
INSERT INTO many SELECT 'q' || lpad(n::text, 5, '0'), 'r' FROM generate_series(1, 3000) AS n;
CREATE FUNCTION spy() RETURNS SETOF many LANGUAGE sql AS
    'INSERT INTO many VALUES (''spy'', ''spy'') RETURNING *';
CREATE VIEW spied AS SELECT * FROM spy();
"""


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    """Create a database with the tables above for each test."""
    engine = sa.create_engine(sa.make_url(postgres_url).set(drivername="postgresql+psycopg2"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(_TABLES)
    yield postgres_url
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA agents, public CASCADE; CREATE SCHEMA public")


def _query(url: str, **parts: object) -> TelemetryQuery:
    return TelemetryQuery.model_validate({"url": url, **parts})


def test_rows_become_pairs(url: str) -> None:
    tally = TelemetryAccount()
    rows = read_telemetry(_query(url, table="agents.AgentTelemetry", rating_column="rating"))
    pairs = list(telemetry_pairs(rows, tally, "agents.AgentTelemetry"))

    assert [(pair.prompt, pair.response, pair.rating, pair.lane) for pair in pairs] == [
        ("Explain", "Like this.", 4, Lane.DOGFOOD_AGENT),
        ("Write f for REDACTED_EMAIL", "fn f() { }", 5, Lane.CODEGEN),
    ]
    assert tally.dropped == {TelemetryDrop.BAD_RATING: 1, TelemetryDrop.EMPTY: 1}
    tally.check()


def test_folded_names_are_found_and_bytes_are_dropped(url: str) -> None:
    tally = TelemetryAccount()

    assert list(telemetry_pairs(read_telemetry(_query(url)), tally, "AgentTelemetry")) == []
    assert tally.dropped == {TelemetryDrop.NOT_TEXT: 1}
    assert telemetry_fingerprint(_query(url)) == telemetry_fingerprint(_query(url))


def test_many_rows_are_streamed_in_order(url: str) -> None:
    rows = read_telemetry(_query(url, table="many", limit=2000))

    assert [row.query for row in rows] == [f"q{number:05}" for number in range(3000, 1000, -1)]
    assert next(read_telemetry(_query(url, table="many"))).query == "q03000"


def test_nothing_can_be_written(url: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot execute INSERT in a read-only transaction"):
        list(read_telemetry(_query(url, table="spied")))

    assert len(list(read_telemetry(_query(url, table="many")))) == 3000


def test_missing_tables_are_named(url: str) -> None:
    with pytest.raises(ConfigurationError, match="no table other, found agenttelemetry, many, spied"):
        list(read_telemetry(_query(url, table="other")))
    with pytest.raises(ConfigurationError, match=r"no table none\.x, found none"):
        list(read_telemetry(_query(url, table="none.x")))


def test_a_wrong_password_is_not_reported(url: str) -> None:
    wrong = sa.make_url(url).set(password="wr0ng").render_as_string(hide_password=False)  # noqa: S106 - a wrong one

    with pytest.raises(ConfigurationError, match="authentication failed") as error_info:
        list(read_telemetry(_query(wrong)))
    assert "wr0ng" not in str(error_info.value)
    with pytest.raises(ConfigurationError, match='database "none" does not exist'):
        list(read_telemetry(_query(url.replace("/postgres", "/none"))))


def test_other_types_are_cut_and_do_not_train(url: str) -> None:
    (row,) = read_telemetry(_query(url, table="agents.odd"))
    tally = TelemetryAccount()

    assert all(isinstance(value, bytes) and len(value) == MAX_TEXT + 1 for value in (row.query, row.response))
    assert not list(telemetry_pairs([row], tally, "odd"))
    assert tally.dropped == {TelemetryDrop.NOT_TEXT: 1}
