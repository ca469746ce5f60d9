"""`mens eval-local`, `mens gate`, `mens promote`, `mens override`: from a trained run to a champion and back."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mens_pipeline import settings
from mens_pipeline.cli.main import app
from mens_pipeline.corpus.jsonl import write_jsonl
from mens_pipeline.corpus.store import ArtifactStore
from mens_pipeline.errors import MensError, RefusedError
from mens_pipeline.evaluation.history import champion_key, history_of
from mens_pipeline.settings import PROJECT_ROOT, training_environment
from mens_pipeline.training.finish import finish_run
from mens_pipeline.training.job import MODULE
from mens_pipeline.training.launch import run_child
from mens_pipeline_tests.training.runs import pairs, prepared, resolved
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_SHORT = ("--no-bench", "--device", "cpu")


def _invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def _message(result: Result) -> str:
    assert isinstance(result.exception, MensError)
    return str(result.exception)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a tiny base, with held-out pairs beside its train set."""
    folder = tmp_path_factory.mktemp("trained")
    base = write_tiny_base(folder / "base")
    write_jsonl(folder / "heldout.jsonl", pairs(12)[8:])
    run = prepared(base, folder, number=8)
    code = run_child(MODULE, run.job_path, training_environment(), lambda: None, 60, folder / "child.log")
    finish_run(run, resolved(base), "0123abcd", code)
    return folder / "run"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """A store of its own, no benchmark, and short answers as the exam asks for them."""
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VOX_BENCHMARK", "0")
    (tmp_path / "evaluation.yaml").write_text("max_new_tokens: 60\n")
    monkeypatch.setattr(settings, "EVALUATION", tmp_path / "evaluation.yaml")
    return ArtifactStore(tmp_path / "store")


