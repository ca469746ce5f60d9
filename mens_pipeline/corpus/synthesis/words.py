"""The subjects of synthetic programs, from `words.yaml`, and the wording of requests, from `phrasing.yaml`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from string import Formatter
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, StrictStr, StringConstraints, model_validator

from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model

_WORDS: Final = Path(__file__).with_name("words.yaml")
_KINDS: Final = ("str", "str", "int", "bool")  # the types of the first four fields of an entity

_Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_0-9]*$")]
_Several = Field(min_length=2)


@dataclass(frozen=True, slots=True)
class EntityField:
    """A field of an entity; `examples` are at least two Vox literals of its type: str, int, bool or float."""

    name: str
    type: str
    examples: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """The field as a struct, a table or a parameter list declares it."""
        return f"{self.name}: {self.type}"

    @property
    def words(self) -> str:
        """The name as a person says it: `due_on` is `due on`."""
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing that an application stores, with a type `name` such as `ToolLoan` and a `plural` such as `tool loans`.

    `fields` starts with a name, a group, a number and a flag. `adds_up` says whether a sum of its numbers makes sense,
    as for pages but not for urgencies.
    """

    domain: str
    name: str
    plural: str
    fields: tuple[EntityField, ...]
    adds_up: bool

    @property
    def label(self) -> EntityField:
        """The text field that identifies an entity, such as a title."""
        return self.fields[0]

    @property
    def group(self) -> EntityField:
        """The text field that several entities share, such as an author."""
        return self.fields[1]

    @property
    def number(self) -> EntityField:
        """The integer field to add up or compare."""
        return self.fields[2]

    @property
    def flag(self) -> EntityField:
        """The boolean field, for filters."""
        return self.fields[3]

    @property
    def noun(self) -> str:
        """An entity in words: `tool loan`."""
        return self.variable.replace("_", " ")

    @property
    def variable(self) -> str:
        """An entity as a Vox variable: `tool_loan`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @property
    def short(self) -> str:
        """An entity as a loop variable: `loan`."""
        return self.variable.rpartition("_")[2]

    @property
    def collection(self) -> str:
        """Several entities as a Vox variable: `tool_loans`."""
        return self.plural.replace(" ", "_")


class _EntityRow(Strict):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z]+$")]
    domain: str
    plural: Annotated[str, StringConstraints(pattern=r"^[a-z]+( [a-z]+)*$")]
    adds_up: bool = True
    fields: dict[
        _Word,
        Literal["bool"]
        | Annotated[list[StrictStr], _Several]
        | Annotated[list[StrictInt], _Several]
        | Annotated[list[StrictFloat], _Several],
    ]

    @property
    def entity(self) -> Entity:
        fields = (_field(name, examples) for name, examples in self.fields.items())
        return Entity(self.domain, self.name, self.plural, tuple(fields), self.adds_up)

    @model_validator(mode="after")
    def _begins_as_all_do(self) -> "_EntityRow":
        kinds = tuple(field.type for field in self.entity.fields)
        if kinds[:4] != _KINDS:
            message = f"the fields of {self.name} begin with {', '.join(kinds[:4])}, not with {', '.join(_KINDS)}"
            raise ValueError(message)
        return self


class _Words(Strict):
    domains: dict[_Word, Annotated[list[str], Field(min_length=1)]]
    entities: Annotated[list[_EntityRow], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits_together(self) -> "_Words":
        names = [entity.name for entity in self.entities]
        for place, entity in enumerate(self.entities):
            if entity.domain not in self.domains:
                raise ValueError(f"{entity.name}: there is no domain {entity.domain!r} among `domains`")
            if entity.name in names[:place]:
                raise ValueError(f"there are two entities {entity.name}")
        return self


@dataclass(frozen=True, slots=True)
class Words:
    """The entities and domains of `words.yaml`.

    The texts of a domain name somebody who wants a program, and fit after `for`. Entity names are unique.
    """

    domains: Mapping[str, Sequence[str]]
    entities: tuple[Entity, ...]

    @property
    def additive(self) -> tuple[Entity, ...]:
        """Entities with a number field that can be summed."""
        return tuple(entity for entity in self.entities if entity.adds_up)


@cache
def load_words(path: Path = _WORDS) -> Words:
    """Read entities and domains; raise a `ConfigurationError` with the place of a mistake."""
    words = load_model(path, _Words)
    return Words(words.domains, tuple(row.entity for row in words.entities))


def _field(name: str, examples: str | list[str] | list[int] | list[float]) -> EntityField:
    if isinstance(examples, str):
        return EntityField(name, "bool", ("true", "false"))
    kind = type(examples[0]).__name__
    return EntityField(name, kind, tuple(f'"{example}"' if kind == "str" else str(example) for example in examples))


_PHRASING: Final = Path(__file__).with_name("phrasing.yaml")

_TYPE_WORDS: Final = {"str": "text", "int": "integer", "bool": "boolean", "float": "float"}

_SMALL_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _frame(text: str) -> str:
    holes = {hole for _, hole, _, _ in Formatter().parse(text) if hole is not None}
    if not holes <= {"what", "do", "context", "opening"} or not holes & {"what", "opening"}:
        raise ValueError(f"{text!r} has the holes {sorted(holes)}; write {{what}}, {{do}}, {{context}} or {{opening}}")
    return text


_Frames = Annotated[list[Annotated[str, AfterValidator(_frame)]], Field(min_length=1)]


class Phrasing(Strict):
    """Openings and closings of a request.

    Frames have a hole for the requested program. Context frames have a hole for who wants it, and one for the program
    or a frame. Closings may end a request.
    """

    frames: _Frames
    context_frames: _Frames
    closings: Annotated[list[str], Field(min_length=1)]


@cache
def load_phrasing(path: Path = _PHRASING) -> Phrasing:
    """Read the wording of requests; raise a `ConfigurationError` with the place of a mistake."""
    return load_model(path, Phrasing)


def ask(random: Random, what: str, *details: str, domain: str = "") -> str:
    """Write a prompt that asks for a program: one paragraph, or an opening with a list of the details.

    `what` is a short noun phrase with its article; `details` are whole sentences, kept in order; `domain` is a domain
    of `words.yaml` that the request may mention, or empty.
    """
    opening = _opening(random, what, domain)
    sentences = [detail for detail in details if detail]
    if len(sentences) > 1 and one_in(random, 6):
        return "\n".join([opening, *(f"- {sentence}" for sentence in sentences)])
    closing = [random.choice(load_phrasing().closings)] if one_in(random, 12) else []
    return " ".join([opening, *sentences, *closing])


def _opening(random: Random, what: str, domain: str) -> str:
    opening = random.choice(load_phrasing().frames).format(what=what, do="do" if is_plural(what) else "does")
    if not domain or one_in(random, 2):
        return opening
    context = random.choice(load_words().domains[domain])
    return random.choice(load_phrasing().context_frames).format(context=context, what=what, opening=opening)


def is_plural(what: str) -> bool:
    """Return whether a noun phrase takes a plural verb.

    Text after `with`, `that`, `for`, `of`, `on` or a colon does not count.
    """
    head = re.split(r" (?:with|that|for|of|on) |: ", what)[0]
    return not what.startswith(("a ", "an ", "the ")) or " and " in head or ", and " in what


def list_items(items: Sequence[str]) -> str:
    """Join items, or the lines of a text, as in a sentence: `a`, `a and b`, `a, b and c`."""
    *front, last = map(str, split_lines(items))
    return f"{', '.join(front)} and {last}" if front else last


def quote_items(items: Sequence[str]) -> str:
    """Join items, or the lines of a text, as code in a sentence."""
    return list_items([f"`{item}`" for item in split_lines(items)])


def split_lines(items: Sequence[str]) -> Sequence[str]:
    """Return items unchanged, or the non-blank lines of a text."""
    return [line for line in items.split("\n") if line.strip()] if isinstance(items, str) else items


def describe_fields(random: Random, fields: Sequence[EntityField]) -> str:
    """List fields with their types, in one of the usual ways."""
    ways = (
        quote_items([field.declaration for field in fields]),
        list_items([f"`{field.name}` ({field.type})" for field in fields]),
        list_items([f"the {_TYPE_WORDS[field.type]} `{field.name}`" for field in fields]),
        ", ".join(f"`{field.declaration}`" for field in fields),
    )
    return random.choice(ways)


def has_fields(random: Random, subject: str, fields: Sequence[EntityField]) -> str:
    """Write a sentence that names the fields of something; `subject` begins it: `It`, `Each book`."""
    what = describe_fields(random, fields)
    verbs = ("stores", "holds") if len(fields) == 1 else ("stores", "holds", "consists of", "is made of")
    if what.startswith("`") and len(fields) > 1:
        verbs = (*verbs, "has the fields")
    return f"{subject} {random.choice(verbs)} {what}."


def with_article(noun: str) -> str:
    """Put `a` or `an` before a noun, by its first letter; the word banks contain no exceptions."""
    return f"{'an' if noun.lstrip('`')[0].lower() in 'aeiou' else 'a'} {noun}"


def count_things(number: int, noun: str, plural: str = "") -> str:
    """Write a number of things, such as `one field`, in digits from 11 on; the plural defaults to the noun with `s`."""
    word = _SMALL_NUMBERS[number] if number < len(_SMALL_NUMBERS) else str(number)
    return f"{word} {noun if number == 1 else plural or noun + 's'}"


def one_in(random: Random, number: int) -> bool:
    """Draw true with a probability of 1 / `number`."""
    return random.randrange(number) == 0


def pick(random: Random, *choices: str) -> str:
    """Return one of several wordings."""
    return random.choice(choices)
