"""Input and output of the child processes of delivery."""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from mens_pipeline.inference.generation import Generation
from mens_pipeline.jobs.protocol import Job
from mens_pipeline.storage.kinds import MergedFile
from mens_pipeline.storage.validation import Strict

COMPARISONS: Final = MergedFile.COMPARISONS
"""What both models wrote, one `Comparison` a line."""

FIGURES: Final = "figures.json"
"""What only the process can measure."""

MODEL: Final = "model"
"""In the folder of a job: what it made."""

Dtype = Literal["float32", "bfloat16"]
GgufType = Literal["f32", "f16", "q8_0"]

NAME: Final = "^[0-9A-Za-z._-]{1,128}$"
"""What a model may be called: a part of file names, so nothing that leads out of a folder or begins a line."""

GGUF_NAME: Final = r"^[0-9A-Za-z._-]{1,140}\.gguf$"
"""What a GGUF file may be called."""


class MergeJob(Job):
    """Merge an adapter, and compare what comes out with what was evaluated."""

    kind: Literal["merge"] = "merge"
    reference: Generation = Field(description="The evaluated model, and its prompts.")
    dtype: Dtype = Field(description="What the merged weights are stored in.")
    chat_template: str = Field(description="The template of the merged folder.")


class GgufJob(Job):
    """Write a merged model as GGUF, and compare what is read back with the merged model."""

    kind: Literal["gguf"] = "gguf"
    reference: Generation = Field(description="The evaluated model, and its prompts.")
    merged_path: Path = Field(description="The merged folder.")
    file_type: GgufType
    file_name: str = Field(pattern=GGUF_NAME, description="Of the GGUF file.")
    model_name: str = Field(description="What the file says of itself.")
    licence: str | None = Field(description="Likewise.")


class Written(Strict):
    """Greedy completions of a model."""

    tokens: tuple[int, ...]
    text: str
    stopped: bool


class Comparison(Strict):
    """One request to two models."""

    task: str
    same_prompt: bool = Field(
        description="The tokens that were given are the same, each made as its model's user would."
    )
    reference: Written
    candidate: Written
    num_led: int = Field(
        ge=0, description="Places where both find the same token most likely, given what the reference wrote before."
    )
