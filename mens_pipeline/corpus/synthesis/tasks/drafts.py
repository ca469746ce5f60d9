"""A task before it is run: an atom with its holes filled, and the prompt that asks for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.behaviour.examples import Observation, examples_sentence
from mens_pipeline.corpus.synthesis.tasks.templates import Atom, BankRows, draw_holes, fill
from mens_pipeline.errors import ConfigurationError

TASK: Final = "task"
"""The `task_family` of an executable task, and what its `template` begins with."""

_NAMES: Final = re.compile(r"(?<=fn )\w+")
_PARAMS: Final = re.compile(r"\b\w++(?=:)")
_BOUND: Final = re.compile(r"(?:let (?:mut )?|for )(\w+)|(?<=, )(\w+)(?= in )")
_LAMBDAS: Final = re.compile(r"\b(\w++) => ")

_COMMAS: Final = re.compile(r"(?<=[a-z]),(?=[,.;:])")
"""Where an inserted clause ends as the sentence does."""

_MOST_DRAFTS: Final = 1_000
LINE: Final = 100
"""Characters of a statement; people break longer ones, and models lose themselves in them."""

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
class Draft:
    """A task that was not run yet.

    `template` is what made it (`task/fold/list_sum`); `head` is name, parameters and return type of the function;
    `sentences` are a verb phrase that ends the first sentence of the prompt, and perhaps whole sentences; `more` is
    what else the prompt asks for, maybe a helper that the function uses; `before` stands in front of the function in
    the completion; `seed` decides the wording, the arguments and the choice of mutants.
    """

    template: str
    head: str
    sentences: str
    more: str
    with_helper: bool
    before: str
    code: str
    inputs: str
    seed: str

    @property
    def program(self) -> str:
        """The completion."""
        return f"{self.before}\n\n{self.code}\n" if self.before else f"{self.code}\n"


def draft_task(atom: Atom, banks: BankRows, random: Random, seed: str) -> Draft:
    """Draw a task from an atom: fill its holes, and choose how it is written and worded.

    Raises:
        ConfigurationError: No way to write it fits into a line.
    """
    for _ in range(_MOST_DRAFTS):
        scope = draw_holes(atom.holes, random, {}, banks)
        scope["self"] = fill(random.choice(atom.fn), scope)
        takes, before = fill(atom.takes, scope), indent(fill(atom.before, scope))
        body = fill(random.choice(atom.code), scope)
        is_laid_out = all(len(line) <= LINE for line in body.split("\n"))
        if is_laid_out and not _hides_a_name(
            [str(scope["self"]), *_NAMES.findall(before), *_PARAMS.findall(takes)], body
        ):
            break
    else:
        raise ConfigurationError(
            f"task {atom.name}: {_MOST_DRAFTS} drafts had a line of more than {LINE} characters, or a name that hides "
            "another. Break the lines of its `code`, or choose other names."
        )
    head = f"{scope['self']}({takes}) to {fill(atom.gives, scope)}"
    edges = [fill(random.choice(atom.edges), scope)] if atom.edges else []
    sentences = _COMMAS.sub("", " ".join([f"{fill(random.choice(atom.says), scope)}.", *edges]))
    variant = f"/{fill(atom.family, scope)}" if atom.family else ""
    return Draft(
        template=f"{TASK}/{atom.name}{variant}",
        head=head,
        sentences=sentences,
        more=fill(atom.asks, scope) or _describe_type(before),
        with_helper=bool(atom.asks),
        before=before,
        code=indent(f"fn {head} {{\n{body}\n}}"),
        inputs=fill(atom.inputs, scope),
        seed=seed,
    )


def _hides_a_name(declared: list[str], body: str) -> bool:
    """Return whether a drawn name means two things: a parameter and a variable, or the function and either."""
    names = [*declared, *(first or second for first, second in _BOUND.findall(body))]
    return len(names) > len(set(names)) or not set(_LAMBDAS.findall(body)).isdisjoint(declared)


def indent(code: str) -> str:
    """Indent code with four blanks for each brace that is open; brackets of other kinds do not count.

    None of the strings in its lines holds a brace.
    """
    lines: list[str] = []
    depth = 0
    for line in code.split("\n"):
        text = line.strip()
        if not text.startswith("|"):
            line = "    " * (depth - text.startswith("}")) + text  # noqa: PLW2901 - the line as it shall be
        lines.append(line)
        depth += text.count("{") - text.count("}")
    return "\n".join(lines)


def _describe_type(before: str) -> str:
    """Describe the type in front of a function as a prompt names it, on one line; empty where there is none."""
    found = _TYPE.search(before)
    if found is None:
        return ""
    if found[2].startswith("{"):
        fields = [line.strip() for line in found[2].strip("{}").splitlines() if line.strip()]
        return f"type `type {found[1]} {{ {', '.join(fields)} }}`"
    variants = [f"`{line.strip()}`" for line in found[2].lstrip("=").replace("\n", "").split("|") if line.strip()]
    return f"sum type `{found[1]}` with {', '.join(variants[:-1])} and {variants[-1]}"


def write_prompt(random: Random, draft: Draft, examples: Sequence[Observation]) -> str:
    """Write a prompt with none, one or two of its examples."""
    frames = _FRAMES
    if draft.more:
        frames = _FRAMES_WITH_HELPER if draft.with_helper else _FRAMES_WITH_MORE
    name, _, signature = draft.head.partition("(")
    first, _, rest = draft.sentences.partition(". ")
    opening = random.choice(frames).format(
        head=draft.head, name=name, signature=f"({signature}", does=first.removesuffix("."), more=draft.more
    )
    shown = examples[: random.choice(_EXAMPLES_SHOWN)]
    return " ".join(part for part in (opening, rest, _word_examples(random, shown) if shown else "") if part)


def _word_examples(random: Random, examples: Sequence[Observation]) -> str:
    if random.random() < 0.6:  # noqa: PLR2004 - the usual form
        return examples_sentence(examples)
    opening, verb = random.choice(
        (("Example: ", "returns"), ("For example, ", "gives"), ("", "returns"), ("So ", "is"))
    )
    parts = [f"`{example.call}` {verb} `{example.result}`" for example in examples]
    return f"{opening}{' and '.join(parts)}."


def assertion(call: Observation) -> str:
    """Write an assertion of what a call returned."""
    if call.result in {"true", "false"}:
        return f"assert({call.call})" if call.result == "true" else f"assert(not {call.call})"
    return f"assert({call.call} is {call.result})"
