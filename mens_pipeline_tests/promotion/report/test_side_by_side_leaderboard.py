"""The table of the evaluated adapters."""

import json
from csv import DictReader
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline.promotion.report.side_by_side import read_leaderboard
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.recipe import PREFLIGHT
from mens_pipeline_tests.evaluation.runs import fill_trained, trained, verdict_of


def _rows(table: str) -> list[dict[str, str]]:
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_the_best_evaluated_adapter_comes_first(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, with its newest verdict, its recipe, minutes, commits and machine."""
    for weights, num_good in (("worse", 20), ("best", 40), ("best", 36)):
        run, _ = store.build("qlora_adapter", {"n": weights}, partial(_train, weights=weights))
        verdict_of(run.path, store, num_good)
    monkeypatch.setenv("MENS_STORE_ROOT", str(store.root))
    printed = CliRunner().invoke(app, ["store", "leaderboard"], catch_exceptions=False)
    best, worse = _rows(printed.stdout)

    assert printed.stdout == read_leaderboard(store).format()
    assert (best["recipe"], worse["recipe"]) == ("long", "tiny")
    assert (best["verdict"], worse["verdict"]) == ("passed", "failed")
    assert worse["held-out parse rate"].startswith("20/40 (50.0 %, 95 % interval")
    assert worse["benchmark parse rate"] == "not evaluated"
    assert (best["training"], worse["training"]) == ("3 of 4 steps, 0.2 min", "4 steps, 0.2 min")
    assert (best["machine"], worse["machine"]) == ("a &#124; b", "not on record")
    assert (best["base"], best["evaluated"]) == ("tiny", "2027-01-15")
    assert (best["commit of data"], best["commit of pipeline"]) == ("abc1234", "5ca1ab1e5ca1")


def test_figures_are_written_as_csv_and_parquet(store: ArtifactStore, tmp_path: Path) -> None:
    """Numbers, and nothing for a suite that was not evaluated; both files hold the same."""
    run, _ = store.build("qlora_adapter", {"n": "best"}, partial(_train, weights="best"))
    verdict_of(run.path, store, 36)
    board, csv, parquet = read_leaderboard(store), tmp_path / "board.csv", tmp_path / "board.parquet"
    board.write(csv)
    board.write(parquet)
    (row,) = pq.read_table(parquet).to_pylist()
    (line,) = DictReader(StringIO(csv.read_text()))

    figures = [row[name] for name in ("recipe", "steps", "heldout_parse_rate", "benchmark_parse_rate")]
    assert figures == ["long", 3, 0.9, None]
    assert row["evaluated"].year == 2027
    assert [*line] == [*row]
    assert (float(line["heldout_parse_rate"]), line["benchmark_parse_rate"]) == (0.9, "")
    with pytest.raises(ConfigurationError, match=r"board\.xlsx: expected a name that ends with \.csv or \.parquet"):
        board.write(tmp_path / "board.xlsx")
    with pytest.raises(ConfigurationError, match=r"Name a file in a writable folder"):
        board.write(csv / "board.csv")


def _train(folder: Path, weights: str) -> dict[str, Any]:
    details = fill_trained(folder, weights)
    if weights == "best":
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest["result"]["num_steps"] = 3
        (folder / MANIFEST).write_text(json.dumps({**manifest, "recipe_origins": {"lora_r": "recipe long"}}))
    (folder / PREFLIGHT).write_text(json.dumps({"device": {"name": "a | b"} if weights == "best" else {}}))
    return details


def test_verdicts_without_figures_are_counted(store: ArtifactStore, tmp_path: Path) -> None:
    """Their results are of another version, or missing; without any verdict there is no table."""
    with pytest.raises(RefusedError, match=r"no adapter has been evaluated yet\. Run `mens run`"):
        read_leaderboard(store).format()
    gates = [verdict_of(trained(tmp_path / name, name), store) for name in ("one", "two", "three")]
    (gates[0].path / RESULTS).write_text("{}")
    (gates[1].path / MANIFEST).unlink()
    table = read_leaderboard(store).format()

    assert len(_rows(table)) == 1
    assert table.endswith("\n\n2 more verdicts have figures that this version cannot read.\n")
