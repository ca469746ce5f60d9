"""Hostile rows of JSON and of a telemetry table: endless, nested, malformed, or SQL injections."""

import io
import json
import sqlite3
import tracemalloc
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from mens_pipeline.cli.check import MAX_REQUEST_BYTES, check_stream
from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.mix import MixConfig, MixSource, RecordFormat
from mens_pipeline.corpus.curate.mixed_train_set import read_sources
from mens_pipeline.corpus.curate.validate import Quarantined, Repetition, ValidationReport, validate_rows
from mens_pipeline.corpus.schema.reasons import RejectReason, TelemetryDrop
from mens_pipeline.corpus.schema.records import MAX_TEXT, read_pairs
from mens_pipeline.corpus.telemetry.table import TelemetryAccount, TelemetryQuery, read_telemetry, telemetry_pairs
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import Mode
from mens_pipeline.storage.files import MAX_LINE_BYTES, bounded_lines
from mens_pipeline.storage.jsonl import open_rows, write_text
from mens_pipeline.storage.store import digest_of

pytestmark = pytest.mark.measured  # they cover edge cases of the corpus

_GOOD = json.dumps({"prompt": "Write f.", "response": "fn f() { }"}).encode() + b"\n"


class _Endless(io.RawIOBase):
    """A good row after a very long line that is never in memory, like a file of gigabytes."""

    def __init__(self, length: int) -> None:
        self._rest = length
        self._tail = b"\n" + _GOOD

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = b"x" * min(len(buffer), self._rest)
        self._rest -= len(chunk)
        if not chunk:
            chunk, self._tail = self._tail[: len(buffer)], self._tail[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _endless(length: int) -> BinaryIO:
    return io.BufferedReader(_Endless(length))


def _validate(content: bytes) -> tuple[ValidationReport, list[Quarantined]]:
    refused: list[Quarantined] = []
    report = ValidationReport(recheck=True)
    lines = bounded_lines(io.BytesIO(content), MAX_LINE_BYTES)
    list(validate_rows(lines, report, refused.append, Repetition(None)))
    return report, refused


@pytest.mark.threat("R1")
def test_a_line_of_gigabytes_needs_only_megabytes_of_memory() -> None:
    refused: list[Quarantined] = []
    report = ValidationReport(recheck=True)
    tracemalloc.start()
    kept = list(
        validate_rows(bounded_lines(_endless(200_000_000), MAX_LINE_BYTES), report, refused.append, Repetition(None))
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [row.reason for row in refused] == [RejectReason.TOO_LARGE]
    assert len(kept) == 1
    report.check()
    assert peak < 8 * MAX_LINE_BYTES


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 70_000])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_no_line_is_lost_at_the_limit(length: int, end: bytes) -> None:
    lines = list(bounded_lines(io.BytesIO(b"x" * length + b"\nabc" + end), 10))

    assert lines == [(b"x" * length + b"\n")[:11], b"abc" + end]


@pytest.mark.threat("R1")
def test_a_huge_request_gets_an_error_without_being_held() -> None:
    out = io.StringIO()
    request = json.dumps({"id": 1, "source": "fn f() { }"}).encode() + b"\n"
    summary = check_stream(io.BytesIO(b"x" * (MAX_REQUEST_BYTES + 10) + b"\n" + request), out, Mode.SOURCE)
    first, second = map(json.loads, out.getvalue().splitlines())

    assert (summary.seen, summary.malformed) == (2, 1)
    assert f"line 1 has more than {MAX_REQUEST_BYTES} bytes" in first["error"]
    assert second["ok"]


@pytest.mark.threat("R2")
@pytest.mark.parametrize(
    "line",
    [
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800", "response": "x"}',
        b'{"prompt": "a\0b", "response": "x"}',
        b'{"prompt": "a", "response": "fn f() { }", "rating": ' + b"9" * 10_000 + b"}",
        b'{"prompt": "a", "response": "fn f() { }", "rating": 1e999}',
        b'{"prompt": NaN, "response": "x"}',
        b'{"prompt": "a", "response": "\\u0000"}',
        b"\xff\xfe\x00",
        b"\0",
    ],
    ids=["nested", "objects", "utf8", "surrogate", "nul", "digits", "infinite", "nan", "u0000", "bom", "zero"],
)
def test_a_malformed_row_is_counted_and_dropped(line: bytes) -> None:
    report, refused = _validate(line + b"\n" + _GOOD)

    assert (report.seen, report.kept) == (2, 1)
    assert len(refused) == 1
    assert refused[0].model_dump_json()


@pytest.mark.threat("R2")
def test_a_deeply_nested_trace_is_kept_as_text(tmp_path: Path) -> None:
    """The arguments of a tool are JSON in JSON; if they nest too deep, they are kept as text."""
    row = {"task_prompt": "p", "tool_name": "t", "arguments_json": "[" * 50_000, "result_json": "1", "success": True}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    source = MixSource(path="t.jsonl", record_format=RecordFormat.TOOL_TRACE)
    rows = read_sources(MixConfig(sources=(source,)), tmp_path)["t.jsonl"]

    assert (len(rows.pairs or ()), rows.unreadable) == (1, 0)


