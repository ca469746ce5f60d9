"""Task templates: atoms with holes, banks of fragments to fill them, and the drafts and prompts built from both."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

from pydantic import Field

from mens_pipeline.corpus.behaviour.examples import Observation, examples_sentence
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model

BANKS: Final = "banks.yaml"
_REFERENCE: Final = re.compile(r"\$\{([a-z_0-9]+)(?:\.([a-z_0-9]+))?(?::([^${}]*))?\}|\$([a-z_][a-z_0-9]*)")
_RANGE: Final = re.compile(r"(?:([a-z]\w*)\+)?(-?\d+)\.\.(?:([a-z]\w*)\+)?(-?\d+)")
_ARGUMENTS: Final = ("x", "e")
"""The expression that a fragment is applied to: `$x` gets brackets where it needs them, `$e` never does."""
_SIMPLE: Final = re.compile(r"[\w.\"\[\]]+(?:\([^ ]*\))?(?:\.[a-z_]+\([^ ]*\))*")
_MOST_DRAWS: Final = 50  # after this many draws, two holes that should differ may be equal

Hole = str | list[str]
"""A range of ints (`2..9`, `low+1..low+9`), banks (`@int_tests`, `@strs+names`), or a list to choose from."""


class Atom(Strict):
    """A task with holes."""

    name: str = Field(pattern=r"[a-z][a-z0-9_]*", description="Name of its family, unless `family` adds to it.")
    level: int = Field(ge=0, le=5, description="0 (one expression) to 5 (two declarations).")
    family: str = Field(default="", description="Addition to the name of the family, from the holes.")
    holes: dict[str, Hole] = Field(default_factory=dict, description="Holes, in the order of drawing.")
    fn: Annotated[list[str], Field(min_length=1)] = Field(description="Names of the function.")
    takes: str = Field(description="Parameters of the function.")
    gives: str = Field(description="Return type of the function.")
    says: Annotated[list[str], Field(min_length=2)] = Field(
        description="Behaviour of the function: a verb phrase, then whole sentences."
    )
    edges: list[str] = Field(default_factory=list, description="Sentences on edge cases; a prompt has one.")
    before: str = Field(default="", description="Types and functions that the function needs.")
    asks: str = Field(default="", description="How the request names the code in `before`; types name themselves.")
    code: Annotated[list[str], Field(min_length=1)] = Field(description="Bodies, one for each way to write it.")
    inputs: str = Field(default="", description="Values of arguments: `n=0..40, line=csv`.")


class Banks(Strict):
    """Fragments by the name of their bank: each has a `name`, a `code`, words, and perhaps its own holes."""

    banks: dict[str, Annotated[list[dict[str, str | dict[str, Hole]]], Field(min_length=1)]]


class Atoms(Strict):
    """A file of atoms."""

    atoms: list[Atom]


Row = dict[str, str]
"""A drawn fragment: attribute -> text, with no references left but `$x` and `$e`."""

Scope = Mapping[str, str | Row]


def fill(template: str, scope: Scope) -> str:
    """Replace the references of a template, the inner ones first.

    `$hole`, `${hole.attribute}`, `${hole:expression}` and `${hole.attribute:expression}` refer to holes; `scope` maps a
    hole to its filling. An unknown hole or attribute raises `KeyError`.
    """
    while True:
        filled = _REFERENCE.sub(lambda found: _value(found, scope), template)
        if filled == template:
            return filled
        template = filled


def _value(found: re.Match[str], scope: Scope) -> str:
    name, attribute, argument, short = found.groups()
    if (short or name) in _ARGUMENTS and (short or name) not in scope:
        return found[0]
    value = scope[short or name]
    if isinstance(value, str):
        if attribute is not None or argument is not None:
            raise KeyError(f"{name}.{attribute or 'code'}")
        return value
    text = value[attribute or ("name" if argument is None else "code")]
    if argument is None:
        return text
    tight = argument if _SIMPLE.fullmatch(argument) else f"({argument})"
    return text.replace("$x", tight).replace("$e", argument)


def draw_holes(holes: Mapping[str, Hole], random: Random, outer: Scope, banks: "BankRows") -> dict[str, str | Row]:
    """Fill holes one after the other; two holes with the same specification get different fillings.

    Two adjacent lists of the same length belong together: both give the entry at one index.
    """
    scope: dict[str, str | Row] = dict(outer)
    taken: dict[str, list[str]] = {}
    size, place = 0, 0
    for name, hole in holes.items():
        if isinstance(hole, list):
            size, place = len(hole), place if len(hole) == size else random.randrange(len(hole))
            scope[name] = fill(hole[place], scope)
            continue
        size = 0
        used = taken.setdefault(hole, [])
        drawn = _draw_hole(hole, random, scope, banks)
        for _ in range(_MOST_DRAWS):
            if _label(drawn) not in used:
                break
            drawn = _draw_hole(hole, random, scope, banks)
        used.append(_label(drawn))
        scope[name] = drawn
    return scope


def _label(drawn: str | Row) -> str:
    return drawn if isinstance(drawn, str) else drawn["name"]


def _draw_hole(hole: str, random: Random, scope: Scope, banks: "BankRows") -> str | Row:
    if hole.startswith("@"):
        rows = [row for bank in hole[1:].split("+") for row in banks[bank]]
        return _fill_fragment(random.choice(rows), random, scope, banks)
    found = _RANGE.fullmatch(hole)
    if found is None:
        raise KeyError(hole)
    low = int(found[2]) + (int(str(scope[found[1]])) if found[1] else 0)
    high = int(found[4]) + (int(str(scope[found[3]])) if found[3] else 0)
    # Small and round numbers are what people write.
    number = random.randint(low, high)
    return str(number - number % 5 if number > 40 and low < number - number % 5 and random.random() < 0.6 else number)  # noqa: PLR2004


def _fill_fragment(fragment: Mapping[str, Any], random: Random, scope: Scope, banks: "BankRows") -> Row:
    inner = draw_holes(fragment.get("holes", {}), random, scope, banks)
    row = {key: fill(text, inner) for key, text in fragment.items() if key != "holes"}
    if "is" in row:
        row.setdefault("does", f"is {row['is']}")
        row.setdefault("do", f"are {row['is']}")
    return row


BankRows = Mapping[str, Sequence[Mapping[str, Any]]]


@lru_cache
def load_tasks(folder: Path = Path(__file__).parent) -> tuple[tuple[Atom, ...], BankRows]:
    """Load the atoms and banks of a folder: `*_atoms.yaml` and `banks.yaml`.

    A `ConfigurationError` names the place of a missing file or a mistake; `draft_task` finds unknown references.
    """
    banks = load_model(folder / BANKS, Banks).banks
    atoms: list[Atom] = []
    for path in sorted(folder.glob("*_atoms.yaml")):
        for atom in load_model(path, Atoms).atoms:
            if atom.name in {other.name for other in atoms}:
                raise ConfigurationError(f"{path}: atoms.{atom.name}: there are two atoms of this name. Rename one.")
            atoms.append(atom)
    return tuple(atoms), banks


TASK: Final = "task"
"""The `task_family` of an executable task, and the start of its `template`."""

_NAMES: Final = re.compile(r"(?<=fn )\w+")
_PARAMS: Final = re.compile(r"\b\w++(?=:)")
_BOUND: Final = re.compile(r"(?:let (?:mut )?|for )(\w+)|(?<=, )(\w+)(?= in )")
_LAMBDAS: Final = re.compile(r"\b(\w++) => ")

_COMMAS: Final = re.compile(r"(?<=[a-z]),(?=[,.;:])")
"""The comma after an inserted clause that ends its sentence."""

_MOST_DRAFTS: Final = 1_000
LINE: Final = 100
"""Most characters of a statement; longer ones are hard for models."""

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
_EXAMPLES_SHOWN: Final = (0, 1, 2)  # a third of the requests has no example


@dataclass(frozen=True, slots=True)
class TaskDraft:
    """A task that has not run yet.

    `template` names its atom (`task/fold/list_sum`); `head` is name, parameters and return type of the function;
    `sentences` holds a verb phrase that ends the first sentence of the prompt, and perhaps whole sentences; `more`
    names other requested code, such as a helper; `before` precedes the function in the completion; `seed` determines
    wording, arguments and mutants.
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


