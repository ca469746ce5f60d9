"""Entities that synthetic programs use, each with a domain, fields and example values, read from `words.yaml`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt, StrictStr, StringConstraints, model_validator
from pydantic import Field as Described

from mens_pipeline.storage.yaml_file import load_model

_FILE: Final = Path(__file__).with_name("words.yaml")
_KINDS: Final = ("str", "str", "int", "bool")
"""The types of the first four fields of an entity."""

_Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_0-9]*$")]
_Several = Described(min_length=2)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an entity.

    `type` is `str`, `int`, `bool` or `float`; `examples` are Vox literals that fit it, at least two.
    """

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
    """A thing that an application stores.

    Attributes:
        domain: A key of `DOMAINS`.
        name: The type name: `ToolLoan`.
        plural: Several of them, in words: `tool loans`.
        fields: Text that names one, text that groups them, a number, a flag, and then some more.
        adds_up: Whether a sum of its number means something: one of pages does, one of urgencies does not.
    """

    domain: str
    name: str
    plural: str
    fields: tuple[Field, ...]
    adds_up: bool

    @property
    def label(self) -> Field:
        """The text that tells one from another, such as a title."""
        return self.fields[0]

    @property
    def group(self) -> Field:
        """The text that several have in common, such as an author."""
        return self.fields[1]

    @property
    def number(self) -> Field:
        """The whole number worth adding up or comparing."""
        return self.fields[2]

    @property
    def flag(self) -> Field:
        """The yes or no that separates them."""
        return self.fields[3]

    @property
    def noun(self) -> str:
        """One of them, in words: `tool loan`."""
        return self.variable.replace("_", " ")

    @property
    def variable(self) -> str:
        """One of them as a Vox variable: `tool_loan`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()

    @property
    def short(self) -> str:
        """One of them as a loop variable: `loan`."""
        return self.variable.rpartition("_")[2]

    @property
    def collection(self) -> str:
        """Several of them as a Vox variable: `tool_loans`."""
        return self.plural.replace(" ", "_")


class _EntityRow(BaseModel):
    """An entity as the file has it: of each field its examples, whose kind is its type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        """The entity."""
        fields = (_field(name, examples) for name, examples in self.fields.items())
        return Entity(self.domain, self.name, self.plural, tuple(fields), self.adds_up)

    @model_validator(mode="after")
    def _begins_as_all_do(self) -> "_EntityRow":
        kinds = tuple(field.type for field in self.entity.fields)
        if kinds[:4] != _KINDS:
            message = f"the fields of {self.name} begin with {', '.join(kinds[:4])}, not with {', '.join(_KINDS)}"
            raise ValueError(message)
        return self


class _Words(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    domains: dict[_Word, Annotated[list[str], Described(min_length=1)]]
    entities: Annotated[list[_EntityRow], Described(min_length=1)]

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

    Each text of a domain is who would want such a program, and fits after `for`; names of entities are unique.
    """

    domains: Mapping[str, Sequence[str]]
    entities: tuple[Entity, ...]

    @property
    def additive(self) -> tuple[Entity, ...]:
        """Entities with a number field that can be summed."""
        return tuple(entity for entity in self.entities if entity.adds_up)


@cache
def load_words(path: Path = _FILE) -> Words:
    """Read what programs are about.

    Raises:
        ConfigurationError: It is missing or does not fit; the message says where.
    """
    words = load_model(path, _Words)
    return Words(words.domains, tuple(row.entity for row in words.entities))


def _field(name: str, examples: str | list[str] | list[int] | list[float]) -> Field:
    if isinstance(examples, str):
        return Field(name, "bool", ("true", "false"))
    kind = type(examples[0]).__name__
    return Field(name, kind, tuple(f'"{example}"' if kind == "str" else str(example) for example in examples))
