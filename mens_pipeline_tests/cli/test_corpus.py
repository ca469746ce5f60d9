"""`mens corpus`."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import invoke, refusal

_GOOD, _BAD = '{"prompt": "p", "response": "fn f() { }"}\n', '{"prompt": "p", "response": "fn ("}\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two programs, one of them rejected."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text("fn a() { }\n")
    (root / "b.vox").write_text("fn (\n")
    return root


@pytest.mark.seed_row(35)
def test_extract_writes_records_and_prints_the_account(workspace: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "records.jsonl"
    result = invoke("corpus", "extract", workspace, "-o", output)

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
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    assert output.with_name("records.jsonl.sha256").read_text().startswith(digest)
    again = invoke("corpus", "extract", workspace, "-o", tmp_path / "again.jsonl", "--json")
    assert json.loads(again.stdout)["output_sha256"] == digest


def test_extract_reports_for_machines(workspace: Path, tmp_path: Path) -> None:
    arguments = ["corpus", "extract", str(workspace), "-o", str(tmp_path / "r.jsonl"), "--json"]
    result = invoke(*arguments, "--report", tmp_path / "report.json")
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


@pytest.mark.slow
def test_the_commands_chain_on_the_seed_data(tmp_path: Path) -> None:
    data = PROJECT_ROOT / "data"
    names = ("extracted.jsonl", "checked.jsonl", "pairs.jsonl", "train.jsonl", "again.jsonl")
    extracted, checked, made, train, again = (tmp_path / name for name in names)

    assert invoke("corpus", "extract", data, "-o", extracted).exit_code == 0
    counts = json.loads(invoke("corpus", "validate", extracted, "--no-recheck", "-o", checked, "--json").stdout)
    assert counts["seen"] == len(extracted.read_text().splitlines())
    assert {reason for reason, count in counts["rejected"].items() if count} == {"near_duplicate"}
    paired = invoke(
        "corpus", "pairs", checked, "-o", made, "--docs", data / "docs", "--docs", data / "docs" / "tutorials"
    )
    num_pairs = len(made.read_text().splitlines())
    said, observed, *reasons = paired.stdout.splitlines()
    assert said == f"{num_pairs} pairs in {made}, from {counts['kept']} records"
    num_observed, num_functions = map(int, re.findall(r"(\d+)/(\d+)", observed)[0])
    assert num_functions == num_observed + sum(int(line.split()[0]) for line in reasons)
    assert num_observed > 300
    assert invoke("corpus", "validate", made, "-o", train).stdout.startswith("kept ")
    assert num_pairs >= len(train.read_text().splitlines()) > 1500
    assert invoke("corpus", "validate", train, "-o", again).exit_code == 0
    assert again.read_bytes() == train.read_bytes()


def test_validate_prints_and_writes_its_account(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(_GOOD + _BAD)
    outputs: list[str | Path] = ["--quarantine", tmp_path / "q.jsonl", "--report", tmp_path / "r.json"]
    text = invoke("corpus", "validate", rows, "-o", tmp_path / "o.jsonl", *outputs)
    document = json.loads(invoke("corpus", "validate", rows, "-o", tmp_path / "o.jsonl", "--json").stdout)

    details = f"1 dropped rows and their reasons in {tmp_path / 'q.jsonl'}"
    assert text.stdout == f"kept 1/2 (50.0 %), recheck on\n     1  compiler_rejected\n{details}\n"
    written = json.loads((tmp_path / "r.json").read_text())
    assert written == {**document, "quarantine": str(tmp_path / "q.jsonl")}
    assert json.loads((tmp_path / "q.jsonl").read_text())["line"] == 2


@pytest.mark.seed_row(4, 35)
def test_dropped_rows_are_written_beside_kept_rows(tmp_path: Path) -> None:
    rows, output = tmp_path / "rows.jsonl", tmp_path / "o.jsonl"
    rows.write_text(_GOOD + _BAD)
    first = json.loads(invoke("corpus", "validate", rows, "-o", output, "--json").stdout)
    quarantined = (tmp_path / "o.quarantine.jsonl").read_text()
    rows.write_text(_GOOD)
    second = invoke("corpus", "validate", rows, "-o", output)

    assert json.loads(quarantined)["reason"] == "compiler_rejected"
    assert first["quarantine"] == str(tmp_path / "o.quarantine.jsonl")
    assert first["output_sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()
    assert (tmp_path / "o.jsonl.sha256").read_text() == f"{first['output_sha256']}  o.jsonl\n"
    assert second.stdout == "kept 1/1 (100.0 %), recheck on\n"
    assert (tmp_path / "o.quarantine.jsonl").read_text() == ""


def test_strict_mode_stops_at_the_first_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(_BAD)
    monkeypatch.setenv("VOX_MENS_TRAIN_JSONL_STRICT", "1")
    result = invoke("corpus", "validate", rows, "-o", tmp_path / "o.jsonl")

    assert f"{rows}:1: compiler_rejected: line 1" in refusal(result, RefusedError)
    assert "unset VOX_MENS_TRAIN_JSONL_STRICT" in str(result.exception)
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.seed_row(8)
def test_eval_writes_and_prints_the_figures(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(_GOOD + _BAD)
    silent = invoke("corpus", "eval", rows, "-o", tmp_path / "eval_results.json")
    loud = invoke("corpus", "eval", rows, "-o", tmp_path / "eval_results.json", "--print-summary")
    figures = json.loads((tmp_path / "eval_results.json").read_text())

    said = "FAILED  parse rate 50.0 %, required 70 %; coverage 3.3 %, required 50 %; figures in "
    assert silent.stdout.startswith(said)
    assert silent.exit_code == 0
    assert loud.stdout.startswith(
        "measured: data\nparse rate 1/2 (50.0 %), coverage 1/30 (3.3 %)\n"
        "  vox_codegen 1/2 (50.0 %), coverage 1/30 (3.3 %)\n"
    )
    assert figures["vox_parse_rate"] == 0.5
    assert figures["gate_passed"] is False


@pytest.mark.seed_row(8, 30, 37)
@pytest.mark.parametrize(
    ("variables", "passed"),
    [
        ({}, False),
        ({"VOX_EVAL_MIN_PARSE_RATE": "0.5", "VOX_EVAL_MIN_COVERAGE": "0.03"}, True),
        ({"VOX_EVAL_MIN_PARSE_RATE": "0.51", "VOX_EVAL_MIN_COVERAGE": "0"}, False),
        ({"VOX_EVAL_MIN_PARSE_RATE": "0", "VOX_EVAL_MIN_COVERAGE": "0.04"}, False),
    ],
)
def test_eval_compares_figures_with_their_thresholds(
    variables: dict[str, str], *, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text(_GOOD + _BAD)
    for name, value in {**variables, "VOX_EVAL_STRICT": "1"}.items():
        monkeypatch.setenv(name, value)
    result = invoke("corpus", "eval", tmp_path / "rows.jsonl", "-o", tmp_path / "eval_results.json")

    assert result.exit_code == (0 if passed else 1)
    assert result.stdout.startswith("passed" if passed else "FAILED")
    assert json.loads((tmp_path / "eval_results.json").read_text())["gate_passed"] is passed
