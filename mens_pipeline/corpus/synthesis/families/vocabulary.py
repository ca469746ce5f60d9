"""Functions and filters for templates: random draws, and helpers for names and sentences."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from mens_pipeline.corpus.synthesis.phrasing import (
    counted,
    described_fields,
    has_fields,
    lines_of,
    listed,
    one_in,
    pick,
    quoted,
    with_article,
)
from mens_pipeline.corpus.synthesis.tasks.draw import observed_function
from mens_pipeline.corpus.synthesis.tasks.wording import assertion
from mens_pipeline.corpus.synthesis.words import Entity, Field

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


def folded(text: str) -> str:
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


DRAWS: Final = _by_name(
    *(Random.choice, Random.sample, Random.randint, one_in, pick, two_of),
    *(some_fields, has_fields, described_fields, observed_function),
)
"""Functions that take from the generator, by the names that templates call them."""

WORDS: Final = _by_name(params, counted, assertion)
"""Functions that take nothing from it."""

FILTERS: Final = _by_name(folded, same_names, listed, quoted, lines, with_article, sentence, snake, camel)
"""Filters of templates."""
