"""Prompts for tasks: a frame around the description of a function, then examples."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.behaviour.observe import Observation
from mens_pipeline.corpus.behaviour.wording import examples_sentence

_FRAMES: Final[tuple[str, ...]] = (
    *("Write a Vox function `fn {head}` that {does}.",) * 6,
    *("In Vox, write a function `{head}` that {does}.",) * 3,
    "Write a function `{head}` in Vox that {does}.",
    "Write in Vox `{head}`, which {does}.",
    "In Vox, write `fn {head}`. It {does}.",
    "I need a Vox function `{head}` that {does}.",
    "Implement `{head}` in Vox. It {does}.",
    "Give me a Vox function `fn {head}`. It {does}.",
    "Vox: write `{head}`, which {does}.",
    "Define the Vox function `{head}`; it {does}.",
    "Please write the Vox function `fn {head}`, which {does}.",
    "Write a function `{name}` in Vox with the signature `{signature}` that {does}.",
)
_FRAMES_WITH_MORE: Final[tuple[str, ...]] = (
    "Declare the Vox {more} and write a function `fn {head}` that {does}.",
    "In Vox, declare the {more}. Write a function `{head}` that {does}.",
    "Declare in Vox the {more}, then write `fn {head}`, which {does}.",
    "Write in Vox the {more} and a function `{head}` that {does}.",
)
_FRAMES_WITH_HELPER: Final[tuple[str, ...]] = (
    "Write in Vox {more}, and a function `fn {head}` that {does}.",
    "In Vox, write {more}. Then write `{head}`, which {does}.",
    "Write two Vox functions: {more}, and `{head}`, which {does}.",
)
_TYPE: Final = re.compile(r"type (\w+) (\{[^}]*\}|=.*)", re.DOTALL)
_EXAMPLES_SHOWN: Final = (0, 1, 2)
"""A third of the requests has no example."""


@dataclass(frozen=True, slots=True)
class Request:
    """Signature, description and examples of a task.

    `head` is name, parameters and return type; `sentences` are a verb phrase that ends the first sentence, and perhaps
    whole sentences; `more` is what else is asked for, maybe a helper that the function uses.
    """

    head: str
    sentences: str
    more: str
    with_helper: bool


def told_types(before: str) -> str:
    """Describe the type in front of a function as a prompt names it, on one line; empty where there is none."""
    found = _TYPE.search(before)
    if found is None:
        return ""
    if found[2].startswith("{"):
        fields = [line.strip() for line in found[2].strip("{}").splitlines() if line.strip()]
        return f"type `type {found[1]} {{ {', '.join(fields)} }}`"
    variants = [f"`{line.strip()}`" for line in found[2].lstrip("=").replace("\n", "").split("|") if line.strip()]
    return f"sum type `{found[1]}` with {', '.join(variants[:-1])} and {variants[-1]}"


def prompt_of(random: Random, request: Request, examples: Sequence[Observation]) -> str:
    """Write a prompt with none, one or two of its examples."""
    frames = _FRAMES
    if request.more:
        frames = _FRAMES_WITH_HELPER if request.with_helper else _FRAMES_WITH_MORE
    name, _, signature = request.head.partition("(")
    first, _, rest = request.sentences.partition(". ")
    opening = random.choice(frames).format(
        head=request.head, name=name, signature=f"({signature}", does=first.removesuffix("."), more=request.more
    )
    shown = examples[: random.choice(_EXAMPLES_SHOWN)]
    return " ".join(part for part in (opening, rest, _worded(random, shown) if shown else "") if part)


def assertion(call: Observation) -> str:
    """Write an assertion of what a call returned."""
    if call.result in {"true", "false"}:
        return f"assert({call.call})" if call.result == "true" else f"assert(not {call.call})"
    return f"assert({call.call} is {call.result})"


def _worded(random: Random, examples: Sequence[Observation]) -> str:
    if random.random() < 0.6:  # noqa: PLR2004 - the usual form
        return examples_sentence(examples)
    opening, verb = random.choice(
        (("Example: ", "returns"), ("For example, ", "gives"), ("", "returns"), ("So ", "is"))
    )
    parts = [f"`{example.call}` {verb} `{example.result}`" for example in examples]
    return f"{opening}{' and '.join(parts)}."
