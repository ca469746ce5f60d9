"""Jobs and results of generation: models, prompts, decoding options, completions, and the programs in them."""

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from mens_pipeline.jobs.protocol import Job
from mens_pipeline.language import Mode, analyze, tokenize
from mens_pipeline.models.infill import Order
from mens_pipeline.storage.validation import Strict

"""In the command of an engine: where options of vLLM name the adapters."""

COMPLETIONS: Final = "completions.jsonl"
"""In the folder of a generation job: one `Completion` a line."""


Dtype = Literal["float32", "bfloat16"]
Held = Literal["dense", "nf4"]
"""How the weights of an evaluated model lie in memory."""


class Syntax(StrEnum):
    """Whether the parser steers what a model writes."""

    FREE = "free"
    """It does not."""
    CONSTRAINED = "constrained"
    """Only tokens are written after which the completion can still become a program."""
    FALLBACK = "fallback"
    """A completion that was written freely and is no program is generated again, constrained."""


class Decoding(Strict):
    """Decoding options of a model."""

    max_new_tokens: int = Field(default=256, ge=1, le=8_192, description="Tokens of a completion at most.")
    num_samples: int = Field(
        default=1, ge=1, le=1_000, description="Completions of each request; `k` of pass@k, `n` of best-of-n."
    )
    temperature: float = Field(default=0.0, ge=0, le=2, description="0: always the most likely token.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Share of probability that is sampled from.")
    seed: int = Field(default=1337, ge=0, description="Start of sampling.")
    syntax: Syntax = Field(default=Syntax.FREE, description="Whether the parser steers what is written.")
    names: bool = Field(
        default=False,
        description="Where the parser steers, refuse fields and methods that the type of a value does not have.",
    )
    batch_tokens: int = Field(
        default=12_288, ge=256, description="Positions held at once; more on a GPU with room for them."
    )

    @model_validator(mode="after")
    def _samples_differ(self) -> "Decoding":
        if self.num_samples > 1 and self.temperature == 0:
            raise ValueError(
                "more than one sample needs a temperature above 0, or all samples are the same: add one, such as 0.7"
            )
        return self


class EvaluationConfig(Decoding):
    """`config/evaluation.yaml`: how models complete, and what is asked beside the eval suite."""

    syntax: Syntax = Field(default=Syntax.FALLBACK, description="Of the adapter; all others complete freely.")
    base_tasks: int | None = Field(
        default=48, ge=1, description="Tasks that the base is asked, all with hidden tests among them; null: all."
    )
    few_shot_tasks: int | None = Field(
        default=16, ge=0, description="Tasks that the base is asked with examples in its prompt; null: all, 0: none."
    )
    family_tasks: int = Field(
        default=24, ge=0, description="Synthetic tasks of each group that the adapter is asked; 0: none."
    )

    infill_holes: int = Field(
        default=500, ge=0, le=20_000, description="Holes of held-out programs that the adapter fills; 0: none."
    )
    infill_lines: int = Field(
        default=120, ge=1, description="Of these, rests of lines that models are asked for that see no suffix."
    )
    infill_tokens: int = Field(default=64, ge=1, le=1_024, description="Tokens of a piece at most.")

    @property
    def decoding(self) -> Decoding:
        """Decoding options without those of the eval suite."""
        return Decoding.model_validate(self.model_dump(include=set(Decoding.model_fields)))


class Request(Strict):
    """One request; its completion carries its name."""

    task: str
    prompt: str
    mode: Mode = Field(default=Mode.SOURCE, description="How a program in the completion is read.")
    suffix: str | None = Field(
        default=None,
        exclude_if=lambda suffix: suffix is None,
        description="What stands behind the cursor; the prompt is then what stands before it.",
    )
    window: int | None = Field(
        default=None,
        exclude_if=lambda window: window is None,
        description="Tokens around the cursor that are shown, without a chat; null for a prompt of a chat.",
    )

    @property
    def is_line(self) -> bool:
        """Whether the rest of a line is asked for: around a cursor, with nothing of what stands behind it."""
        return self.window is not None and self.suffix is None

    def is_met_by(self, completion: str) -> bool:
        """Check whether a completion is a program, or around a cursor, whether all of it is one."""
        if self.window is None:
            return is_program(completion, self.mode)
        return analyze(self.prompt + completion + (self.suffix or ""), self.mode).ok


