"""`mens telemetry`."""

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import Result

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline_tests.cli.invoking import invoke, refusal, run_main

_ROWS = [("Write f", "fn f() { }", 5), ("Ask ada@firm.de", "I am at 8.8.8.8.", None), ("", "nothing", 3)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with three rows, of which two train."""
    path = tmp_path / "telemetry.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, query, optimal_response, stars)")
    connection.execute("CREATE TABLE Silence (query, optimal_response)")
    connection.executemany("INSERT INTO AgentTelemetry (query, optimal_response, stars) VALUES (?, ?, ?)", _ROWS)
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def _invoke(*arguments: str | Path) -> Result:
    return invoke("telemetry", "import", *arguments)


def test_import_writes_pairs_and_prints_the_account(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--url` takes precedence over the environment."""
    monkeypatch.setenv("MENS_TELEMETRY_URL", "sqlite:///missing.db")
    output = tmp_path / "out" / "pairs.jsonl"
    result = _invoke("--url", url, "-o", output, "--rating-column", "stars")
    pairs = [json.loads(line) for line in output.read_text().splitlines()]

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "kept 2/3 (66.7 %)",
        "lane          1  vox_codegen",
        "lane          1  vox_dogfood_agent",
        "dropped       1  empty",
        "redacted      1  email",
        "redacted      1  ip_address",
        f"2 pairs in {output}",
    ]
    assert [(pair["prompt"], pair["response"], pair["rating"]) for pair in pairs] == [
        ("Ask REDACTED_EMAIL", "I am at REDACTED_IP_ADDRESS.", 4),
        ("Write f", "fn f() { }", 5),
    ]


def test_import_reports_for_machines(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_TELEMETRY_URL", url)
    result = _invoke("-o", tmp_path / "pairs.jsonl", "--limit", "2", "--json", "--report", tmp_path / "report.json")
    counts = json.loads(result.stdout)

    assert counts == json.loads((tmp_path / "report.json").read_text())
    assert (counts["table"], counts["seen"], counts["kept"]) == ("AgentTelemetry", 2, 1)


def test_a_table_without_usable_rows_is_refused(url: str, tmp_path: Path) -> None:
    output = tmp_path / "pairs.jsonl"
    output.write_text("before")
    empty = _invoke("--url", url, "-o", output, "--table", "Silence")
    swapped = _invoke("--url", url, "-o", output, "--query-column", "id")

    assert "Silence: none of 0 rows was kept (it is empty). Check --table" in refusal(empty, RefusedError)
    assert "none of 3 rows was kept (3 not_text)." in refusal(swapped, RefusedError)
    assert output.read_text() == "before"


@pytest.mark.parametrize("variable", [None, ""])
def test_a_database_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    monkeypatch.delenv("MENS_TELEMETRY_URL", raising=False)
    if variable is not None:
        monkeypatch.setenv("MENS_TELEMETRY_URL", variable)
    result = _invoke("-o", tmp_path / "pairs.jsonl")

    assert "Pass --url, or set MENS_TELEMETRY_URL" in refusal(result, ConfigurationError)


def test_options_are_checked(url: str, tmp_path: Path) -> None:
    unnamed = _invoke("--url", url, "-o", tmp_path / "pairs.jsonl", "--table", "")

    assert _invoke("--url", url, "-o", tmp_path / "pairs.jsonl", "--limit", "0").exit_code == 2
    assert "telemetry: table: String should have at least 1 character" in refusal(unnamed, ConfigurationError)


def test_an_error_exits_2_with_one_line_and_no_password(tmp_path: Path) -> None:
    url = {"MENS_TELEMETRY_URL": "postgresql://mens:hunter2@127.0.0.1:1/x"}
    done = run_main("telemetry", "import", "-o", "pairs.jsonl", folder=tmp_path, variables=url)

    assert done.returncode == 2
    assert done.stderr.startswith("mens: postgresql://mens:***@127.0.0.1:1/x: ")
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr
    assert not (tmp_path / "pairs.jsonl").exists()
