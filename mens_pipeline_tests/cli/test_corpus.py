"""`mens corpus`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two programs, one of them rejected."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text("fn a() { }\n")
    (root / "b.vox").write_text("fn (\n")
    return root


def test_extract_writes_records_and_prints_the_account(workspace: Path, tmp_path: Path) -> None:
    """Kept, dropped by reason, and where the records are."""
    output = tmp_path / "out" / "records.jsonl"
    result = CliRunner().invoke(app, ["corpus", "extract", str(workspace), "-o", str(output)])

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "vox_file   kept 1/2 (50.0 %)",
        "                1  rejected",
        "page       kept 0/0",
        "section    kept 0/0",
        "block      kept 0/0",
        f"1 records in {output}",
    ]
    assert json.loads(output.read_text())["source"]["path"] == "a.vox"


def test_extract_reports_for_machines(workspace: Path, tmp_path: Path) -> None:
    """Counts on stdout, each drop in the report."""
    arguments = ["corpus", "extract", str(workspace), "-o", str(tmp_path / "r.jsonl"), "--json"]
    result = CliRunner().invoke(app, [*arguments, "--report", str(tmp_path / "report.json")])
    counts = json.loads(result.stdout)
    report = json.loads((tmp_path / "report.json").read_text())

    assert counts["units"]["vox_file"] == {"seen": 2, "kept": 1, "dropped": {"rejected": 1}}
    assert {key: report[key] for key in counts} == counts
    assert report["drops"] == [
        {
            "unit": "vox_file",
            "path": "b.vox",
            "line": 1,
            "reason": "rejected",
            "detail": "expected-name: expected a function name, found `(`",
        }
    ]
