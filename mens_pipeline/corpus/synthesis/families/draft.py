"""The pieces that every family is made with: a draft of a program, and the layout of blocks, records and types."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from textwrap import indent
from typing import Final

from mens_pipeline.corpus.synthesis.sample import Family, Sample
from mens_pipeline.corpus.synthesis.words import Entity, Field
from mens_pipeline.language import Mode

_LINE: Final = 96
"""Characters, without indentation, up to which a record stays on one line."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A request and the declarations that answer it.

    Attributes:
        prompt: The request.
        declarations: In the order of the file, a blank line between them.
    """

    prompt: str
    declarations: tuple[str, ...]


def family(name: str, write: Callable[[Random], Draft], *, construct: str = "", mode: Mode = Mode.SOURCE) -> Family:
    """Build a family from a function that writes drafts.

    Args:
        name: The construct and the shape, with a slash between.
        write: Makes one draft, from the generator alone.
        construct: What it teaches; the first part of the name by default.
        mode: How its programs are read.
    """
    taught = construct or name.partition("/")[0]

    def make(random: Random) -> Sample:
        draft = write(random)
        response = "\n\n".join(draft.declarations) + "\n"
        return Sample(template=name, construct=taught, prompt=draft.prompt, response=response, mode=mode)

    return Family(name, taught, make)


def block(head: str, *body: str) -> str:
    """Format a head with its body in braces, indented by four spaces.

    Args:
        head: What stands before the brace.
        body: Lines or whole blocks; an empty one is a blank line.
    """
    return "\n".join([f"{head} {{", *(indent(part, "    ") for part in body), "}"])


def struct(name: str, fields: Sequence[Field], keyword: str = "type") -> str:
    """Format a struct type, or a table.

    Args:
        name: Its name.
        fields: At least one.
        keyword: `type`, `pub type` or `@table type`.
    """
    return block(f"{keyword} {name}", *(field.declaration for field in fields))


def table(entity: Entity, fields: Sequence[Field]) -> str:
    """Format the table of an entity.

    Args:
        entity: Whose rows it keeps.
        fields: Those that it stores.
    """
    return struct(entity.name, fields, "@table type")


def record(pairs: Iterable[tuple[str, str]]) -> str:
    """Format a record literal on one line.

    Args:
        pairs: Field names and expressions.
    """
    return f"{{ {', '.join(f'{name}: {value}' for name, value in pairs)} }}"


def with_record(before: str, pairs: Sequence[tuple[str, str]], after: str = "") -> str:
    """Format a line with a record literal in it, or several lines where one would be long.

    Args:
        before: What stands before the literal.
        pairs: Field names and expressions.
        after: What stands after it.
    """
    line = f"{before}{record(pairs)}{after}"
    if len(line) <= _LINE:
        return line
    return "\n".join([f"{before}{{", *(f"    {name}: {value}," for name, value in pairs), f"}}{after}"])


def same_names(fields: Iterable[Field]) -> list[tuple[str, str]]:
    """Return the pairs of a record whose fields are taken from parameters of the same names.

    Args:
        fields: What it holds.
    """
    return [(field.name, field.name) for field in fields]


def params(fields: Iterable[Field]) -> str:
    """Format a parameter list without its parentheses.

    Args:
        fields: One parameter each.
    """
    return ", ".join(field.declaration for field in fields)


def example(random: Random, fields: Sequence[Field]) -> dict[str, str]:
    """Draw the values of one record: field name -> Vox literal.

    Args:
        random: Picks among the examples of each field.
        fields: Fields of one entity.
    """
    return {field.name: random.choice(field.examples) for field in fields}


def some_fields(random: Random, entity: Entity, *needed: Field, most: int = 6) -> tuple[Field, ...]:
    """Needed fields and a few more of the same entity, in its own order.

    Args:
        random: Decides which and how many.
        entity: Where they come from.
        needed: Fields that must be there.
        most: The largest number of fields.

    Returns:
        At least the needed ones and at least two.
    """
    others = [field for field in entity.fields if field not in needed]
    least = max(0, 2 - len(needed))
    extra = random.sample(others, random.randint(least, max(least, min(len(others), most - len(needed)))))
    return tuple(field for field in entity.fields if field in needed or field in extra)


def snake(name: str) -> str:
    """`ToolLoan` and `tool loan` as `tool_loan`.

    Args:
        name: A type name or words.
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(" ", "_").replace("-", "_").lower()


def camel(words: str) -> str:
    """`tool loans` and `tool_loans` as `ToolLoans`.

    Args:
        words: Words or a snake-case name.
    """
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[ _-]", words))


def sentence(words: str) -> str:
    """Words with a capital at the start.

    Args:
        words: At least one.
    """
    return words[:1].upper() + words[1:]
