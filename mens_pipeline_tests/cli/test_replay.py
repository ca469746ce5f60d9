"""`mens replay`: completions of an adapter for lines that a workspace gained later."""

import json
from pathlib import Path

import pytest

from mens_pipeline import settings
from mens_pipeline.corpus.infill.history import read_history
from mens_pipeline.evaluation.replay import RESULTS, ReplayResults
from mens_pipeline.evaluation.results import INSERTS, InsertScore
from mens_pipeline.models.adapter import ADAPTER, MANIFEST
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.corpus.infill.repository import Repository
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.evaluation.replayed import taught_run, weekly_history


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A history of nine weeks."""
    return weekly_history(tmp_path_factory.mktemp("history"))


@pytest.fixture
def run(trained: Path, tmp_path: Path, workspace: Repository, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was shown holes, named after the first commit, and an empty store."""
    for name in ("store", "cache"):
        monkeypatch.setenv(f"MENS_{name.upper()}_ROOT", str(tmp_path / name))
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(workspace.root))
    (tmp_path / "evaluation.yaml").write_text("infill_tokens: 16\n")
    monkeypatch.setattr(settings, "EVALUATION", tmp_path / "evaluation.yaml")
    return taught_run(trained, tmp_path, workspace.first)


@pytest.mark.usefixtures("jobs_here")
def test_a_history_is_replayed(run: Path, tmp_path: Path) -> None:
    said = invoke("replay", "--run-dir", run, "--device", "cpu")
    again = invoke("replay", "--run-dir", run, "--device", "cpu", "--json")

    assert said.exit_code == 0, said.output
    assert "12 holes in 12 commits, of 14 changes since" in said.stdout
    assert "left out: 1 too_long, 1 new_file\n" in said.stdout
    assert "n-gram, lines" in said.stdout
    assert "adapter, week 9" in said.stdout
    assert "drift: holds: " in said.stdout
    results = ReplayResults.model_validate_json(again.stdout)
    assert set(results.parts["lines"]) == {"adapter", "ngram", "left_to_right", "base"}
    assert results.parts["lines"]["ngram"].num_commits == 12
    assert [name for name in results.parts if name.isdecimal()] == list("123456789")
    assert "completions, " not in again.stderr, "kept completions are reused"
    (folder,) = (path.parent for path in (tmp_path / "store").rglob(RESULTS))
    assert f"results {folder}" in said.stdout
    pieces = list(read_models(folder / INSERTS, InsertScore))
    assert {piece.task for piece in pieces} == set(results.times)


@pytest.mark.usefixtures("jobs_here")
def test_a_short_history_decides_nothing(run: Path, workspace: Repository) -> None:
    some = invoke("replay", workspace.root, "--run-dir", run, "--limit", "2", "--device", "cpu")
    none = invoke("replay", "--run-dir", run, "--since", "2030-01-01", "--device", "cpu")

    assert "drift: cannot tell: 2 commits with holes, 12 are needed" in some.stdout, some.output
    assert "0 holes in 0 commits, of 0 changes since 2030-01-01\nleft out: nothing" in none.stdout, none.output
    assert "drift: cannot tell: 0 commits" in none.stdout


@pytest.mark.usefixtures("jobs_here")
def test_the_champion_is_replayed_beside_another_adapter(run: Path, tmp_path: Path) -> None:
    other, _ = promoted_run(run, tmp_path)
    (other / ADAPTER / "note.txt").write_text("Another adapter.")

    alone = invoke("replay", "--limit", "2", "--device", "cpu")
    beside = invoke("replay", "--run-dir", other, "--limit", "2", "--device", "cpu")

    assert alone.exit_code == beside.exit_code == 0, alone.output + beside.output
    assert "adapter before" not in alone.stdout
    assert "adapter before, all " in beside.stdout


def test_holes_are_counted_without_a_model(workspace: Repository) -> None:
    said = invoke("replay", workspace.root, "--since", workspace.first, "--dry-run")
    document = json.loads(invoke("replay", workspace.root, "--since", workspace.first, "--dry-run", "--json").stdout)

    assert f"13 holes in 13 commits, of 14 changes since {workspace.first}\nleft out: 1 new_file" in said.stdout
    assert document["holes"] == read_history(workspace.root, workspace.first, 99).kept
    assert document["by_week"]["9"] == 2
    assert document["dropped"]["new_file"] == 1
    assert "--since 2026-05-01" in invoke("replay", workspace.root, "--dry-run").stderr


def test_an_adapter_that_cannot_be_replayed_is_refused(run: Path, trained: Path) -> None:
    manifest = json.loads((run / MANIFEST).read_text())
    (run / MANIFEST).write_text(json.dumps({**manifest, "vcs_sha": None}))

    assert "no adapter is promoted. Name a run with --run-dir" in refusal(invoke("replay"))
    untaught = invoke("replay", "--run-dir", trained, "--since", "2026-05-01", "--device", "cpu")
    assert "was not trained to complete at a cursor" in refusal(untaught)
    unnamed = invoke("replay", "--run-dir", run, "--device", "cpu")
    assert "Name the commit it was trained on with --since" in refusal(unnamed)
