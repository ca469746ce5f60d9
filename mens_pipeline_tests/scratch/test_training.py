"""Training from scratch: loss, records, and reproducible models."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import RESULT, newest_checkpoint
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.scratch.recipe import SHAPES, ScratchConfig, Shape
from mens_pipeline.scratch.run import WEIGHTS, PreparedScratch, finish_scratch, format_card
from mens_pipeline.scratch.tokenizer import decode
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.scratch.runs import prepare_fast

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn of future changes


def _train(run: PreparedScratch) -> dict[str, Any]:
    from mens_pipeline.scratch.train import train  # noqa: PLC0415 - loads the deep learning stack

    assert train(run.job)
    result: dict[str, Any] = json.loads((run.job.run_dir / RESULT).read_text())
    return result


@pytest.mark.slow
@pytest.mark.seed_row(24)
def test_the_loss_falls(tmp_path: Path) -> None:
    """From that of a random guess among 133 ids to less than half of it, in forty steps."""
    run = prepare_fast(tmp_path, num_train_epochs=10, save_steps=1000, learning_rate=3e-3)
    _train(run)
    losses = [step["loss"] for step in steps_of(run.job.run_dir / TELEMETRY)]

    assert len(losses) == 40
    assert losses[0] == pytest.approx(math.log(133), abs=0.2)
    assert losses[-1] < losses[0] / 2


@pytest.mark.nightly
def test_a_trained_model_writes_a_program_like_its_rows(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = prepare_fast(tmp_path, num_train_epochs=100, per_device_train_batch_size=16, save_steps=1000)
    _train(run)
    model = AutoModelForCausalLM.from_pretrained(run.job.run_dir / "model")
    tokenizer = AutoTokenizer.from_pretrained(run.job.run_dir / "model")
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": run.job.system_prompt}, {"role": "user", "content": "Write a function f3."}],
        tokenize=False,
        add_generation_prompt=True,
    )
    inputs = tokenizer(text, return_tensors="pt")
    completion = model.eval().generate(**inputs, max_new_tokens=80, do_sample=False)[0, inputs["input_ids"].shape[1] :]

    written = decode(completion.tolist())

    assert re.fullmatch(r"fn f\d+\(n: int\) to int \{\n    return n \+ \d+\n\}<\|im_end\|>", written), written


def test_a_run_records_events_and_a_manifest(tmp_path: Path) -> None:
    run = prepare_fast(tmp_path, number=40, validation_split_ratio=0.2, num_train_epochs=2)
    result = _train(run)
    events = [json.loads(line)["event"] for line in (run.job.run_dir / TELEMETRY).read_text().splitlines()]
    manifest = finish_scratch(run, "0123abcd", 0)
    card = (run.job.run_dir / "model" / "README.md").read_text()

    steps = ["step"] * result["num_steps"]
    assert events == ["train_start", *steps[:4], "plan", *steps[4:], "train_complete"]
    assert result["num_train"] + result["num_validation"] == result["num_shown"] == result["num_rows"] == 40
    assert 0 < result["num_validation"] < 20
    assert result["validation_loss"] > 0
    assert result["trained_tokens"] == 2 * result["num_tokens"]
    assert result["num_parameters"] == manifest.num_parameters == 892_928
    document = manifest.as_json()
    assert (manifest.lane, document["kind"]) == ("scratch", "scratch_model")
    assert (manifest.name, document["seed"], document["vox_backend"]) == ("scratch-model-0123abcd", 42, None)
    assert manifest.recipe["learning_rate"] == 2e-3
    assert manifest.train_sha256 == run.contract["train_sha256"]
    assert manifest.model_sha256 == result["model_sha256"]
    assert set(document["libraries"]) == {"torch", "transformers", "accelerate"}
    assert json.loads((run.job.run_dir / "training_manifest.json").read_text()) == document
    assert card == format_card(manifest)
    assert "| shape | small, 892,928 parameters, VoxTokenizer with 133 ids |" in card


def test_two_runs_give_the_same_model(tmp_path: Path) -> None:
    runs = [prepare_fast(tmp_path / str(number), max_steps=3, seed=seed) for number, seed in enumerate((1, 1, 2))]
    for run in runs:
        _train(run)
    first, again, other = ((run.job.run_dir / WEIGHTS).read_bytes() for run in runs)

    assert first == again
    assert first != other
    assert runs[0].job.contract_digest == runs[1].job.contract_digest != runs[2].job.contract_digest
    checkpoint = newest_checkpoint(runs[0].job.run_dir)
    assert checkpoint is not None
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in checkpoint.iterdir()}


def test_accumulated_micro_batches_are_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows at once and four batches of one row give the same step without dropout."""
    monkeypatch.setitem(SHAPES, ScratchConfig.SMALL, Shape(2, 2, 32, 32, 0.0))
    at_once = prepare_fast(tmp_path / "at_once", 4)
    one_by_one = prepare_fast(tmp_path / "one", 4, per_device_train_batch_size=1, gradient_accumulation_steps=4)
    results = [_train(run) for run in (at_once, one_by_one)]
    (left,), (right,) = (list(steps_of(run.job.run_dir / TELEMETRY)) for run in (at_once, one_by_one))

    assert [result["num_steps"] for result in results] == [1, 1]
    assert left["num_tokens"] == right["num_tokens"] == results[0]["num_tokens"]
    assert left["loss"] == pytest.approx(right["loss"], rel=1e-3)
    assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-2)


def test_a_run_ends_within_its_time_budget(tmp_path: Path) -> None:
    """With almost no time it takes two steps, and still writes a model."""
    run = prepare_fast(tmp_path, max_minutes=1e-6, num_train_epochs=5)
    result = _train(run)

    assert result["num_steps"] == 2
    assert [(decision["step"], decision["num_steps"]) for decision in result["plan"]["decisions"]] == [(1, 2)]
    assert (run.job.run_dir / WEIGHTS).is_file()


def test_a_run_is_not_resumed_with_another_contract(tmp_path: Path) -> None:
    run = prepare_fast(tmp_path)

    assert prepare_fast(tmp_path).job.contract_digest == run.job.contract_digest
    assert prepare_fast(tmp_path, save_steps=7).job.contract_digest == run.job.contract_digest
    with pytest.raises(RefusedError, match=r"holds another run .* Name another --output-dir, or start over"):
        prepare_fast(tmp_path, seed=7)
    with pytest.raises(RefusedError, match=r"no row trains \(left out: 16 too_long\)\. Raise max_length"):
        prepare_fast(tmp_path / "other", max_length=16)
    with pytest.raises(RefusedError, match=r"no row trains \(left out: 16 low_rating\)\. Extract more data"):
        prepare_fast(tmp_path / "other", min_rating=5)
