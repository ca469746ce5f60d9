"""`mens eval-local`, `mens gate`, `mens promote`, `mens override`: from a trained run to a champion and back."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import Result

from mens_pipeline import settings
from mens_pipeline.promotion.history import champion_key, read_history
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.training.runs import pairs

_SHORT = ("--no-bench", "--device", "cpu")
_NUM_TOKENS = 32
"""Random weights complete under the constraint of the parser, which is slow."""


def _set_up(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("MENS_STORE_ROOT", str(folder / "store"))
    patch.setenv("MENS_CACHE_ROOT", str(folder / "cache"))
    patch.setenv("DAGSTER_HOME", str(folder / "home"))
    patch.setenv("VOX_BENCHMARK", "0")
    (folder / "evaluation.yaml").write_text(f"max_new_tokens: {_NUM_TOKENS}\n")
    patch.setattr(settings, "EVALUATION", folder / "evaluation.yaml")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    _set_up(tmp_path, monkeypatch)
    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A trained run that was not evaluated."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="module")
def first(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder with an evaluated run and its store, and the result of the command."""
    folder = tmp_path_factory.mktemp("judged")
    shutil.copytree(trained, folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        _set_up(folder, patch)
        patch.setattr("mens_pipeline.cli.terminal.run_job", do_here)
        result = invoke("eval-local", "--run-dir", folder / "run", *_SHORT)
    assert result.exit_code == 0, result.stderr
    return folder, result


@pytest.fixture
def scored(first: tuple[Path, Result], store: ArtifactStore) -> Path:
    shutil.copytree(first[0] / "store", store.root)
    return Path(shutil.copytree(first[0] / "run", store.root.parent / "run"))


@pytest.mark.seed_row(21, 45)
@pytest.mark.slow
def test_a_run_is_evaluated_refused_overridden_and_rolled_back(
    first: tuple[Path, Result], scored: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights write no Vox: the gate refuses them, and only a signed record promotes them."""
    said = first[1]
    again = invoke("eval-local", "--run-dir", scored, *_SHORT, "--json")
    gate = invoke("gate", "--run-dir", scored)
    refused = invoke("promote", "--run-dir", scored)
    unsigned = invoke("override", "--run-dir", scored, "--by", "me", "--reason", "only to see that it can")
    monkeypatch.setenv("MENS_OVERRIDE_KEY", "a secret of maintainers")
    signed = invoke("override", "--run-dir", scored, "--by", "me", "--reason", "only to see that it can")
    promoted = invoke("promote", "--run-dir", scored, "--override", scored / "gate_override.json")
    history = invoke("promote", "--history")
    rollback = invoke("promote", "--rollback")

    assert again.exit_code == signed.exit_code == promoted.exit_code == 0, again.stderr
    assert re.search(r"heldout +parse rate( +0/4 \(0.0 %\) 0.0 to 44.5){3} +4/4 ", said.stdout), said.stdout
    assert "adapter: 8/8 completions" in said.stderr
    assert "base with examples: 4/4 completions" in said.stderr
    assert " completions" not in again.stderr
    assert json.loads(again.stdout)["vox_parse_rate"] == 0
    (evaluation,) = (store.root / "eval_results").glob("*/manifest.json")
    assert json.loads(evaluation.read_text())["name"] == "eval-gate-0123abcd"
    assert gate.exit_code == 1
    assert "FAILED     parse_rate: parse rate on held-out prompts 0/4 (0.0 %" in gate.stdout
    assert (scored / "eval_gate_failed.json").is_file()
    assert "<html" in (scored / "report.html").read_text()
    assert "The gate failed: parse_rate" in refusal(refused)
    assert "MENS_OVERRIDE_KEY: not set" in refusal(unsigned)
    assert promoted.stdout.startswith(f"champion: {champion_key(store)}"[:20])
    assert "override" in history.stdout
    assert len(read_history(store)) == 1
    assert "no earlier one can be used" in refusal(rollback)


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_a_run_evaluated_on_other_rows_is_refused(trained: Path, scored: Path, store: ArtifactStore) -> None:
    other, train = scored.parent / "other.jsonl", trained.parent / "train.jsonl"
    write_jsonl(other, pairs(16)[14:])
    seen = refusal(invoke("eval-local", "--run-dir", scored, *_SHORT, "--heldout", train))
    judged = invoke("eval-local", "--run-dir", scored, *_SHORT, "--heldout", other, "--seed-base", "7")
    invoke("gate", "--run-dir", scored)
    refused = refusal(invoke("promote", "--run-dir", scored))
    own = invoke("eval-local", "--run-dir", scored, *_SHORT)
    forgotten = refusal(invoke("promote", "--run-dir", scored))
    left = {path.name for path in scored.iterdir()}
    invoke("gate", "--run-dir", scored)

    assert judged.exit_code == own.exit_code == 0, judged.stderr
    assert "8 prompts and 8 responses of 8 held-out pairs are in 8 rows" in seen
    assert "The held-out set has changed since it was evaluated; evaluate again" in refused
    assert "seed (--seed-base) was 7, now 1337" in refused
    assert left.isdisjoint({"gate_receipt.json", "eval_gate_failed.json"})
    assert "Run `mens gate --run-dir" in forgotten
    assert "held-out set" not in refusal(invoke("promote", "--run-dir", scored))
    assert champion_key(store) is None


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_changed_artifacts_are_not_reused(scored: Path, store: ArtifactStore) -> None:
    (results,) = (store.root / "eval_results").glob("*/eval_results.json")
    completions = sorted((store.root / "generations").glob("*/completions.jsonl"))
    before = [path.read_text() for path in (results, *completions)]
    for path in (results, *completions):
        path.write_text(path.read_text().replace('"stopped":false', '"stopped":true') + " ")
    gate = invoke("gate", "--run-dir", scored)
    again = invoke("eval-local", "--run-dir", scored, *_SHORT)

    assert len(completions) == 3
    assert "eval_results.json. Evaluate again" in refusal(gate)
    assert "base: 4/4 completions" in again.stderr
    assert "adapter: 4/4 completions" in again.stderr
    assert [path.read_text() for path in (results, *completions)] == before
    assert "FAILED     parse_rate" in invoke("gate", "--run-dir", scored).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_a_trial_leaves_no_evaluation(run: Path, store: ArtifactStore) -> None:
    bench = PROJECT_ROOT / "data" / "heldout_bench"
    tried = invoke(
        "eval-local", "--run-dir", run, "--max-tokens", str(_NUM_TOKENS), "--device", "cpu", "--trial", "--bench", bench
    )

    assert tried.exit_code == 0, tried.stderr
    assert "adapter: " in tried.stderr
    assert "base" not in tried.stderr
    assert f"left out: the reference completion does not fit into {_NUM_TOKENS} tokens (--max-tokens)" in tried.stderr
    assert "a trial: no verdict uses these figures" in tried.stdout
    assert (run / "trial_completions.jsonl").is_file()
    assert not (run / "eval_results.json").exists()
    assert not (store.root / "eval_results").exists()


def test_a_run_without_an_evaluation_gets_no_verdict(tmp_path: Path, store: ArtifactStore) -> None:
    result = invoke("gate", "--run-dir", tmp_path)

    assert store.root.exists() is False
    assert "Run `mens eval-local --run-dir" in refusal(result)
    assert "Run `mens gate --run-dir" in refusal(invoke("promote", "--run-dir", tmp_path))
