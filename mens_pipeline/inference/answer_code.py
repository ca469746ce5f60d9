"""From what a model wrote to the program in it, and what is wrong with the text before any parser sees it."""

import re
from typing import Final

from mens_pipeline.corpus.evolution.examine import Reading
from mens_pipeline.language import Mode, analyze, tokenize

_FENCE: Final = re.compile(
    r"^[ \t]*(?P<fence>(?P<mark>[`~])(?P=mark){2,})[^`\n]*\n"
    r"(?P<program>.*?)"
    r"(?:^[ \t]*(?P=fence)(?P=mark)*[ \t]*\r?$|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A fenced block of CommonMark; one that is not closed goes on to the end."""
_REFUSAL: Final = re.compile(
    r"\b(?:I(?:['\u2019]m| am) (?:sorry|unable|not able)|I (?:cannot|can['\u2019]t|can not)"
    r"|as an AI|as a language model)\b",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(
    r"\b(?:TODO|FIXME|TBD|XXX)\b"
    r"|(?i:^(?://|\#)\s*(?:todo|fixme|tbd|placeholder|stub)\s*(?::|[.!]*\s*$))"
    r"|(?i:\b(?:not (?:yet )?implemented|to be implemented|coming soon|your code (?:goes )?here|rest of the code"
    r"|(?:placeholder|stub) (?:implementation|body|code|logic))\b)"
)
"""Marks of unfinished code; `todo`, `stub`, `placeholder` alone are words that user interfaces are described with."""


def program_in(answer: str) -> str:
    """Return the program of a completion: the longest fenced block when there is one, else all of it."""
    blocks = [match["program"] for match in _FENCE.finditer(answer)]
    return max(blocks, key=len) if blocks else answer


def is_program(answer: str, mode: Mode) -> bool:
    """Return whether the program of an answer is accepted by the front end, and declares something."""
    module = analyze(program_in(answer), mode).module
    return module is not None and bool(module.declarations)


def is_refusal(answer: str) -> bool:
    """Return whether an answer says that the model will not or cannot do it."""
    return _REFUSAL.search(answer) is not None


def has_placeholder(program: str) -> bool:
    """Return whether a comment of a program stands where code should."""
    comments = (token.text for token in tokenize(program) if token.kind == "COMMENT")
    return any(_PLACEHOLDER.search(comment) for comment in comments)


def read_reply(text: str) -> Reading:
    """Read a reply as completions are read when models are judged."""
    program = program_in(text)
    return Reading(program=program, is_refusal=is_refusal(text), is_stub=has_placeholder(program))
