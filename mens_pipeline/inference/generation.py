"""Generations and their jobs, decoding options, completions, and the programs in completions."""

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from mens_pipeline.jobs.protocol import Job
from mens_pipeline.language import Mode, analyze
from mens_pipeline.models.infill import Order
from mens_pipeline.storage.kinds import GenerationFile
from mens_pipeline.storage.validation import Strict

COMPLETIONS: Final = GenerationFile.COMPLETIONS
"""File of an artifact with one `Completion` per line."""

Dtype = Literal["float32", "bfloat16"]
Held = Literal["dense", "nf4"]
"""Format of the weights in memory."""


class Syntax(StrEnum):
    """Role of the parser in generation."""

    FREE = "free"  # the parser has no role
    CONSTRAINED = "constrained"  # after each token, the completion can still become a program
    FALLBACK = "fallback"
    """Complete freely; if the completion is not a program, complete again, constrained."""


class Decoding(Strict):
    """Decoding options of a model."""

    max_new_tokens: int = Field(default=256, ge=1, le=8_192, description="Most tokens in a completion.")
    num_samples: int = Field(
        default=1, ge=1, le=1_000, description="Completions per request: `k` of pass@k, `n` of best-of-n."
    )
    temperature: float = Field(default=0.0, ge=0, le=2, description="0: always the most likely token.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Share of the probability mass to sample from.")
    seed: int = Field(default=1337, ge=0, description="Seed of the samples.")
    syntax: Syntax = Field(default=Syntax.FREE, description="Whether the parser constrains completions.")
    batch_tokens: int = Field(
        default=12_288, ge=256, description="Positions held at once; more on a GPU with enough memory."
    )

    @model_validator(mode="after")
    def _samples_differ(self) -> "Decoding":
        if self.num_samples > 1 and self.temperature == 0:
            raise ValueError(
                "more than one sample needs a temperature above 0, or all samples are the same: add one, such as 0.7"
            )
        return self


class EvaluationConfig(Decoding):
    """`config/evaluation.yaml`: decoding options, and prompts besides the eval suite."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    syntax: Syntax = Syntax.FALLBACK
    """When the parser constrains the adapter; other models complete freely."""
    base_tasks: int | None = Field(default=48, ge=1)
    """Tasks for the base, including all with hidden tests; null: all."""
    few_shot_tasks: int | None = Field(default=16, ge=0)
    """Tasks for the base with examples in its prompt; null: all, 0: none."""
    family_tasks: int = Field(default=24, ge=0)
    """Synthetic tasks of each group for the adapter; 0: none."""

    infill_holes: int = Field(default=500, ge=0, le=20_000)
    """Holes in held-out programs for the adapter to fill; 0: none."""
    infill_lines: int = Field(default=120, ge=1)
    """Of these, lines that adapter and base also complete without the text after the cursor."""
    infill_tokens: int = Field(default=64, ge=1, le=1_024)
    """Most tokens in a piece."""

    @property
    def decoding(self) -> Decoding:
        """Decoding options without the settings of the prompts."""
        return Decoding.model_validate(self.model_dump(include=set(Decoding.model_fields)))


class Request(Strict):
    """A prompt, or a cursor in a file; its completions carry the name of the task."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    task: str
    prompt: str
    mode: Mode = Mode.SOURCE
    """Mode in which a program in the completion is parsed."""
    suffix: str | None = Field(default=None, exclude_if=lambda suffix: suffix is None)
    """The text after the cursor; the prompt is then the text before it."""
    window: int | None = Field(default=None, exclude_if=lambda window: window is None)
    """Tokens around the cursor in the prompt, without a chat; null for a chat prompt."""
    view: tuple[str, str] | None = Field(default=None, exclude_if=lambda view: view is None)
    """Text before and after the cursor that the model sees, as an editor sends it; null: all of it."""

    @property
    def is_line(self) -> bool:
        """Whether it requests the rest of a line, from the text before the cursor only."""
        return self.window is not None and self.suffix is None

    def is_met_by(self, completion: str) -> bool:
        """Check whether a completion is a program; at a cursor, whether prefix, completion and suffix are one."""
        if self.window is None:
            return is_program(completion, self.mode)
        return analyze(self.prompt + completion + (self.suffix or ""), self.mode).ok


class Completion(Strict):
    """One sample of a model for a request."""

    task: str
    sample: int = Field(ge=0)
    text: str
    num_tokens: int = Field(ge=0, description="Tokens written, the end of the turn included.")
    stopped: bool = Field(description="Whether the model ended its turn, rather than running into the limit.")
    constrained: bool = Field(default=False, description="Whether the parser constrained its tokens.")
    forced: bool = Field(default=False, description="Whether the shortest way to a whole program ended it.")
    likelihood: float | None = Field(
        default=None, le=0, description="Mean log-probability of its tokens; null if it was not requested."
    )


