"""`mens generate-data`."""

import json
import re
from pathlib import Path

import pytest

from mens_pipeline.cli.synthesis import show_pairs
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.settings import PIPELINE_CONFIG, PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import invoke


def test_writes_the_requested_number_of_pairs_and_prints_shares(tmp_path: Path) -> None:
    records, output = tmp_path / "records.jsonl", tmp_path / "synthetic.jsonl"
    assert invoke("corpus", "extract", PROJECT_ROOT / "data" / "golden" / "core", "-o", records).exit_code == 0
    result = invoke("generate-data", "--limit", "100", "-o", output, "--corpus", records)

    assert result.exit_code == 0
    assert len(output.read_text().splitlines()) == 100
    shares = load_pipeline_config(PIPELINE_CONFIG).synthesize.shares
    for kind, share in (("task", shares.task), ("template", shares.template)):
        assert f"{kind:<12} {100 * share:.0f}/100 ({100 * share:.1f} %)" in result.stdout
    assert result.stdout.endswith(f"100 pairs in {output}\n")


def test_long_runs_print_their_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mens_pipeline.cli.synthesis._EVERY_SECONDS", 0)
    result = invoke("generate-data", "--limit", "11", "-o", tmp_path / "s")

    assert len(result.stderr.splitlines()) == 11
    assert re.fullmatch(r"11 of 11 pairs, \d+ a second, 0\.0 min to go", result.stderr.splitlines()[-1])


def test_the_speed_excludes_the_preparation(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = show_pairs(1800, lambda: now)
    for number in range(1, 1801):
        now = 10 + number / 128
        progress(number)

    assert capsys.readouterr().err.splitlines() == [
        "1 of 1800 pairs",
        "641 of 1800 pairs, 128 a second, 0.2 min to go",
        "1281 of 1800 pairs, 128 a second, 0.1 min to go",
    ]


def test_the_report_is_the_account(tmp_path: Path) -> None:
    result = invoke("generate-data", "--limit", "10", "-o", tmp_path / "s", "--json", "--report", tmp_path / "r")

    assert json.loads(result.stdout) == json.loads((tmp_path / "r").read_text())
    assert json.loads(result.stdout)["num_pairs"] == 10
