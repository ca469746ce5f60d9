"""`mens scratch train`, `mens training native`, `mens merge-weights`: a model from scratch, as a user makes it."""

import json
from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError, SourceNotFoundError
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.training.runs import pairs

_SMALL = ("--config", "small", "--max-steps", "3", "--checkpoint-every", "1", "--device", "cpu")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a train set, and an empty cache."""
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    write_jsonl(tmp_path / "data" / "train.jsonl", pairs(60))
    return tmp_path / "data"


@pytest.mark.seed_row(24)
@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
@pytest.mark.parametrize(
    "command", [("training", "native"), pytest.param(("scratch", "train"), marks=pytest.mark.nightly)], ids=" ".join
)
def test_a_train_set_becomes_a_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str]
) -> None:
    monkeypatch.setenv("VOX_BACKEND", "cpu")
    options = ("--data-dir", data, "--output-dir", tmp_path / "run", *_SMALL[:-2])
    first = invoke(*command, *options)
    again = invoke(*command, *options, "--json")
    manifest = json.loads((tmp_path / "run" / "training_manifest.json").read_text())
    merged = invoke("merge-weights", tmp_path / "run", "--output-dir", tmp_path / "mean", "--last", "2")

    assert (first.exit_code, again.exit_code, merged.exit_code) == (0, 0, 0), first.stderr
    assert first.stderr.startswith("device cpu: ")
    assert "small: 892,928 weights, 133 ids, from random weights\n60/60 rows are shown\n" in first.stderr
    assert "step 3/3  loss " in first.stderr
    assert first.stdout.startswith("3 steps, ")
    assert first.stdout.endswith(f"model in {tmp_path / 'run' / 'model'}\n")
    assert "this run is already complete; nothing to train" in again.stderr
    assert json.loads(again.stdout) == manifest
    assert (manifest["lane"], manifest["vox_backend"], manifest["result"]["device"]) == ("scratch", "cpu", "cpu")
    assert merged.stdout.startswith(f"mean of 2 models in {tmp_path / 'mean'}, SHA-256 ")
    assert (tmp_path / "mean" / "model.safetensors").is_file()


def test_a_dry_run_reports_and_trains_nothing(data: Path, tmp_path: Path) -> None:
    rows = [pair.model_copy(update={"response": "x" * 900}) for pair in pairs(3)]
    write_jsonl(data / "train.jsonl", [*pairs(60), *rows])
    result = invoke("scratch", "train", "--data-dir", data, "--output-dir", tmp_path / "run", *_SMALL, "--dry-run")
    document = json.loads(result.stdout)

    assert result.exit_code == 0
    assert "60/63 rows are shown, skipped 3 too_long\n" in result.stderr
    assert document["num_parameters"] == 892_928
    assert document["data"]["skipped"]["too_long"] == 3
    assert document["num_steps"] == 3
    assert not (tmp_path / "run" / "model").exists()


def test_the_full_model_is_the_default(data: Path, tmp_path: Path) -> None:
    result = invoke("scratch", "train", "--data-dir", data, "--output-dir", tmp_path / "run", "--dry-run")

    assert json.loads(result.stdout)["num_parameters"] == 38_227_968


def test_refuses_unusable_options_and_data(data: Path, tmp_path: Path) -> None:
    output = ("--output-dir", tmp_path / "run", *_SMALL)
    wrong = invoke("scratch", "train", "--data-dir", data, *output, "--seq-len", "513")
    missing = invoke("scratch", "train", "--data-dir", tmp_path, *output)
    nowhere = invoke("scratch", "train", "--data-dir", data, *output, "--model", tmp_path / "nowhere")
    other = invoke("scratch", "train", "--data-dir", data, *output, "--model", data)
    write_jsonl(data / "train.jsonl", pairs(49))
    few = invoke("scratch", "train", "--data-dir", data, *output)

    assert "max_length is 513, and the model has 512 positions" in refusal(wrong, ConfigurationError)
    assert isinstance(missing.exception, SourceNotFoundError)
    assert isinstance(nowhere.exception, SourceNotFoundError)
    assert "no checkpoint of the scratch lane. Name a run of `mens scratch train`" in refusal(other)
    assert "46 rows train, 50 are needed (left out: 3 for measuring). Extract more data" in refusal(few, RefusedError)


def test_a_bad_line_is_skipped_or_ends_a_strict_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = data / "train.jsonl"
    train.write_text(train.read_text() + "no row\n")
    command = ("scratch", "train", "--data-dir", data, "--output-dir", tmp_path / "run", *_SMALL, "--dry-run")
    lenient = invoke(*command)
    monkeypatch.setenv("VOX_MENS_TRAIN_JSONL_STRICT", "1")

    assert "60/61 rows are shown, skipped 1 not_a_pair" in lenient.stderr
    assert "train.jsonl:61: not a pair" in refusal(invoke(*command))


@pytest.mark.seed_row(22)
def test_an_adapter_is_merged_by_another_command(tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    result = invoke("merge-weights", tmp_path, "--output-dir", tmp_path / "out")

    assert f"Run: mens merge --run-dir {tmp_path}" in refusal(result, RefusedError)
