"""Changing one literal: a default, a limit, a label."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.literal_sites import sites_of
from mens_pipeline.corpus.synthesis.mutations.naming import synonyms_of
from mens_pipeline.corpus.synthesis.mutations.task import Change, capitalised, described, task_of
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import histogram

_NAMED_FRAMES: Final[tuple[str, ...]] = (
    "Change {what} in {where} from {old} to {new} in this Vox program:",
    "In the following Vox program, {what} in {where} should be {new} instead of {old}.",
    "Set {what} in {where} of this Vox program to {new}; it is {old} now.",
)
_CONSTANT_FRAMES: Final[tuple[str, ...]] = (
    "Change {what} from {old} to {new} in this Vox program:",
    "In the following Vox program, {what} should be {new} instead of {old}.",
)
_LITERAL_FRAMES: Final[tuple[str, ...]] = (
    "Change {what} in {where} of this Vox program to {new}:",
    "In {where} of the following Vox program, replace {what} by {new} and leave the rest alone.",
    "{what} in {where} of this Vox program should be {new}. Change it.",
)


def change_literal(program: Program, random: Random) -> Sample | None:
    """Make a task: a prompt to change one literal, and the program with the new one.

    Returns:
        The task; None when there is no literal that can be changed on its own.
    """
    sites = sites_of(program)
    if not sites:
        return None
    site = random.choice(sites)
    new = _other(site.old, random)
    span = program.spans[site.place]
    frames = _CONSTANT_FRAMES if span.construct.name == "const" else _NAMED_FRAMES
    frames = frames if site.is_named else _LITERAL_FRAMES
    request = random.choice(frames).format(
        what=site.what, where=described(span), old=_quoted(site.old), new=_quoted(new)
    )
    edits = (Edit(site.start, site.start + len(site.old), new),)
    constructs = histogram(program.module)
    return task_of(
        program,
        Change(
            "literals",
            span.construct.name,
            capitalised(request),
            edits,
            lambda after: histogram(after.module) == constructs,
        ),
    )


def _quoted(literal: str) -> str:
    return literal if literal.startswith(('"', "'")) else f"`{literal}`"


def _other(old: str, random: Random) -> str:
    """Return another literal of the same type, not far from the old one."""
    if old in {"true", "false"}:
        return "true" if old == "false" else "false"
    if old.startswith(('"', "'")):
        return f"{old[0]}{_other_text(old[1:-1], random)}{old[0]}"
    return _other_float(float(old), random) if "." in old else str(_other_int(int(old), random))


def _other_int(old: int, random: Random) -> int:
    if old < 10:  # noqa: PLR2004 - one digit
        return old + random.choice((1, 2, 3))
    if old % 10:
        return old + random.choice((-1, 1, 2, 5))
    return random.choice((old * 2, old + 10, old * 3 // 2))


def _other_float(old: float, random: Random) -> str:
    text = f"{random.choice((old * 2, old + 0.5, old + 1)) or 1.0:g}"
    return text if "." in text else f"{text}.0"


def _other_text(old: str, random: Random) -> str:
    """Replace one word of the text with a synonym, or make a small visible change where none is known."""
    words = old.split(" ")
    ideas = [
        " ".join((*words[:place], _like(word, synonym), *words[place + 1 :]))
        for place, word in enumerate(words)
        for synonym in synonyms_of(word.lower())
        if "_" not in synonym
    ]
    if not ideas:
        ideas = [old.upper(), f"Note: {old}"] if old[0].isupper() else [f"note: {old}", f"warning: {old}"]
    return random.choice(ideas)


def _like(word: str, synonym: str) -> str:
    return synonym.capitalize() if word[0].isupper() else synonym
