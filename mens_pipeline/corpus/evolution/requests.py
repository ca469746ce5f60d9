"""Prompts to a generator: first for a harder request, then for the program, and to mend one that does not parse.

Mending is for models behind an endpoint, which the parser cannot steer token by token. More than two rounds hardly help
(2604.10508).
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.evolution.operators import Evolution, Operator
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.repairs.repair import report_of
from mens_pipeline.language import Mode, analyze
from mens_pipeline.language.requests import SYSTEM_PROMPT, noun_of

REWRITER: Final = (
    "You write requests for programs in the programming language Vox. Answer with one request alone: "
    "no program, no title, no explanation."
)
"""What a generator is told before it rewrites a request."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing asked of a generator.

    `key`, by which a ledger knows it, is the SHA-256 over all that decides the reply, hexadecimal; `system` is what the
    model is told first.
    """

    key: str
    system: str
    prompt: str

    @property
    def num_bytes(self) -> int:
        """Bytes of both texts, which they have no more tokens than."""
        return len(self.system.encode()) + len(self.prompt.encode())


class Reply(BaseModel):
    """Reply of a generator, as a ledger keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = Field(description="Of the request.")
    text: str
    stopped: bool = Field(description="The model ended by itself, rather than running into the limit.")
    num_tokens: int = Field(ge=0, description="Of request and reply, as the generator counts them.")
    num_written: int | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda number: number is None,
        description="Of the reply alone; null where the generator does not count it.",
    )


class Generator(Protocol):
    """A model that answers requests."""

    @property
    def name(self) -> str:
        """Name of the model."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of its weights; of an endpoint, its address."""
        ...

    @property
    def decoding(self) -> Mapping[str, Any]:
        """Decoding options in JSON types: part of the key of a request."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Tokens of a reply at most."""
        ...

    def answer(
        self, requests: Sequence[Request], record: Callable[[Reply], None], time_left: Callable[[], float]
    ) -> None:
        """Answer requests, as many as there is time for, in any order.

        Args:
            requests: What is asked, no two with the same key.
            record: Takes each reply as soon as it is there, from any thread; what it took is not lost, whatever
                ends the call.
            time_left: Seconds until no request may begin; 0 or less when they are over.

        Raises:
            RefusedError: The generator does not work.
        """
        ...


class Prompts:
    """Words what is asked of one generator."""

    def __init__(self, generator: Generator, seed: int, examples: Mapping[str, str]) -> None:
        """Word for a generator.

        Another seed asks anew; `examples` maps a construct to a program that shows it.
        """
        self._decides = [generator.name, generator.digest, dict(generator.decoding), seed]
        self._examples = examples

    def evolving(self, parent: TrainingPair, evolution: Evolution) -> Request:
        """Ask for a new request."""
        noun = noun_of(parent.category)
        if evolution.operator is Operator.BREADTH:
            task = f"Write a new request, inspired by the one below. It asks for {noun} in Vox as well."
        else:
            task = f"Make the request below harder, by 10 to 20 words. It stays a request for {noun} in Vox."
        rules = "One self-contained program must be able to answer it. Keep names in backticks."
        return self._request(REWRITER, f"{task} {evolution.how} {rules}\n\nThe request:\n{parent.prompt.strip()}")

    def answering(self, parent: TrainingPair, evolution: Evolution, instruction: str) -> Request:
        """Ask for the program."""
        parts = [instruction, evolution.demand]
        parts.append("This program shows the syntax of Vox. It is for another request: do not repeat it.")
        parts.append(_fenced(parent.response))
        if evolution.goal is not None:
            parts += [f"And this shows {noun_of(evolution.goal)}:", _fenced(self._examples[evolution.goal])]
        parts.append("Answer with one complete program in a fenced block.")
        return self._request(SYSTEM_PROMPT, "\n\n".join(part for part in parts if part))

    def _request(self, system: str, prompt: str) -> Request:
        content = json.dumps([*self._decides, system, prompt], sort_keys=True)
        return Request(hashlib.sha256(content.encode()).hexdigest(), system, prompt)


def _fenced(program: str) -> str:
    return f"```vox\n{program.rstrip()}\n```"


_LONGEST: Final = 4_000
"""Characters of a program that is sent back; longer ones are noise, and do not fit beside a request."""


def is_vox(program: str, mode: Mode) -> bool:
    """Check whether the front end accepts a program, and it declares something."""
    module = analyze(program, mode).module
    return module is not None and bool(module.declarations)


def repair_of(request: Request, program: str, mode: Mode) -> Request | None:
    """Ask to mend a program.

    The request is without any earlier repair.

    Returns:
        The request with the program and its first errors; None for what is Vox, is empty, or is too long to be shown.
    """
    if is_vox(program, mode) or not program.strip() or len(program) > _LONGEST:
        return None
    errors = analyze(program, mode).errors
    report = report_of(errors, has_advice=True) if errors else "it declares nothing"
    mend = "This answer is no Vox yet. Mend it, and answer with the whole program in a fenced block."
    prompt = f"{request.prompt}\n\n{mend}\n\n```vox\n{program.rstrip()}\n```\n\nThe compiler says:\n{report}"
    return asked_again(request, f"repair:{prompt}", prompt)


def asked_again(request: Request, why: str, prompt: str) -> Request:
    """Return a request with another prompt, and with a key and so a seed of its own."""
    return replace(request, key=hashlib.sha256(f"{request.key}:{why}".encode()).hexdigest(), prompt=prompt)
