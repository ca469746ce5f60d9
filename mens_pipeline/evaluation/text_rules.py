"""Refusals and placeholders in the text of a completion."""

import re
from typing import Final

from mens_pipeline.language import tokenize

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
"""Marks of unfinished code; `todo`, `stub` and `placeholder` alone also describe user interfaces."""


def is_refusal(completion: str) -> bool:
    """Return whether a completion says that the model will not or cannot do it."""
    return _REFUSAL.search(completion) is not None


def has_placeholder(program: str) -> bool:
    """Return whether a program has a comment in place of code."""
    comments = (token.text for token in tokenize(program) if token.kind == "COMMENT")
    return any(_PLACEHOLDER.search(comment) for comment in comments)
