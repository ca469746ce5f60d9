"""Jobs and results of generation: models, prompts, decoding options, completions, and the programs in them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.jobs.protocol import Job
from mens_pipeline.language import Mode, analyze, tokenize
from mens_pipeline.storage.validation import Strict

ANSWERS: Final = "answers.jsonl"
"""In the folder of a generation job: one `Answer` a line."""


Dtype = Literal["float32", "bfloat16"]
Held = Literal["dense", "nf4"]
"""How the weights of a judged model lie in memory."""


class Decoding(Strict):
    """Decoding options of a model."""

    max_new_tokens: int = Field(default=256, ge=1, le=8_192, description="Tokens of an answer at most.")
    num_samples: int = Field(
        default=1, ge=1, le=1_000, description="Answers to each request; `k` of pass@k, `n` of best-of-n."
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
    """`config/evaluation.yaml`: how models answer, and what is asked beside the exam."""

    syntax: Syntax = Field(default=Syntax.FALLBACK, description="Of the adapter; all others answer freely.")
    base_tasks: int | None = Field(
        default=48, ge=1, description="Tasks that the base is asked, all with hidden tests among them; null: all."
    )
    few_shot_tasks: int | None = Field(
        default=16, ge=0, description="Tasks that the base is asked with examples in its prompt; null: all, 0: none."
    )
    family_tasks: int = Field(
        default=24, ge=0, description="Synthetic tasks of each group that the adapter is asked; 0: none."
    )

    @property
    def decoding(self) -> Decoding:
        """Decoding options without those of the exam."""
        return Decoding.model_validate(self.model_dump(include=set(Decoding.model_fields)))


class Request(Strict):
    """One request; the answer carries its name."""

    task: str
    prompt: str
    mode: Mode = Field(default=Mode.SOURCE, description="How a program in the answer is read.")


class Answer(Strict):
    """Answer of a model to a prompt."""

    task: str
    sample: int = Field(ge=0)
    text: str
    num_tokens: int = Field(ge=0, description="Tokens written, the end of the turn included.")
    stopped: bool = Field(description="Whether the model ended its turn, rather than running into the limit.")
    constrained: bool = Field(default=False, description="Whether the parser steered what was written.")
    forced: bool = Field(default=False, description="Whether it was ended by the shortest way to a program.")
    likelihood: float | None = Field(
        default=None, le=0, description="Mean log-probability of its tokens; null where one answer was drawn."
    )


def as_served(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """Return the completions of a model, with second tries, which come behind all others, in place of first ones."""
    return tuple({(answer.task, answer.sample): answer for answer in answers}.values())


class JudgedModel(Strict):
    """Base and adapter to load."""

    base_path: Path = Field(description="The folder of the base model.")
    adapter_path: Path | None = Field(description="The folder of the adapter; None for the base alone.")
    quantization: Literal["nf4", "fp4", "none"] = Field(description="What the adapter was trained on.")
    double_quant: bool
    trained_in: Dtype = Field(description="What the base was rounded to before four bits.")
    device: Literal["cuda", "mps", "cpu"]
    compute_dtype: Dtype
    held: Held = Field(
        default="dense", description="Restored, the adapter merged; or in four bits, the adapter beside."
    )


class Engine(Strict):
    """Servers that answer in place of our own loop."""

    command: str = Field(description="Starts one, with `{folder}` and `{port}` in it, and perhaps `{index}`.")
    copies: int = Field(default=1, ge=1, description="How many share the requests.")
    at_once: int = Field(default=16, ge=1, description="Requests on their way to each.")


class GenerationJob(JudgedModel, Job):
    """Job of a generation process."""

    kind: Literal["generate"] = "generate"
    label: str = Field(default="model", description="What progress calls the model.")
    system_prompt: str
    decoding: Decoding
    requests: tuple[Request, ...]
    engine: Engine | None = Field(default=None, description="What writes free answers; None for our own loop.")
    then: tuple[Path, ...] = Field(default=(), description="Jobs of the same model, done next without loading it anew.")


def progress_of(answer: dict[str, Any]) -> str:
    """Format the progress of a generation for people."""
    rate = answer["num_tokens"] / max(answer["seconds"], 1e-9)
    return f"{answer['num_done']}/{answer['num_answers']} answers, {rate:.0f} tokens/s"


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


def program_in(answer: str) -> str:
    """Return the program of a completion: the longest fenced block when there is one, else all of it."""
    blocks = [match["program"] for match in _FENCE.finditer(answer)]
    return max(blocks, key=len) if blocks else answer


def is_program(answer: str, mode: Mode) -> bool:
    """Return whether the program of an answer is accepted by the front end, and declares something."""
    module = analyze(program_in(answer), mode).module
    return module is not None and bool(module.declarations)


def is_refusal(answer: str) -> bool:
    """Return whether an answer says that the model will not or cannot do it."""
    return _REFUSAL.search(answer) is not None


def has_placeholder(program: str) -> bool:
    """Return whether a comment of a program stands where code should."""
    comments = (token.text for token in tokenize(program) if token.kind == "COMMENT")
    return any(_PLACEHOLDER.search(comment) for comment in comments)
