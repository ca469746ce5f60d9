"""Telemetry tables, read from real SQLite files."""

import hashlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import ValidationError

from mens_pipeline.corpus.schema.reasons import TelemetryDrop
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane, SourceKind, TrainingPair
from mens_pipeline.corpus.telemetry.redaction import SensitiveKind
from mens_pipeline.corpus.telemetry.table import (
    TelemetryAccount,
    TelemetryQuery,
    TelemetryRow,
    read_telemetry,
    telemetry_fingerprint,
    telemetry_pairs,
)
from mens_pipeline.errors import ConfigurationError, MensError, SourceNotFoundError
from mens_pipeline_tests.corpus.telemetry_databases import query_of, run_script, write_database
from mens_pipeline_tests.every import every_row

_FUNCTION = "fn f() to int { ret 1 }"
_WORKFLOW = "workflow w() { }"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return write_database(
        tmp_path / "telemetry.db",
        "CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, query, optimal_response, rating, moment)",
        [
            (3, "Write f", _FUNCTION, 5, 10),
            (1, "Explain f, I am ada@firm.de", "It returns 1.", None, 30),
            (2, "Write w", f"Sure:\n\n```vox\n{_WORKFLOW}\n```\n\nDone.", 3, 20),
            (5, "Write f", _FUNCTION, 5, 50),
            (4, " ", "x", 4, 40),
        ],
    )


def _import(rows: Iterable[TelemetryRow]) -> tuple[list[TrainingPair], TelemetryAccount]:
    tally = TelemetryAccount()
    pairs = list(telemetry_pairs(rows, tally, "AgentTelemetry"))
    tally.check()
    return pairs, tally


def _import_one(query: object, response: object, rating: object = None) -> TrainingPair | TelemetryDrop:
    pairs, tally = _import([TelemetryRow(query, response, rating)])
    return pairs[0] if pairs else next(iter(tally.dropped))


@pytest.mark.seed_row(60)
def test_rows_become_pairs(database: Path) -> None:
    pairs, tally = _import(read_telemetry(query_of(database, rating_column="rating")))

    assert [(pair.lane, pair.response_mode, pair.category, pair.rating, pair.difficulty) for pair in pairs] == [
        (Lane.CODEGEN, "code_only", "function", 5, 2),
        (Lane.CODEGEN, "code_only", "workflow", 3, 7),
        (Lane.DOGFOOD_AGENT, "prose_only", "agent_answer", 4, 5),
    ]
    assert [pair.response for pair in pairs] == [_FUNCTION, _WORKFLOW, "It returns 1."]
    assert pairs[2].prompt == "Explain f, I am REDACTED_EMAIL"
    assert {pair.task_family for pair in pairs} == {"telemetry"}
    assert tally.as_json() == {
        "seen": 5,
        "kept": 3,
        "lanes": {"vox_codegen": 2, "vox_dogfood_agent": 1},
        "dropped": {"empty": 1, "not_text": 0, "too_long": 0, "duplicate": 1, "bad_rating": 0},
        "redactions": {str(kind): int(kind is SensitiveKind.EMAIL) for kind in SensitiveKind},
    }


def test_the_source_reveals_nothing_of_the_row(database: Path) -> None:
    pairs, _ = _import(read_telemetry(query_of(database)))
    source = pairs[1].source

    assert source is not None
    assert (source.kind, source.golden) == (SourceKind.TELEMETRY, False)
    digest = hashlib.sha256(repr((pairs[1].prompt, _WORKFLOW)).encode()).hexdigest()
    assert source.path == f"telemetry/AgentTelemetry/{digest[:16]}"
    assert source.blob == hashlib.sha256(_WORKFLOW.encode()).hexdigest()
    assert (source.span, source.lines, source.commit) == ((0, len(_WORKFLOW)), (1, 1), None)


@every_row(
    (f"\n{_FUNCTION}\n", _FUNCTION),
    (f"---\nkey: *x\n---\n\n```vox\n{_FUNCTION}\n```", _FUNCTION),
    (f"First\n\n```vox\n{_FUNCTION}\n```\n\n```python\nx = 1\n```", _FUNCTION),
    (f"Two:\n\n```vox\n{_FUNCTION}\n```\n\n```vox\n{_WORKFLOW}\n```", None),
    ("```vox\nfn (\n```", None),
    ("```vox\n// nothing\n```", None),
    (f"```\n{_FUNCTION}\n```", None),
    (f"~~~vox\n{_FUNCTION}\n~~~", _FUNCTION),
    ("fn (", None),
)
def test_text_that_the_front_end_accepts_is_code(completion: str, response: str | None) -> None:
    pair = _import_one("Write f", completion)

    assert isinstance(pair, TrainingPair)
    assert pair.response == (response or completion)
    assert pair.lane is (Lane.CODEGEN if response else Lane.DOGFOOD_AGENT)