def as_served(completions: Iterable[Completion]) -> tuple[Completion, ...]:
    """Keep the last try of each sample; second tries come after all first ones."""
    return tuple({(completion.task, completion.sample): completion for completion in completions}.values())


class EvaluatedModel(Strict):
    """Base and adapter to load."""

    base_path: Path = Field(description="The folder of the base model.")
    adapter_path: Path | None = Field(description="The folder of the adapter; None for the base alone.")
    quantization: Literal["nf4", "none"] = Field(description="Values of the base: rounded to four bits, or its own.")
    double_quant: bool
    trained_in: Dtype = Field(description="Dtype of the base before it was quantised.")
    device: Literal["cuda", "mps", "cpu"]
    compute_dtype: Dtype
    in_eight_bits: bool = Field(default=False, description="Whether a CPU multiplies in eight bits.")
    held: Held = Field(
        default="dense", description="Dense with the adapter merged, or four bits with the adapter next to them."
    )


class Generation(EvaluatedModel):
    """A model, the requests to complete, and the decoding options."""

    base_sha256: str = Field(description="SHA-256 of the folder of the base, hexadecimal.")
    adapter_sha256: str | None = Field(description="SHA-256 of the adapter's weights; None for the base alone.")
    label: str = Field(default="model", description="Name of the model in progress lines.")
    system_prompt: str
    requests: tuple[Request, ...]
    decoding: Decoding
    infill_order: Order | None = Field(
        default=None, description="Side of the cursor that comes first in a prompt; null if no request has a suffix."
    )
    devices: int = Field(default=1, ge=1, description="GPUs, or processes on a CPU, that share the requests.")

    @model_validator(mode="after")
    def _names_an_order(self) -> "Generation":
        if self.infill_order is None and any(request.suffix is not None for request in self.requests):
            raise ValueError("requests have a suffix, and infill_order does not say which side is shown first")
        return self

    @property
    def adapter_digest(self) -> str:
        """SHA-256 of the adapter that completes the requests."""
        assert self.adapter_sha256 is not None, "a base has none"  # noqa: S101 - an internal invariant
        return self.adapter_sha256

    @property
    def placement(self) -> tuple[EvaluatedModel, int]:
        """The model and its number of devices; generations that agree in both can share a process."""
        model = EvaluatedModel.model_validate(self.model_dump(include=set(EvaluatedModel.model_fields)))
        return model, self.devices


class GenerationJob(Job):
    """Job of a generation process: generations of one model, by name."""

    kind: Literal["generate"] = "generate"
    generations: dict[str, Generation] = Field(min_length=1)

    @model_validator(mode="after")
    def _shares_a_process(self) -> "GenerationJob":
        if any(generation.placement != self.first.placement for generation in self.generations.values()):
            raise ValueError("generations of one job need the same model and the same number of devices")
        return self

    @property
    def first(self) -> Generation:
        """Any generation, since all have the same model and devices."""
        return next(iter(self.generations.values()))

    @property
    def devices(self) -> int:
        """Processes that share the requests."""
        return self.first.devices

    def completions(self, name: str) -> Path:
        """Return the path of a generation's completions, a file of JSON lines."""
        return self.run_dir / f"completions-{name}.jsonl"


def progress_of(completion: dict[str, Any]) -> str:
    """Format a progress event of a generation: `3/9 completions, 150 tokens/s`."""
    rate = completion["num_tokens"] / max(completion["seconds"], 1e-9)
    return f"{completion['num_done']}/{completion['num_answers']} completions, {rate:.0f} tokens/s"


_FENCE: Final = re.compile(
    r"^[ \t]*(?P<fence>(?P<mark>[`~])(?P=mark){2,})[^`\n]*\n"
    r"(?P<program>.*?)"
    r"(?:^[ \t]*(?P=fence)(?P=mark)*[ \t]*\r?$|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A fenced block of CommonMark; an unclosed one extends to the end."""


def program_in(completion: str) -> str:
    """Return the longest fenced block of a completion, or the whole completion if it has none."""
    blocks = [match["program"] for match in _FENCE.finditer(completion)]
    return max(blocks, key=len) if blocks else completion


def is_program(completion: str, mode: Mode) -> bool:
    """Return whether the front end accepts the program of a completion and finds a declaration in it."""
    module = analyze(program_in(completion), mode).module
    return module is not None and bool(module.declarations)
