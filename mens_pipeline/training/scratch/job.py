"""Input and output of a training process of the scratch lane."""

from pathlib import Path
from typing import Final

from pydantic import Field

from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.scratch.recipe import ScratchRecipe

MODULE: Final = "mens_pipeline.training.scratch.child"
"""Module of the training process."""

MODEL: Final = "model"
WEIGHTS: Final = f"{MODEL}/model.safetensors"


class ScratchJob(Strict):
    """One run, fully decided."""

    recipe: ScratchRecipe
    train_path: Path = Field(description="The train set, JSON lines.")
    device: str = Field(description="cuda, mps or cpu.")
    compute_dtype: str = Field(description="float32 or bfloat16: what is computed in; weights are float32.")
    run_dir: Path = Field(description="Where everything of the run goes.")
    system_prompt: str = Field(description="What the model is told before every prompt.")
    strict: bool = Field(default=False, description="Whether a line that is no pair ends the run.")
    contract_digest: str = Field(description="What the run is, as a hash.")
    lock_path: Path = Field(description="Held while the device is in use.")
    lock_seconds: float = Field(default=120.0, ge=0, description="How long another holder may take to end.")
