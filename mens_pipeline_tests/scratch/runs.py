"""Runs of the scratch lane on a few rows, for tests."""

from pathlib import Path
from typing import Any

from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.scratch.recipe import ScratchRecipe
from mens_pipeline.scratch.run import PreparedScratch, prepare_scratch
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.training.runs import pairs

FAST = {
    "config": "small",
    "max_length": 256,
    "per_device_train_batch_size": 4,
    "num_train_epochs": 1,
    "warmup_steps": 0,
    "validation_split_ratio": 0.0,
    "save_steps": 1,
}


def prepare_fast(
    folder: Path, number: int = 16, choice: DeviceChoice = DeviceChoice.CPU, base: Path | None = None, **fields: Any
) -> PreparedScratch:
    """Prepare a run that is ready to start."""
    train_path = folder / "train.jsonl"
    write_jsonl(train_path, pairs(number))
    recipe = ScratchRecipe.from_values({**FAST, **fields})
    return prepare_scratch(
        recipe, train_path, folder / "run", resolve_device(choice), cache=folder / "cache", min_rows=1, base=base
    )