def test_the_hash_of_a_source_covers_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"x" * (MAX_LINE_BYTES + 9) + b"\n" + _GOOD)
    rows = read_sources(MixConfig(sources=(MixSource(path="t.jsonl"),)), tmp_path)["t.jsonl"]

    assert (len(rows.pairs or ()), rows.unreadable, rows.sha256) == (1, 1, digest_of(tmp_path / "t.jsonl"))


@pytest.mark.threat("R1")
def test_a_train_set_with_an_endless_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(_GOOD + b'{"prompt": "' + b"x" * MAX_LINE_BYTES + b'"}\n')

    with pytest.raises(RefusedError, match=r"train\.jsonl:2: invalid pair"):
        list(read_pairs(tmp_path / "train.jsonl"))
    with open_rows(tmp_path / "train.jsonl") as lines:
        assert [len(line) for line in lines] == [len(_GOOD), MAX_LINE_BYTES + 1]


@pytest.mark.threat("M18")
def test_a_link_in_place_of_a_temporary_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim").write_text("precious")
    monkeypatch.setattr("mens_pipeline.storage.jsonl.uuid4", lambda: UUID(int=7))
    link = tmp_path / f".out.jsonl.{UUID(int=7).hex}.part"
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigurationError, match=r"out\.jsonl: File exists"):
        write_text(tmp_path / "out.jsonl", "rows\n")
    link.unlink()
    write_text(tmp_path / "out.jsonl", "rows\n")

    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "out.jsonl").read_text() == "rows\n"
    assert not (tmp_path / "out.jsonl").is_symlink()


def _create_database(path: Path, rows: list[tuple[object, object]]) -> TelemetryQuery:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, query TEXT, optimal_response TEXT)")
    connection.executemany("INSERT INTO AgentTelemetry (query, optimal_response) VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    return TelemetryQuery(url=SecretStr(f"sqlite:///{path}"))


@pytest.mark.threat("R3")
def test_a_value_of_gigabytes_stays_in_the_database(tmp_path: Path) -> None:
    query = _create_database(
        tmp_path / "t.db", [("x" * 50_000_000, "a"), ("x" + " " * 50_000_000, "a"), ("Write f", "fn f() { }")]
    )
    tally = TelemetryAccount()
    tracemalloc.start()
    pairs = list(telemetry_pairs(read_telemetry(query), tally, query.table))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [pair.prompt for pair in pairs] == ["Write f"]
    assert tally.dropped == {TelemetryDrop.TOO_LONG: 2}
    assert peak < 10_000_000


@pytest.mark.threat("R3")
def test_the_longest_text_is_read_whole(tmp_path: Path) -> None:
    query = _create_database(tmp_path / "t.db", [("x" * MAX_TEXT, "a"), ("y" * (MAX_TEXT + 1), "a")])
    tally = TelemetryAccount()
    pairs = list(telemetry_pairs(read_telemetry(query), tally, query.table))

    assert [len(pair.prompt) for pair in pairs] == [MAX_TEXT]
    assert tally.dropped == {TelemetryDrop.TOO_LONG: 1}


_INJECTION = 'x"; DROP TABLE AgentTelemetry; --'


@pytest.mark.threat("R5")
@pytest.mark.parametrize(
    "option", ["--table", "--query-column", "--response-column", "--rating-column", "--order-column"]
)
@pytest.mark.parametrize("value", [_INJECTION, "1) UNION SELECT sql FROM sqlite_master--", "query' OR '1'='1"])
def test_rejects_sql_in_names_of_tables_and_columns(tmp_path: Path, option: str, value: str) -> None:
    query = _create_database(tmp_path / "t.db", [("Write f", "fn f() { }")])
    arguments = ["telemetry", "import", "--url", query.url.get_secret_value(), "-o", str(tmp_path / "o"), option, value]
    result = CliRunner().invoke(app, arguments)

    assert isinstance(result.exception, ConfigurationError)
    assert [row.query for row in read_telemetry(query)] == ["Write f"]


@pytest.mark.threat("R5")
def test_a_table_with_a_hostile_name_is_read(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "t.db")
    quoted = '"' + _INJECTION.replace('"', '""') + '"'
    connection.execute("CREATE TABLE AgentTelemetry (query)")
    connection.execute(f"CREATE TABLE {quoted} ({quoted} TEXT, optimal_response TEXT)")
    connection.execute(f"INSERT INTO {quoted} VALUES ('Write f', 'fn f() {{ }}')")  # noqa: S608 - quoted above
    connection.commit()
    connection.close()
    url = SecretStr(f"sqlite:///{tmp_path / 't.db'}")

    assert [
        row.query for row in read_telemetry(TelemetryQuery(url=url, table=_INJECTION, query_column=_INJECTION))
    ] == ["Write f"]
