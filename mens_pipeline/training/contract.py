"""Contract of a run as one hash: equal contracts give equal runs, and a checkpoint is only used by its own.

With `max_minutes` the speed of the machine decides how many steps fit: then the contract and the decisions in
`plan` of the result give the same run.
"""

from importlib.metadata import version
from typing import Any, Final

from mens_pipeline.storage.stage import Stage
from mens_pipeline.training.base_model import BaseModel
from mens_pipeline.training.job import Continued
from mens_pipeline.training.recipe import Recipe

LIBRARIES: Final = ("torch", "transformers", "peft", "trl", "bitsandbytes", "accelerate", "datasets")
"""Whose versions are recorded, and decide what a run gives."""

STAGE: Final = Stage("qlora_adapter", ("mens_pipeline.training.train",), by_content=True)

_NOT_OF_THE_RUN: Final = frozenset(("devices", "model_name_or_path", "model_revision", "save_steps", "logging_steps"))
"""Fields that do not change the adapter, or are told better by the hash of the base."""


def contract_of(  # noqa: PLR0913, PLR0917 - all that decides a run
    recipe: Recipe,
    train_sha256: str,
    base: BaseModel,
    computed_on: tuple[str, str],
    system: str,
    continues: Continued | None = None,
) -> dict[str, Any]:
    """Return all that decides what a run gives, in JSON types.

    `computed_on` is the device, `cuda`, `mps` or `cpu`, and what it computes in, `float32` or `bfloat16`.
    """
    fields = recipe.model_dump(mode="json", exclude=set(_NOT_OF_THE_RUN))
    return {
        "recipe": fields,
        "train_sha256": train_sha256,
        "base_sha256": base.sha256,
        "device": computed_on[0],
        "compute_dtype": computed_on[1],
        "system_prompt": system,
        "trainer": STAGE.code_version,
        "libraries": library_versions(),
        **({"continues": continues.decisive()} if continues is not None else {}),
        **({"devices": recipe.devices} if _is_split_felt(recipe) else {}),
    }


def _is_split_felt(recipe: Recipe) -> bool:
    """Return whether it changes bits how many processes share a step: the order of sums does, and dropout by each.

    The sum of two is the same either way.
    """
    is_plain_sum = recipe.gradient_accumulation_steps == recipe.devices == 2 and recipe.lora_dropout == 0  # noqa: PLR2004
    return recipe.devices > 1 and not is_plain_sum


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide what a run gives."""
    return {name: version(name) for name in LIBRARIES}
