"""`mens train` with the variables of upstream's pages: it evaluates and gates the adapter, or refuses to train."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mens_pipeline import settings
from mens_pipeline.settings import PROJECT_ROOT, load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.training.runs import FAST, pairs
from mens_pipeline_tests.training.small_folder import Encoder
from mens_pipeline_tests.training.tiny_base import write_tiny_base

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_TRAIN = ("train", "--data-dir", "target/dogfood", "--output-dir", "target/dogfood/run")
_BENCH_TASKS = ("fn_add",)
_ASKING = ("VOX_EVAL_STRICT", "VOX_BENCHMARK", "VOX_BENCHMARK_MIN_PASS_RATE")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny base whose tokens are words, so that a program fits into few of them."""
    return write_tiny_base(tmp_path_factory.mktemp("base") / "tiny", Encoder().inner)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pairs, some of them held out; a benchmark of which something fits, and short completions."""
    rows = pairs(64)
    write_jsonl(tmp_path / "target" / "dogfood" / "train.jsonl", rows[:60])
    write_jsonl(tmp_path / "target" / "dogfood" / "heldout.jsonl", rows[60:])
    bench = tmp_path / "mens" / "data" / "heldout_bench"
    shutil.copytree(PROJECT_ROOT / "data" / "heldout_bench", bench)
    manifest = json.loads((bench / "manifest.json").read_text())
    short = [task for task in manifest["benchmarks"] if task["id"] in _BENCH_TASKS]
    (bench / "manifest.json").write_text(json.dumps({**manifest, "benchmarks": short}))
    (tmp_path / "evaluation.yaml").write_text("max_new_tokens: 48\nsyntax: free\nfew_shot_tasks: 0\nfamily_tasks: 0\n")
    monkeypatch.setattr(settings, "EVALUATION", tmp_path / "evaluation.yaml")
    for name in _ASKING:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _train(workspace: Path, base: Path, *options: str, **variables: str) -> "CompletedProcess[str]":
    recipe: dict[str, Any] = {**FAST, "model_name_or_path": base, "max_steps": 1}
    given = {
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        "MENS_STORE_ROOT": str(workspace / "store"),
        "MENS_CACHE_ROOT": str(workspace / "cache"),
        "VOX_BACKEND": "cpu",
        "VOX_BENCHMARK_DIR": "mens/data/heldout_bench",
        **variables,
    }
    return run_main(*_TRAIN, *options, folder=workspace, variables=given)


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
@pytest.mark.seed_row(30, 31, 32, 40, 69)
def test_the_variables_of_the_pages_evaluate_and_gate_the_adapter(base: Path, workspace: Path) -> None:
    run = workspace / "target" / "dogfood" / "run"
    alone = _train(workspace, base)
    left = {path.name for path in run.iterdir()}
    warned = _train(workspace, base, VOX_BENCHMARK="1")
    assert warned.returncode == 0, warned.stderr
    figures = json.loads((run / "eval_results.json").read_text())
    failed = json.loads((run / "eval_gate_failed.json").read_text())
    strict = _train(workspace, base, "--json", VOX_EVAL_STRICT="1", VOX_BENCHMARK="1")
    rate = {"VOX_BENCHMARK_MIN_PASS_RATE": "0.80"}
    demanding = _train(workspace, base, VOX_EVAL_STRICT="1", **rate)
    receipt = json.loads((run / "gate_receipt.json").read_text())

    assert alone.returncode == 0, alone.stderr
    assert left.isdisjoint({"eval_results.json", "gate_receipt.json", "eval_gate_failed.json"})
    assert (
        "next: mens eval-local --run-dir target/dogfood/run, then mens gate --run-dir target/dogfood/run"
        in alone.stderr
    )
    assert "nothing to train" in warned.stderr
    assert "FAILED     parse_rate: parse rate on held-out prompts 0/4 (0.0 %" in warned.stdout
    assert "warning: the gate did not pass; see " in warned.stderr
    assert failed["gate_passed"] is False
    assert figures["adapter"]["suites"]["benchmark"]["num_tasks"] == len(_BENCH_TASKS)
    assert strict.returncode == demanding.returncode == 1
    assert json.loads(strict.stdout)["backend"] == "qlora"
    assert "warning: the gate" not in strict.stderr
    assert receipt["thresholds"]["min_benchmark"] == 0.8
    assert receipt["strict"]
    assert {gate["name"]: gate["passed"] for gate in receipt["gates"]}["benchmark"] is False
    assert "benchmark pass@1" in demanding.stdout


@pytest.mark.slow
@pytest.mark.seed_row(30)
def test_an_adapter_that_cannot_be_evaluated_is_not_trained(base: Path, workspace: Path) -> None:
    """Held-out pairs are missing, or they are also in the train set."""
    dogfood = workspace / "target" / "dogfood"
    write_jsonl(dogfood / "heldout.jsonl", pairs(60)[:4])
    trained = _train(workspace, base, VOX_EVAL_STRICT="1")
    (dogfood / "heldout.jsonl").unlink()
    missing = _train(workspace, base, "--fast-corpus", VOX_EVAL_STRICT="1")

    assert (trained.returncode, missing.returncode) == (1, 1)
    assert "4 prompts and 4 responses of 4 held-out pairs are in 4 rows of " in trained.stderr
    assert (
        "heldout.jsonl: missing, so the adapter could not be evaluated after training. Leave --fast-corpus out"
        in missing.stderr
    )
    assert not (dogfood / "run" / "adapter").exists()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"VOX_BENCHMARK": "0"}, False),
        ({"VOX_BENCHMARK_MIN_PASS_RATE": "0"}, False),
        ({"VOX_EVAL_STRICT": "0"}, False),
        ({"VOX_BENCHMARK": "1"}, True),
        ({"VOX_BENCHMARK_MIN_PASS_RATE": "0.8"}, True),
        ({"VOX_EVAL_STRICT": "1", "VOX_BENCHMARK": "0"}, True),
    ],
)
@pytest.mark.seed_row(30, 31, 32)
def test_a_variable_requests_an_evaluation(
    variables: dict[str, str], *, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in _ASKING:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert load_settings().asks_to_evaluate is expected
