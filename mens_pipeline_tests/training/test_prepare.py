"""From a recipe and a train set to a job."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.protocol import RESULT, read_result, write_document
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import key_of
from mens_pipeline.training.preflight import LIBRARIES
from mens_pipeline.training.prepare import build_contract, prepare_run
from mens_pipeline.training.recipe import CONTRACT, PREFLIGHT, Recipe, TrainingJob
from mens_pipeline_tests.every import every
from mens_pipeline_tests.training.runs import pairs, prepare_fast, resolve_fast
from mens_pipeline_tests.training.small_folder import Encoder, described_base, write_folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "base")


@pytest.mark.seed_row(18)
def test_a_prepared_run_is_written_to_its_folder(base: Path, tmp_path: Path) -> None:
    run = prepare_fast(base, tmp_path, number=6, max_tokens_per_batch=512)
    run_dir = run.job.run_dir
    contract = json.loads((run_dir / CONTRACT).read_text())

    assert TrainingJob.model_validate_json(run.job.path.read_text()) == run.job
    assert contract == {"digest": run.job.contract_digest, **run.contract}
    assert json.loads((run_dir / PREFLIGHT).read_text()) == run.preflight
    assert run.preflight["data"]["num_train"] == 6
    assert (run.job.device, run.job.compute_dtype) == ("cpu", "float32")
    assert run.job.lock_path == tmp_path / "cache" / "cpu.lock"
    assert (run.job.base_name, run.job.base_revision) == (str(base), None)
    assert not run.is_done


@pytest.mark.parametrize("text", ["", '{"num_steps"', "[]", "[" * 50_000])
def test_ignores_a_truncated_result(base: Path, tmp_path: Path, text: str) -> None:
    run_dir = prepare_fast(base, tmp_path).job.run_dir
    (run_dir / RESULT).write_text(text)

    assert not prepare_fast(base, tmp_path).is_done
    write_document(run_dir / RESULT, {"num_steps": 3})
    assert prepare_fast(base, tmp_path).is_done
    assert read_result(run_dir) == {"num_steps": 3}


@pytest.mark.seed_row(38)
def test_another_run_cannot_use_the_same_folder(base: Path, tmp_path: Path) -> None:
    run = prepare_fast(base, tmp_path)
    before = run.job.path.read_text()

    with pytest.raises(RefusedError, match=r"run: holds another run .* Name another --output-dir, or start over"):
        prepare_fast(base, tmp_path, seed=1)
    assert run.job.path.read_text() == before


@pytest.mark.parametrize("is_trial", [False, True])
def test_notes_held_out_rows_that_train(base: Path, tmp_path: Path, *, is_trial: bool) -> None:
    """Also in a dry run: those pairs cannot evaluate the adapter, but a benchmark can."""
    write_jsonl(tmp_path / "heldout.jsonl", pairs(20)[15:])
    found = "1 prompts and 1 responses of 5 held-out pairs are in 1 rows"
    notes = prepare_fast(base, tmp_path, number=16, is_trial=is_trial).preflight["notes"]

    assert any(found in note and "meaningless" in note for note in notes)

    free = tmp_path / "free"
    free.mkdir()
    write_jsonl(free / "heldout.jsonl", pairs(20)[15:])
    assert not any("held-out" in note for note in prepare_fast(base, free, number=15).preflight["notes"])


def test_a_trial_changes_nothing(base: Path, tmp_path: Path) -> None:
    """Its preflight is returned and not written; a trial may differ from the run in its folder."""
    trial = prepare_fast(base, tmp_path, is_trial=True)

    assert trial.preflight["recipe"]["seed"] == 42
    assert (trial.preflight["preset"], trial.preflight["recipe_origins"]["lora_r"]) == (None, "flag")
    assert not (tmp_path / "run").exists()

    run = prepare_fast(base, tmp_path)
    (run.job.run_dir / RESULT).write_text("{}")
    before = {path: path.read_bytes() for path in run.job.run_dir.iterdir()}
    prepare_fast(base, tmp_path, is_trial=True, is_new=True, seed=1)

    assert {path: path.read_bytes() for path in run.job.run_dir.iterdir()} == before


def test_a_new_run_replaces_another_only_after_its_checks(base: Path, tmp_path: Path) -> None:
    run = prepare_fast(base, tmp_path)
    (run.job.run_dir / RESULT).write_text("{}")
    with pytest.raises(RefusedError, match="the curriculum shows 0 rows"):
        prepare_fast(base, tmp_path, is_new=True, curriculum=True, curriculum_max_difficulty="1")
    assert (run.job.run_dir / RESULT).is_file()
    new = prepare_fast(base, tmp_path, is_new=True, seed=1)

    assert not new.is_done
    assert json.loads((new.job.run_dir / CONTRACT).read_text())["digest"] == new.job.contract_digest


def test_a_link_to_a_run_names_that_run(base: Path, tmp_path: Path) -> None:
    """`runs/latest`: starting over replaces the run that it points to."""
    (tmp_path / "run").symlink_to("one")
    first = prepare_fast(base, tmp_path)
    assert first.job.run_dir == tmp_path / "one"
    (first.job.run_dir / RESULT).write_text("{}")

    assert prepare_fast(base, tmp_path).is_done
    assert not prepare_fast(base, tmp_path, is_new=True).is_done
    assert (tmp_path / "run").readlink() == Path("one")


def test_a_missing_train_set_is_noticed_before_a_base_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match=r"train\.jsonl"):
        prepare_run(
            resolve_fast(Path("nobody/no-such-model")),
            tmp_path / "train.jsonl",
            tmp_path / "run",
            resolve_device(DeviceChoice.CPU),
            cache=tmp_path / "cache",
            min_rows=1,
            log_line=pytest.fail,
        )


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"digest"', "[" * 100_000])
def test_rejects_a_malformed_contract(base: Path, tmp_path: Path, content: str) -> None:
    run_dir = prepare_fast(base, tmp_path).job.run_dir
    (run_dir / CONTRACT).write_text(content)

    with pytest.raises(RefusedError, match=r"contract\.json: the run's digest is unreadable .* --force-restart"):
        prepare_fast(base, tmp_path)


def test_nothing_is_written_through_a_link(base: Path, tmp_path: Path) -> None:
    run_dir = prepare_fast(base, tmp_path).job.run_dir
    target = tmp_path / "precious"
    target.write_text("kept")
    (run_dir / PREFLIGHT).unlink()
    (run_dir / PREFLIGHT).symlink_to(target)

    with pytest.raises(RefusedError, match=r"training-preflight\.json: a link"):
        prepare_fast(base, tmp_path)
    assert target.read_text() == "kept"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"curriculum": True, "curriculum_max_difficulty": "1"},
            r"the curriculum shows 0 rows, 1 are needed\. Raise curriculum_max",
        ),
        (
            {"token_shares": {"vox_codegen": 0.0}},
            r"the shares of the kinds \(vox_codegen 0\) leave no rows to train on\. Give a share",
        ),
    ],
)
def test_rejects_a_recipe_that_shows_no_rows(base: Path, tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        prepare_fast(base, tmp_path, **fields)


@pytest.mark.seed_row(62)
def test_a_tokenizer_without_turns_is_refused(base: Path, tmp_path: Path) -> None:
    Encoder(special=()).inner.save(str(base / "tokenizer.json"))

    with pytest.raises(RefusedError, match=r"<\|im_start\|> is \d+ tokens, not one"):
        prepare_fast(base, tmp_path)
    assert not (tmp_path / "run").exists()


_OTHER_VALUES: dict[str, Any] = {
    "devices": 2,
    "lora_r": 8,
    "lora_alpha": 8,
    "lora_dropout": 0.1,
    "target_modules": ("q_proj",),
    "quantization": "bf16",
    "bnb_4bit_use_double_quant": False,
    "max_length": 256,
    "per_device_train_batch_size": 2,
    "tokens_per_step": 4096,
    "max_tokens_per_batch": 1024,
    "gradient_accumulation_steps": 2,
    "num_train_epochs": 2,
    "max_steps": 9,
    "max_minutes": 9.5,
    "learning_rate": 1e-3,
    "lora_plus_ratio": 4.0,
    "lr_scheduler_type": "linear",
    "warmup_steps": 5,
    "weight_decay": 0.0,
    "max_grad_norm": 0.5,
    "min_rating": 4,
    "category_filter": ("actor",),
    "min_difficulty": 2,
    "max_difficulty": 9,
    "category_alpha": 0.5,
    "token_shares": {"task": 0.5},
    "infill_share": 0.5,
    "infill_window": 64,
    "curriculum": True,
    "curriculum_max_difficulty": (3,),
    "trajectory_weighting": True,
    "trajectory_tool_trace_boost": 2.0,
    "trajectory_failure_boost": 2.0,
    "trajectory_quality_boost": 2.0,
    "trajectory_quality_floor": 4,
    "validation_split_ratio": 0.1,
    "bnb_4bit_compute_dtype": "float32",
    "seed": 1,
}
_IRRELEVANT_VALUES: dict[str, Any] = {
    "checkpoint_every_n_layers": 2,
    "model_name_or_path": "/elsewhere",
    "model_revision": "main",
    "save_steps": 1,
    "logging_steps": 9,
}


def _contract(recipe: Recipe | None = None, **changes: Any) -> dict[str, Any]:
    usual = {"train": "t", "base": "b", "device": "cpu", "dtype": "float32", "system": "You write Vox.", **changes}
    base = described_base(sha256=64 * usual["base"])
    return build_contract(recipe or Recipe(), usual["train"], base, (usual["device"], usual["dtype"]), usual["system"])


_USUAL = key_of(_contract())


@pytest.mark.seed_row(62)
@pytest.mark.parametrize("change", [{"train": "u"}, {"base": "c"}, {"device": "cuda"}, {"system": "You write."}])
def test_other_inputs_make_another_run(change: dict[str, Any]) -> None:
    assert key_of(_contract(**change)) != _USUAL


@pytest.mark.seed_row(63)
@pytest.mark.parametrize("part", ["trainer", "libraries"])
def test_another_trainer_makes_another_run(part: str) -> None:
    """The code of the trainer and the versions of the libraries are part of the contract."""
    contract = _contract()

    assert key_of({**contract, part: "other"}) != _USUAL
    assert set(contract["libraries"]) == set(LIBRARIES)


@every("field", Recipe.model_fields)
def test_another_value_makes_another_run(field: str) -> None:
    """Except the path of the base, the steps between checkpoints and the memory of a GPU."""
    recipe = Recipe.model_validate({field: {**_OTHER_VALUES, **_IRRELEVANT_VALUES}[field]})

    assert recipe != Recipe()
    assert (key_of(_contract(recipe)) == _USUAL) is (field in _IRRELEVANT_VALUES)


def test_the_order_of_keys_does_not_matter() -> None:
    contract = _contract()
    reordered = {key: contract[key] for key in reversed(contract)}
    reordered["recipe"] = {key: contract["recipe"][key] for key in reversed(contract["recipe"])}

    assert list(reordered) != list(contract)
    assert key_of(reordered) == _USUAL
    assert len(_USUAL) == 64


def test_rejects_a_contract_that_is_not_json() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        key_of({"a": float("nan")})