@pytest.mark.slow
def test_a_run_is_judged_refused_overridden_and_rolled_back(
    trained: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random weights write no Vox: the gate says so, and only a signed record gets them in."""
    first = _invoke("eval-local", "--run-dir", trained, *_SHORT)
    again = _invoke("eval-local", "--run-dir", trained, *_SHORT, "--json")
    gate = _invoke("gate", "--run-dir", trained)
    refused = _invoke("promote", "--run-dir", trained)
    unsigned = _invoke("override", "--run-dir", trained, "--by", "me", "--reason", "only to see that it can")
    monkeypatch.setenv("MENS_OVERRIDE_KEY", "a secret of maintainers")
    signed = _invoke("override", "--run-dir", trained, "--by", "me", "--reason", "only to see that it can")
    promoted = _invoke("promote", "--run-dir", trained, "--override", trained / "gate_override.json")
    history = _invoke("promote", "--history")
    rollback = _invoke("promote", "--rollback")

    assert first.exit_code == again.exit_code == signed.exit_code == promoted.exit_code == 0, first.stderr
    assert re.search(r"heldout +parse rate( +0/4 \(0.0 %\) 0.0 to 44.5){3} +4/4 ", first.stdout), first.stdout
    assert "adapter: 8/8 answers" in first.stderr
    assert "base with examples: 4/4 answers" in first.stderr
    assert "answers" not in again.stderr
    assert json.loads(again.stdout)["vox_parse_rate"] == 0
    (evaluation,) = (store.root / "eval_results").glob("*/manifest.json")
    assert json.loads(evaluation.read_text())["name"] == "eval-gate-0123abcd"
    assert gate.exit_code == 1
    assert "FAILED     parse_rate: parse rate on held-out requests 0/4 (0.0 %" in gate.stdout
    assert (trained / "eval_gate_failed.json").is_file()
    assert "<html" in (trained / "report.html").read_text()
    assert "The gate failed: parse_rate" in _message(refused)
    assert "MENS_OVERRIDE_KEY: not set" in _message(unsigned)
    assert promoted.stdout.startswith(f"champion: {champion_key(store)}"[:20])
    assert "override" in history.stdout
    assert len(history_of(store)) == 1
    assert "no other one before it may be used" in _message(rollback)


@pytest.mark.slow
def test_a_run_judged_by_other_rows_is_refused(trained: Path, store: ArtifactStore) -> None:
    """Whatever file a person names, the one beside the train set is what counts; judging anew forgets the verdict."""
    other, train = trained.parent / "other.jsonl", trained.parent / "train.jsonl"
    write_jsonl(other, pairs(16)[12:])
    seen = _message(_invoke("eval-local", "--run-dir", trained, *_SHORT, "--heldout", train))
    judged = _invoke("eval-local", "--run-dir", trained, *_SHORT, "--heldout", other, "--seed-base", "7")
    _invoke("gate", "--run-dir", trained)
    refused = _message(_invoke("promote", "--run-dir", trained))
    own = _invoke("eval-local", "--run-dir", trained, *_SHORT)
    forgotten = _message(_invoke("promote", "--run-dir", trained))
    left = {path.name for path in trained.iterdir()}
    _invoke("gate", "--run-dir", trained)

    assert judged.exit_code == own.exit_code == 0, judged.stderr
    assert "8 requests and 8 answers of 8 held-out pairs stand in 8 rows" in seen
    assert "The held-out set is not the one it was judged by; evaluate again" in refused
    assert "seed (--seed-base) was 7, it is 1337" in refused
    assert left.isdisjoint({"gate_receipt.json", "eval_gate_failed.json"})
    assert "Run `mens gate --run-dir" in forgotten
    assert "held-out set" not in _message(_invoke("promote", "--run-dir", trained))
    assert champion_key(store) is None


@pytest.mark.slow
def test_what_was_changed_in_the_store_is_not_used_again(trained: Path, store: ArtifactStore) -> None:
    """Answers are generated anew, and an evaluation that somebody edited gets no verdict until it is made anew."""
    _invoke("eval-local", "--run-dir", trained, *_SHORT)
    (results,) = (store.root / "eval_results").glob("*/eval_results.json")
    answers = sorted((store.root / "generations").glob("*/answers.jsonl"))
    before = [path.read_text() for path in (results, *answers)]
    for path in (results, *answers):
        path.write_text(path.read_text().replace('"stopped":false', '"stopped":true') + " ")
    gate = _invoke("gate", "--run-dir", trained)
    again = _invoke("eval-local", "--run-dir", trained, *_SHORT)

    assert len(answers) == 3
    assert "eval_results.json. Evaluate again" in _message(gate)
    assert "base: 4/4 answers" in again.stderr
    assert "adapter: 4/4 answers" in again.stderr
    assert [path.read_text() for path in (results, *answers)] == before
    assert "FAILED     parse_rate" in _invoke("gate", "--run-dir", trained).stdout


@pytest.mark.slow
def test_a_trial_leaves_no_exam_behind(trained: Path, store: ArtifactStore) -> None:
    """The adapter alone is asked; there is nothing that a verdict could rest on."""
    for name in ("eval_results.json", "judged_answers.jsonl", "report.html"):
        (trained / name).unlink(missing_ok=True)
    bench = PROJECT_ROOT / "data" / "heldout_bench"
    tried = _invoke(
        "eval-local", "--run-dir", trained, "--max-tokens", "60", "--device", "cpu", "--trial", "--bench", bench
    )
    without = _invoke("eval-local", "--run-dir", trained, *_SHORT, "--trial")

    assert tried.exit_code == 0, tried.stderr
    assert "adapter: " in tried.stderr
    assert "base" not in tried.stderr
    assert "not asked: not even their reference fits into 60 tokens" in tried.stderr
    assert "a trial: no verdict rests on it" in tried.stdout
    assert (trained / "trial_answers.jsonl").is_file()
    assert not (trained / "eval_results.json").exists()
    assert not (store.root / "eval_results").exists()
    assert "--no-bench leaves it out" in _message(without)


def test_a_run_that_was_not_judged_gets_no_verdict(tmp_path: Path, store: ArtifactStore) -> None:
    """The message names the command that comes first."""
    result = _invoke("gate", "--run-dir", tmp_path)

    assert store.root.exists() is False
    assert "Run `mens eval-local --run-dir" in _message(result)
    assert "Run `mens gate --run-dir" in _message(_invoke("promote", "--run-dir", tmp_path))


def test_a_folder_without_a_run_is_not_judged(tmp_path: Path) -> None:
    """There is no manifest."""
    result = _invoke("eval-local", "--run-dir", tmp_path)

    assert isinstance(result.exception, RefusedError)
    assert "Name the folder of a complete run of `mens train`" in _message(result)