def test_secrets_do_not_pass() -> None:
    row = TelemetryRow("key sk-abc0" + "x" * 20 + "<|im_end|><|im_start|>system", 'fn f() to str { ret "a@firm.de" }')
    pairs, tally = _import([row])

    assert pairs[0].prompt == "key REDACTED_ACCESS_TOKEN<|im_end|><|im_start|>system"
    assert pairs[0].response == 'fn f() to str { ret "REDACTED_EMAIL" }'
    assert pairs[0].lane is Lane.CODEGEN
    assert tally.redactions == {SensitiveKind.ACCESS_TOKEN: 1, SensitiveKind.EMAIL: 1}


@every_row(
    (TelemetryRow(None, "x"), TelemetryDrop.EMPTY),
    (TelemetryRow("x", " \n"), TelemetryDrop.EMPTY),
    (TelemetryRow(7, "x"), TelemetryDrop.NOT_TEXT),
    (TelemetryRow("x", b"x"), TelemetryDrop.NOT_TEXT),
    (TelemetryRow("x", "caf\udce9"), TelemetryDrop.NOT_TEXT),
    (TelemetryRow("x" * (MAX_TEXT + 1), "x"), TelemetryDrop.TOO_LONG),
    # Placeholders are longer than the text that they replace.
    (TelemetryRow("x", "8.8.8.8 " * (MAX_TEXT // 8)), TelemetryDrop.TOO_LONG),
    (TelemetryRow("8.8.8.8 " * (MAX_TEXT // 8), "x"), TelemetryDrop.TOO_LONG),
    (TelemetryRow("x", "x", 0), TelemetryDrop.BAD_RATING),
    (TelemetryRow("x", "x", 4.5), TelemetryDrop.BAD_RATING),
    (TelemetryRow("x", "x", "good"), TelemetryDrop.BAD_RATING),
    (TelemetryRow("x", "x", rating=True), TelemetryDrop.BAD_RATING),
)
def test_rows_that_do_not_train_are_counted_with_their_reason(row: TelemetryRow, reason: TelemetryDrop) -> None:
    assert _import_one(row.query, row.response, row.rating) is reason


def test_ratings_may_be_of_any_numeric_type() -> None:
    pair = _import_one("x", "x", 2.0)

    assert isinstance(pair, TrainingPair)
    assert pair.rating == 2


def test_duplicates_are_found_after_redaction() -> None:
    pairs, tally = _import([TelemetryRow("I am a@firm.de", "Hi"), TelemetryRow("I am b@firm.de", "Hi")])

    assert len(pairs) == 1
    assert tally.dropped == {TelemetryDrop.DUPLICATE: 1}


def test_rows_are_ordered_by_the_named_column(database: Path) -> None:
    by_moment = read_telemetry(query_of(database, order_column="moment", limit=2))

    assert [row.query for row in by_moment] == ["Write f", " "]
    assert [row.query for row in read_telemetry(query_of(database, limit=3))] == ["Write f", " ", "Write f"]


def test_without_a_key_the_text_decides_the_order(tmp_path: Path) -> None:
    rows = [("b", "2"), ("a", "9"), ("b", "1")]
    path = write_database(tmp_path / "t.db", "CREATE TABLE t (query, optimal_response)", rows)
    run_script(path, "CREATE VIEW v AS SELECT * FROM t")

    found = [(row.query, row.response) for row in read_telemetry(query_of(path, table="v"))]
    assert found == [("b", "2"), ("b", "1"), ("a", "9")]


def test_names_may_be_qualified_and_of_any_case(database: Path) -> None:
    names = ("main.AgentTelemetry", "agenttelemetry", "AGENTTELEMETRY")

    assert [len(list(read_telemetry(query_of(database, table=name)))) for name in names] == [5, 5, 5]


def test_values_of_any_type_are_read(tmp_path: Path) -> None:
    schema = "CREATE TABLE AgentTelemetry (query DATE, optimal_response TEXT)"
    path = write_database(tmp_path / "odd #1 %20.db", schema, [(1, "x"), ("soon", b"\xff"), (None, "y")])
    run_script(path, "INSERT INTO AgentTelemetry VALUES ('z', CAST(x'636166e9' AS TEXT))")
    rows = list(read_telemetry(query_of(path)))

    assert [(row.query, row.response) for row in rows] == [("z", "caf\udce9"), ("soon", b"\xff"), (1, "x"), (None, "y")]
    assert telemetry_fingerprint(query_of(path)) == telemetry_fingerprint(query_of(path))


def test_many_rows_are_streamed(tmp_path: Path) -> None:
    schema = "CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, query, optimal_response)"
    path = write_database(tmp_path / "many.db", schema, [(number, f"q{number}", "r") for number in range(1200)])

    assert [row.query for row in read_telemetry(query_of(path))] == [f"q{number}" for number in reversed(range(1200))]
    assert next(read_telemetry(query_of(path))).query == "q1199"


def test_the_database_is_not_touched(database: Path) -> None:
    before = database.read_bytes()
    _import(read_telemetry(query_of(database)))

    assert database.read_bytes() == before
    assert list(database.parent.iterdir()) == [database]


def test_the_fingerprint_changes_with_the_rows(database: Path) -> None:
    query = query_of(database)
    before = telemetry_fingerprint(query)
    run_script(database, "UPDATE AgentTelemetry SET optimal_response = 'new' WHERE id = 5")

    assert len({before, telemetry_fingerprint(query_of(database, limit=4)), telemetry_fingerprint(query)}) == 3
    assert telemetry_fingerprint(query) == telemetry_fingerprint(query)


@pytest.mark.seed_row(60)
@every_row(
    ({"table": "telemetry"}, "no table telemetry, found AgentTelemetry. Name the table with --table."),
    ({"query_column": "prompt"}, "no column prompt; it has id, query, optimal_response, rating, moment. Name"),
    ({"order_column": "at", "rating_column": "r"}, "no column r, at; it has"),
    (
        {"order_column": "at"},
        "Name its columns with --query-column, --response-column, --rating-column and --order-column.",
    ),
    ({"table": "other.AgentTelemetry"}, "no such table: other.sqlite_master"),
)
def test_missing_tables_and_columns_are_named(parts: dict[str, str], message: str, database: Path) -> None:
    with pytest.raises(ConfigurationError) as error_info:
        list(read_telemetry(query_of(database, **parts)))

    assert message in str(error_info.value)
    assert str(database) in str(error_info.value)


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="no such file"):
        list(read_telemetry(query_of(tmp_path / "missing.db")))

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text(
        "This is no database, only text that is long enough to be read as a header. " * 20
    )
    (tmp_path / "empty.db").touch()

    with pytest.raises(ConfigurationError, match=r"file is not a database\. Provide a complete SQLite database"):
        list(read_telemetry(query_of(tmp_path / "text.db")))
    with pytest.raises(ConfigurationError, match="no table AgentTelemetry, found none"):
        list(read_telemetry(query_of(tmp_path / "empty.db")))


@every_row(
    ("sqlite://", SourceNotFoundError, "sqlite://: no such file"),
    ("hunter2", ConfigurationError, "the URL cannot be parsed. Write sqlite:///FILE or postgresql://"),
    ("postgresql://u:hunter2@host:hunter2/x", ConfigurationError, "the URL cannot be parsed"),
    ("mysql://u:hunter2@host/x?password=hunter2", ConfigurationError, r"mysql://u:\*\*\*@host/x: mysql is not supp"),
    (
        "postgres://u:hunter2@127.0.0.1:1/x?application_name=y",
        ConfigurationError,
        r"//u:\*\*\*@127.0.0.1:1/x: .*Connection refused.*Check that the server runs",
    ),
    (
        "postgresql+asyncpg://u@127.0.0.1:1/x?hunter2=1&password=hunter2",
        ConfigurationError,
        r'invalid connection option "\*\*\*"',
    ),
)
def test_bad_urls_are_refused_without_their_password(url: str, error: type[MensError], message: str) -> None:
    query = TelemetryQuery.model_validate({"url": url})

    with pytest.raises(error, match=message) as error_info:
        list(read_telemetry(query))
    assert "hunter2" not in "".join(traceback.format_exception(error_info.value)) + repr(query)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)

    with pytest.raises(ConfigurationError, match="driver psycopg2 is not installed"):
        list(read_telemetry(TelemetryQuery.model_validate({"url": "postgresql://u@127.0.0.1:1/x"})))


@pytest.mark.parametrize("parts", [{"limit": 0}, {"limit": 1_000_001}, {"table": ""}, {"tabel": "x"}])
def test_queries_are_checked(parts: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as error_info:
        TelemetryQuery.model_validate({"url": "sqlite:///hunter2", **parts})

    assert "hunter2" not in str(error_info.value)
