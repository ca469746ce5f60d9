"""What templates may name: the lists of words in `*_banks.yaml` beside them, random draws, and filters for text."""

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

from pydantic import Field as Described
from pydantic import StrictBool, StrictFloat, StrictInt, StrictStr, field_validator, model_validator

from mens_pipeline.corpus.synthesis.tasks.drafts import assertion
from mens_pipeline.corpus.synthesis.tasks.draw import draw_function
from mens_pipeline.corpus.synthesis.words import (
    Entity,
    Field,
    count_things,
    describe_fields,
    has_fields,
    lines_of,
    list_items,
    one_in,
    pick,
    quote_items,
    with_article,
)
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model

_LINE: Final = 96
"""Characters, without indentation, up to which a record stays on one line."""


def some_fields(random: Random, entity: Entity, *needed: Field, most: int = 6) -> tuple[Field, ...]:
    """Return needed fields and a few more of the same entity, at least two, in its own order."""
    others = [field for field in entity.fields if field not in needed]
    least = max(0, 2 - len(needed))
    extra = random.sample(others, random.randint(least, max(least, min(len(others), most - len(needed)))))
    return tuple(field for field in entity.fields if field in needed or field in extra)


def two_of(random: Random, rows: Sequence[Any], attribute: str) -> tuple[Any, Any]:
    """Draw two rows that differ in an attribute.

    Not all of the rows are the same in it.
    """
    first, second = random.choice(rows), random.choice(rows)
    while getattr(first, attribute) == getattr(second, attribute):
        second = random.choice(rows)
    return first, second


def fold_record(text: str) -> str:
    """Put a record that is written with a member a line on one line, where it fits.

    It is a line that ends in `{`, members with commas behind them, and a line that begins with `}`.
    """
    first, *members, last = text.rstrip("\n").split("\n")
    line = " ".join([first.strip(), *(member.strip() for member in members)]).removesuffix(",") + f" {last.strip()}"
    return text if len(line) > _LINE else f"{first[: len(first) - len(first.lstrip())]}{line}\n"


def same_names(fields: Iterable[Field]) -> str:
    """Format a record on one line whose members are taken from variables of the same names."""
    return f"{{ {', '.join(f'{field.name}: {field.name}' for field in fields)} }}"


def params(fields: Iterable[Field]) -> str:
    """Format a parameter list without its parentheses."""
    return ", ".join(field.declaration for field in fields)


def lines(items: Sequence[str | Field], width: int = 4) -> str:
    """Write items below one another: fields as they are declared, anything else as it is.

    A text has one item in each line; `width` blanks stand before all but the first.
    """
    texts = items if not isinstance(items, str) else lines_of(items)
    return ("\n" + " " * width).join(item.declaration if isinstance(item, Field) else item for item in texts)


def sentence(words: str) -> str:
    """Return words with a capital at the start."""
    return words[:1].upper() + words[1:]


def snake(name: str) -> str:
    """`ToolLoan` and `tool loan` as `tool_loan`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(" ", "_").replace("-", "_").lower()


def camel(words: str) -> str:
    """`tool loans` and `tool_loans` as `ToolLoans`."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[ _-]", words))


def _by_name(*functions: Callable[..., Any]) -> Mapping[str, Callable[..., Any]]:
    return {function.__name__: function for function in functions}


DRAWS: Final[Mapping[str, Callable[..., Any]]] = {
    **_by_name(Random.choice, Random.sample, Random.randint, one_in, pick, two_of, some_fields, has_fields),
    "described_fields": describe_fields,
    "observed_function": draw_function,
}
"""Functions that take from the generator, by the names that templates call them."""

WORDS: Final[Mapping[str, Callable[..., Any]]] = {**_by_name(params, assertion), "counted": count_things}
"""Functions that take nothing from it."""

FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    **_by_name(same_names, lines, with_article, sentence, snake, camel),
    "folded": fold_record,
    "listed": list_items,
    "quoted": quote_items,
}
"""Filters of templates."""


_Value = StrictStr | StrictBool | StrictInt | StrictFloat | list[Any]


def _record_of(columns: Sequence[str]) -> Callable[..., Any]:
    """Return the class of a row; a name that is there twice, or that no attribute can have, is a ValueError."""
    return namedtuple("record", columns)  # noqa: PYI024 - the file names them


class _Bank(Strict):
    """Rows with named columns, or a list of values, whose columns are none."""

    columns: list[Annotated[str, Described(pattern=r"^[a-z][a-z0-9_]*$")]] = Described(default_factory=list)
    rows: Annotated[list[_Value], Described(min_length=1)]

    @field_validator("columns")
    @classmethod
    def _are_attributes(cls, columns: list[str]) -> list[str]:
        _record_of(columns)
        return columns

    @property
    def records(self) -> list[Any]:
        """The values to draw from, or the rows as named tuples with the columns as attributes."""
        if not self.columns:
            return self.rows
        make = _record_of(self.columns)
        return [make(*values) for values in self.rows if isinstance(values, list)]

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, value: Any) -> Any:
        return {"rows": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _is_even(self) -> "_Bank":
        rows = self.rows if self.columns else [[value] for value in self.rows]
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, list) or len(row) != len(self.columns or ("value",)):
                raise ValueError(f"row {number} is {row!r}, not a list of {len(self.columns)} values")
        for name, values in zip(self.columns or ("value",), zip(*rows, strict=True), strict=True):
            kinds = sorted({type(value).__name__ for value in values})
            if len(kinds) > 1:
                raise ValueError(f"column {name} has values of the types {', '.join(kinds)}; put text in quotes")
        return self


class _Banks(Strict):
    banks: dict[str, _Bank]


def load_banks(folder: Path) -> dict[str, list[Any]]:
    """Load the banks of a folder, `*_banks.yaml`: name -> what may be drawn; columns are attributes of rows.

    Raises:
        ConfigurationError: A file cannot be read or does not fit, or two banks have one name.
    """
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*_banks.yaml")):
        for name, bank in load_model(path, _Banks).banks.items():
            if name in found:
                raise ConfigurationError(f"{path}: banks.{name}: there is another bank of this name. Rename one.")
            found[name] = bank.records
    return found
