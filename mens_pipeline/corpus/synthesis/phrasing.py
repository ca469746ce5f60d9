"""Wording of synthetic prompts: sentence frames from `phrasing.yaml`, lists, articles and plurals."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from string import Formatter
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic import Field as Described

from mens_pipeline.corpus.synthesis.words import Field, load_words
from mens_pipeline.storage.yaml_file import load_model

_FILE: Final = Path(__file__).with_name("phrasing.yaml")

_TYPE_WORDS: Final = {"str": "text", "int": "integer", "bool": "boolean", "float": "float"}

_VOWELS: Final = "aeiou"

_SMALL_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _frame(text: str) -> str:
    """Refuse a frame with other holes than it may have, or with none of them."""
    holes = {hole for _, hole, _, _ in Formatter().parse(text) if hole is not None}
    if not holes <= {"what", "do", "context", "opening"} or not holes & {"what", "opening"}:
        raise ValueError(f"{text!r} has the holes {sorted(holes)}; write {{what}}, {{do}}, {{context}} or {{opening}}")
    return text


_Frames = Annotated[list[Annotated[str, AfterValidator(_frame)]], Described(min_length=1)]


class Phrasing(BaseModel):
    """Openings and closings of a request.

    Frames have a hole for what is wanted; context frames have one for who would want it, and one for what is wanted or
    for one of the frames. Closings may stand at the end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    frames: _Frames
    context_frames: _Frames
    closings: Annotated[list[str], Described(min_length=1)]


@cache
def load_phrasing(path: Path = _FILE) -> Phrasing:
    """Read how people ask.

    Raises:
        ConfigurationError: It is missing or does not fit; the message says where.
    """
    return load_model(path, Phrasing)


def ask(random: Random, what: str, *details: str, domain: str = "") -> str:
    """Write a prompt that asks for a program: one paragraph, or an opening with a list of the details.

    `what` is a short noun phrase with its article; `details` are whole sentences, all of which are kept, in this order;
    `domain` is one of `words.yaml` that the request may mention, empty for none.
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
    """Return whether a noun phrase takes a plural verb: several things, or one without an article.

    What follows `with`, `that`, `for`, `of`, `on` or a colon does not count.
    """
    head = re.split(r" (?:with|that|for|of|on) |: ", what)[0]
    return not what.startswith(("a ", "an ", "the ")) or " and " in head or ", and " in what


def listed(items: Sequence[str]) -> str:
    """Return items, or the lines of a text, as a sentence lists them: `a`, `a and b`, `a, b and c`."""
    *front, last = map(str, lines_of(items))
    return f"{', '.join(front)} and {last}" if front else last


def quoted(items: Sequence[str]) -> str:
    """Return items, or the lines of a text, as code, as a sentence lists them."""
    return listed([f"`{item}`" for item in lines_of(items)])


def lines_of(items: Sequence[str]) -> Sequence[str]:
    """Return items as they are; of a text, its lines that are not blank."""
    return [line for line in items.split("\n") if line.strip()] if isinstance(items, str) else items


def described_fields(random: Random, fields: Sequence[Field]) -> str:
    """Return fields with their types, in one of the usual ways to say it."""
    ways = (
        quoted([field.declaration for field in fields]),
        listed([f"`{field.name}` ({field.type})" for field in fields]),
        listed([f"the {_TYPE_WORDS[field.type]} `{field.name}`" for field in fields]),
        ", ".join(f"`{field.declaration}`" for field in fields),
    )
    return random.choice(ways)


def has_fields(random: Random, subject: str, fields: Sequence[Field]) -> str:
    """Write a sentence that says which fields something has.

    `subject` is a singular noun phrase at the start of a sentence: `It`, `Each book`.
    """
    what = described_fields(random, fields)
    verbs = ("stores", "holds") if len(fields) == 1 else ("stores", "holds", "consists of", "is made of")
    if what.startswith("`") and len(fields) > 1:
        verbs = (*verbs, "has the fields")
    return f"{subject} {random.choice(verbs)} {what}."


def with_article(noun: str) -> str:
    """Put `a` or `an` before a noun, by its first letter; the word banks hold none that sounds otherwise."""
    return f"{'an' if noun.lstrip('`')[0].lower() in _VOWELS else 'a'} {noun}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number of things: `one field`, `three fields`.

    From eleven on the number is written in digits; the plural is the noun with an `s` by default.
    """
    word = _SMALL_NUMBERS[number] if number < len(_SMALL_NUMBERS) else str(number)
    return f"{word} {noun if number == 1 else plural or noun + 's'}"


def one_in(random: Random, number: int) -> bool:
    """Return whether something happens that happens once in a number of times."""
    return random.randrange(number) == 0


def pick(random: Random, *choices: str) -> str:
    """Return one of several ways to say the same."""
    return random.choice(choices)