class Completion(Strict):
    """Completion of a model to a prompt."""

    task: str
    sample: int = Field(ge=0)
    text: str
    num_tokens: int = Field(ge=0, description="Tokens written, the end of the turn included.")
    stopped: bool = Field(description="Whether the model ended its turn, rather than running into the limit.")
    constrained: bool = Field(default=False, description="Whether the parser steered what was written.")
    forced: bool = Field(default=False, description="Whether it was ended by the shortest way to a program.")
    likelihood: float | None = Field(
        default=None, le=0, description="Mean log-probability of its tokens; null where one completion was drawn."
    )


def as_served(completions: Iterable[Completion]) -> tuple[Completion, ...]:
    """Return the completions of a model, with second tries, which come behind all others, in place of first ones."""
    return tuple({(completion.task, completion.sample): completion for completion in completions}.values())


class EvaluatedModel(Strict):
    """Base and adapter to load."""

    base_path: Path = Field(description="The folder of the base model.")
    adapter_path: Path | None = Field(description="The folder of the adapter; None for the base alone.")
    quantization: Literal["nf4", "none"] = Field(description="Values of the base: those of four bits, or its own.")
    double_quant: bool
    trained_in: Dtype = Field(description="What the base was rounded to before four bits.")
    device: Literal["cuda", "mps", "cpu"]
    compute_dtype: Dtype
    held: Held = Field(
        default="dense", description="Restored, the adapter merged; or in four bits, the adapter beside."
    )

    @property
    def evaluated(self) -> "EvaluatedModel":
        """The model alone, of a job as well."""
        return EvaluatedModel.model_validate(self.model_dump(include=set(EvaluatedModel.model_fields)))


class GenerationJob(EvaluatedModel, Job):
    """Job of a generation process."""

    kind: Literal["generate"] = "generate"
    label: str = Field(default="model", description="What progress calls the model.")
    system_prompt: str
    decoding: Decoding
    requests: tuple[Request, ...]
    infill_order: Order | None = Field(
        default=None, description="Which side of a cursor is shown first; null where no request has a suffix."
    )
    devices: int = Field(default=1, ge=1, description="GPUs, or processes on a CPU, that share the requests.")
    then: tuple[Path, ...] = Field(
        default=(), description="Jobs done next: of the same model, without loading it again."
    )

    @model_validator(mode="after")
    def _says_an_order(self) -> "GenerationJob":
        if self.infill_order is None and any(request.suffix is not None for request in self.requests):
            raise ValueError("requests have a suffix, and infill_order does not say which side is shown first")
        return self


def progress_of(completion: dict[str, Any]) -> str:
    """Format the progress of a generation for people."""
    rate = completion["num_tokens"] / max(completion["seconds"], 1e-9)
    return f"{completion['num_done']}/{completion['num_answers']} completions, {rate:.0f} tokens/s"


_FENCE: Final = re.compile(
    r"^[ \t]*(?P<fence>(?P<mark>[`~])(?P=mark){2,})[^`\n]*\n"
    r"(?P<program>.*?)"
    r"(?:^[ \t]*(?P=fence)(?P=mark)*[ \t]*\r?$|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A fenced block of CommonMark; one that is not closed goes on to the end."""
_REFUSAL: Final = re.compile(
    r"\b(?:I(?:['\u2019]m| am) (?:sorry|unable|not able)|I (?:cannot|can['\u2019]t|can not)"
    r"|as an AI|as a language model)\b",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(
    r"\b(?:TODO|FIXME|TBD|XXX)\b"
    r"|(?i:^(?://|\#)\s*(?:todo|fixme|tbd|placeholder|stub)\s*(?::|[.!]*\s*$))"
    r"|(?i:\b(?:not (?:yet )?implemented|to be implemented|coming soon|your code (?:goes )?here|rest of the code"
    r"|(?:placeholder|stub) (?:implementation|body|code|logic))\b)"
)
"""Marks of unfinished code; `todo`, `stub`, `placeholder` alone are words that user interfaces are described with."""


def program_in(completion: str) -> str:
    """Return the program of a completion: the longest fenced block when there is one, else all of it."""
    blocks = [match["program"] for match in _FENCE.finditer(completion)]
    return max(blocks, key=len) if blocks else completion


def is_program(completion: str, mode: Mode) -> bool:
    """Return whether the program of a completion is accepted by the front end, and declares something."""
    module = analyze(program_in(completion), mode).module
    return module is not None and bool(module.declarations)


def is_refusal(completion: str) -> bool:
    """Return whether a completion says that the model will not or cannot do it."""
    return _REFUSAL.search(completion) is not None


def has_placeholder(program: str) -> bool:
    """Return whether a comment of a program stands where code should."""
    comments = (token.text for token in tokenize(program) if token.kind == "COMMENT")
    return any(_PLACEHOLDER.search(comment) for comment in comments)
