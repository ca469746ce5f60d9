"""What a training process is told."""

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.jobs.protocol import Job
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.recipe import Recipe

CONTRACT: Final = "contract.json"
PREFLIGHT: Final = "training-preflight.json"
ADAPTER: Final = "adapter"


class Continued(Strict):
    """Adapter and state of a run that is continued after its end."""

    adapter: Path = Field(description="The weights that it ended with.")
    adapter_sha256: str = Field(description="Of these weights, hexadecimal.")
    num_batches: int = Field(ge=0, description="Micro-batches that were shown.")
    num_steps: int = Field(ge=0, description="Optimizer steps that were made.")
    seconds: float = Field(ge=0, description="Of training.")

    def decisive(self) -> dict[str, Any]:
        """Return what decides how the run goes on, in JSON types."""
        return self.model_dump(mode="json", include={"adapter_sha256", "num_batches"})

    def as_json(self) -> dict[str, Any]:
        """Return it without the place of the file, in JSON types."""
        return self.model_dump(mode="json", exclude={"adapter"})


class TrainingJob(Job):
    """One run, fully decided."""

    kind: Literal["train"] = "train"
    recipe: Recipe
    train_path: Path = Field(description="The train set, JSON lines.")
    base_path: Path = Field(description="The folder of the base model.")
    base_name: str = Field(description="What the base model is called wherever the adapter goes.")
    base_revision: str | None = Field(description="Which state of it on the Hub; none for a folder or a package.")
    device: str = Field(description="cuda, mps or cpu.")
    compute_dtype: str = Field(description="float32 or bfloat16: what is computed in.")
    system_prompt: str = Field(description="What the model is told before every prompt.")
    contract_digest: str = Field(description="What the run is, as a hash.")
    continues: Continued | None = Field(default=None, description="The run that this one goes on from, if any.")
