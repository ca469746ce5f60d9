"""What makes two runs the same."""

from typing import Any

import pytest

from mens_pipeline.storage.store import key_of
from mens_pipeline.training.contract import LIBRARIES, contract_of
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.training.small_folder import described_base

_OTHER_VALUES: dict[str, Any] = {
    "devices": 2,
    "lora_r": 8,
    "lora_alpha": 8,
    "lora_dropout": 0.1,
    "target_modules": ("q_proj",),
    "bnb_4bit_use_double_quant": False,
    "max_length": 256,
    "per_device_train_batch_size": 2,
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
_NOT_OF_THE_RUN: dict[str, Any] = {
    "model_name_or_path": "/elsewhere",
    "model_revision": "main",
    "save_steps": 1,
    "logging_steps": 9,
}
_ONE_VALUE_ALONE = {"load_in_4bit", "bnb_4bit_quant_type"}


def _contract(recipe: Recipe | None = None, **changes: Any) -> dict[str, Any]:
    usual = {"train": "t", "base": "b", "device": "cpu", "dtype": "float32", "system": "You write Vox.", **changes}
    base = described_base(sha256=usual["base"])
    return contract_of(recipe or Recipe(), usual["train"], base, (usual["device"], usual["dtype"]), usual["system"])


_USUAL = key_of(_contract())


def test_every_field_of_a_recipe_is_looked_at() -> None:
    """A new one has to say whether it is of the run."""
    assert {*_OTHER_VALUES, *_NOT_OF_THE_RUN, *_ONE_VALUE_ALONE} == set(Recipe.model_fields)


@pytest.mark.parametrize("field", sorted(_OTHER_VALUES))
def test_another_value_is_another_run(field: str) -> None:
    """Each field by itself."""
    recipe = Recipe.model_validate({field: _OTHER_VALUES[field]})

    assert recipe != Recipe()
    assert key_of(_contract(recipe)) != _USUAL


@pytest.mark.parametrize("field", sorted(_NOT_OF_THE_RUN))
def test_what_does_not_change_the_adapter_is_the_same_run(field: str) -> None:
    """Where the base lies, how often a checkpoint is written: a run goes on in spite of them."""
    recipe = Recipe.model_validate({field: _NOT_OF_THE_RUN[field]})

    assert recipe != Recipe()
    assert key_of(_contract(recipe)) == _USUAL


@pytest.mark.seed_row(62)
@pytest.mark.parametrize("change", [{"train": "u"}, {"base": "c"}, {"device": "cuda"}, {"system": "You write."}])
def test_other_inputs_are_another_run(change: dict[str, Any]) -> None:
    """Train set, base, device, and what the model is told before every prompt."""
    assert key_of(_contract(**change)) != _USUAL


@pytest.mark.seed_row(63)
@pytest.mark.parametrize("part", ["trainer", "libraries"])
def test_another_trainer_is_another_run(part: str) -> None:
    """The code of the trainer and the versions of the libraries are part of the contract."""
    contract = _contract()

    assert key_of({**contract, part: "other"}) != _USUAL
    assert set(contract["libraries"]) == set(LIBRARIES)


def test_the_order_of_keys_does_not_matter() -> None:
    """Nor does a way through a file."""
    contract = _contract()
    turned = {key: contract[key] for key in reversed(contract)}
    turned["recipe"] = {key: contract["recipe"][key] for key in reversed(contract["recipe"])}

    assert list(turned) != list(contract)
    assert key_of(turned) == _USUAL
    assert len(_USUAL) == 64


def test_what_is_no_json_is_no_contract() -> None:
    """Numbers that JSON cannot say would read differently elsewhere."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        key_of({"a": float("nan")})