def draft_task(atom: Atom, banks: BankRows, random: Random, seed: str) -> TaskDraft:
    """Draw a task from an atom; raise `ConfigurationError` if its lines are too long or a reference is unknown."""
    try:
        return _draft(atom, banks, random, seed)
    except KeyError as error:
        raise ConfigurationError(f"task {atom.name}: {error} refers to nothing. Correct it, or add it.") from error


def _draft(atom: Atom, banks: BankRows, random: Random, seed: str) -> TaskDraft:
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
    return TaskDraft(
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
    names = [*declared, *(first or second for first, second in _BOUND.findall(body))]
    return len(names) > len(set(names)) or not set(_LAMBDAS.findall(body)).isdisjoint(declared)


def indent(code: str) -> str:
    """Indent code with four blanks for each open brace; its strings must not contain braces."""
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
    found = _TYPE.search(before)
    if found is None:
        return ""
    if found[2].startswith("{"):
        fields = [line.strip() for line in found[2].strip("{}").splitlines() if line.strip()]
        return f"type `type {found[1]} {{ {', '.join(fields)} }}`"
    variants = [f"`{line.strip()}`" for line in found[2].lstrip("=").replace("\n", "").split("|") if line.strip()]
    return f"sum type `{found[1]}` with {', '.join(variants[:-1])} and {variants[-1]}"


def write_prompt(random: Random, draft: TaskDraft, examples: Sequence[Observation]) -> str:
    """Write a prompt with up to two of the examples."""
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
    """Write an assertion for an observed call."""
    if call.result in {"true", "false"}:
        return f"assert({call.call})" if call.result == "true" else f"assert(not {call.call})"
    return f"assert({call.call} is {call.result})"
