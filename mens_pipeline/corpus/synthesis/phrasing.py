"""How people ask for a program: frames, lists and the small change of English grammar."""

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.words import DOMAINS, Field

FRAMES: Final = (
    "Write {what} in Vox.",
    "In Vox, write {what}.",
    "I need {what} in Vox.",
    "Can you write {what} in Vox?",
    "Give me {what}, written in Vox.",
    "How would I write {what} in Vox?",
    "Please create {what} in Vox.",
    "Vox: {what}.",
    "We need {what} in Vox.",
    "Could you put together {what} in Vox?",
    "I am looking for {what} in Vox.",
    "Define {what} in Vox.",
    "What {do} {what} look like in Vox?",
    "Using Vox, implement {what}.",
    "Show me {what} in Vox.",
    "Task: write {what} in Vox.",
    "Add {what} to my Vox project.",
    "Produce {what} in Vox.",
)
"""Openings of a request; `{what}` is a short noun phrase with its article, `{do}` the verb that agrees with it."""

_CONTEXT_FRAMES: Final = (
    "For {context}, write {what} in Vox.",
    "For {context} we need {what} in Vox.",
    "I am on a project for {context}. {opening}",
    "This is for {context}. {opening}",
    "{opening} It is for {context}.",
    "This is part of a project for {context}. {opening}",
    "We do the programming for {context}. {opening}",
)

_CLOSINGS: Final = (
    "Code only, please.",
    "Please answer with the code alone.",
    "No explanation needed.",
    "Just the code.",
)

_TYPE_WORDS: Final = {"str": "text", "int": "integer", "bool": "boolean", "float": "float"}

_VOWELS: Final = "aeiou"

_SMALL_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def ask(random: Random, what: str, *details: str, domain: str = "") -> str:
    """Write a prompt that asks for a program.

    Args:
        random: Decides the wording.
        what: What is wanted: a short noun phrase with its article.
        details: Whole sentences that say what it must be like; all of them are kept, in this order.
        domain: A key of `DOMAINS` that the request may mention; empty for none.

    Returns:
        One paragraph, or an opening with a list of the details.
    """
    opening = _opening(random, what, domain)
    sentences = [detail for detail in details if detail]
    if len(sentences) > 1 and one_in(random, 6):
        return "\n".join([opening, *(f"- {sentence}" for sentence in sentences)])
    closing = [random.choice(_CLOSINGS)] if one_in(random, 12) else []
    return " ".join([opening, *sentences, *closing])


def _opening(random: Random, what: str, domain: str) -> str:
    opening = random.choice(FRAMES).format(what=what, do="do" if is_plural(what) else "does")
    if not domain or one_in(random, 2):
        return opening
    context = random.choice(DOMAINS[domain])
    return random.choice(_CONTEXT_FRAMES).format(context=context, what=what, opening=opening)


def is_plural(what: str) -> bool:
    """Whether a noun phrase takes a plural verb: several things, or one without an article.

    Args:
        what: As `ask` takes it; what follows `with`, `that`, `for`, `of`, `on` or a colon does not count.
    """
    head = re.split(r" (?:with|that|for|of|on) |: ", what)[0]
    return not what.startswith(("a ", "an ", "the ")) or " and " in head or ", and " in what


def listed(items: Sequence[str]) -> str:
    """Items as a sentence lists them: `a`, `a and b`, `a, b and c`.

    Args:
        items: At least one.
    """
    *front, last = items
    return f"{', '.join(front)} and {last}" if front else last


def quoted(items: Sequence[str]) -> str:
    """Items as code, as a sentence lists them.

    Args:
        items: At least one.
    """
    return listed([f"`{item}`" for item in items])


def described_fields(random: Random, fields: Sequence[Field]) -> str:
    """Fields with their types, in one of the usual ways to say it.

    Args:
        random: Decides the way.
        fields: At least one.
    """
    ways = (
        quoted([field.declaration for field in fields]),
        listed([f"`{field.name}` ({field.type})" for field in fields]),
        listed([f"the {_TYPE_WORDS[field.type]} `{field.name}`" for field in fields]),
        ", ".join(f"`{field.declaration}`" for field in fields),
    )
    return random.choice(ways)


def has_fields(random: Random, subject: str, fields: Sequence[Field]) -> str:
    """Write a sentence that says which fields something has.

    Args:
        random: Decides the wording.
        subject: What has them; a singular noun phrase at the start of a sentence: `It`, `Each book`.
        fields: At least one.
    """
    what = described_fields(random, fields)
    verbs = ("stores", "holds") if len(fields) == 1 else ("stores", "holds", "consists of", "is made of")
    if what.startswith("`") and len(fields) > 1:
        verbs = (*verbs, "has the fields")
    return f"{subject} {random.choice(verbs)} {what}."


def with_article(noun: str) -> str:
    """Put `a` or `an` before a noun, by its first letter; the word banks hold none that sounds otherwise.

    Args:
        noun: In words or in backticks.
    """
    return f"{'an' if noun.lstrip('`')[0].lower() in _VOWELS else 'a'} {noun}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number of things: `one field`, `three fields`.

    Args:
        number: At least 0; from eleven on it is written in digits.
        noun: One of them.
        plural: Several; the noun with an `s` by default.
    """
    word = _SMALL_NUMBERS[number] if number < len(_SMALL_NUMBERS) else str(number)
    return f"{word} {noun if number == 1 else plural or noun + 's'}"


def one_in(random: Random, number: int) -> bool:
    """Whether something happens that happens once in a number of times.

    Args:
        random: Decides.
        number: At least 1.
    """
    return random.randrange(number) == 0


def pick(random: Random, *choices: str) -> str:
    """One of several ways to say the same.

    Args:
        random: Decides.
        choices: At least one.
    """
    return random.choice(choices)
