"""Training manifests with all fields that are read, for tests that do not train."""

from copy import deepcopy
from typing import Any

from mens_pipeline.models.adapter import SCHEMA_VERSION
from mens_pipeline.models.base import Base
from mens_pipeline.models.chat import CHATML
from mens_pipeline.training.recipe import Recipe

RESULT: dict[str, Any] = {
    "device": "cpu",
    "compute_dtype": "float32",
    "num_train": 15,
    "num_rows": 16,
    "not_shown": {"too_long": 1},
    "num_tokens": 1000,
    "num_supervised_tokens": 400,
    "longest": 77,
    "num_steps": 4,
    "planned_steps": 4,
    "num_trained_parameters": 100,
    "num_adapter_matrices": 28,
    "num_changed_matrices": 28,
    "frozen_sha256": "f" * 64,
    "trained_tokens": 1234,
    "seconds": 61.7,
    "train_loss": 0.5,
    "validation_loss": None,
    "plan": {},
    "kinds": {},
    "num_batches": 4,
}
"""The result of a training process."""


def manifest_about(base: Base, **changes: Any) -> dict[str, Any]:
    """The manifest of a run on a base, as `mens train` writes it, without fields that nothing reads."""
    usual: dict[str, Any] = {
        "manifest_schema_version": SCHEMA_VERSION,
        "backend": "qlora",
        "adapter_method": "qlora",
        "tokenizer": "hf",
        "name": "lora-adapter-0123abcd",
        "vcs_sha": "0123abcd",
        "base_model": base.as_json(),
        "preset": "tiny",
        "recipe": Recipe(quantization="nf4").model_dump(mode="json"),
        "system_prompt": "You write Vox.",
        "chat_template": CHATML.template(),
        "train_file": "/nowhere/train.jsonl",
        "train_sha256": "d" * 64,
        "heldout_sha256": None,
        "contract_digest": "c" * 64,
        "result": deepcopy(RESULT),
    }
    return {**usual, **changes}
