"""The members that may be named behind a dot, while a program is being written.

What a value is, declarations that are still to come can tell as well: what is not known yet may have any member.
"""

from typing import Final

from mens_pipeline.language.completion import complete
from mens_pipeline.language.front_end import analyze
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.semantics import members_at

_NOBODY: Final = "q0"
"""A member that no value has."""


def members_after(text: str, mode: Mode = Mode.SOURCE, unsettled: str | None = None) -> frozenset[str] | None:
    """Return the names that may stand behind the dot with which a text ends.

    Its completion depends on `unsettled` alone (`ViableText.unsettled`); None for all of it.

    Returns:
        Fields and methods of the value before the dot; None where that is not known, or the dot is no access.
    """
    tail = text if unsettled is None else unsettled
    fields, methods = (_members(text, tail, ending, mode) for ending in (_NOBODY, f"{_NOBODY}()"))
    return fields | methods if fields is not None and methods is not None else None


def _members(text: str, tail: str, ending: str, mode: Mode) -> frozenset[str] | None:
    rest = complete(tail + ending, mode, is_strict=True)
    source = text + ending + (rest or "")
    module = analyze(source, mode).module
    return members_at(module, source, len(text)) if module is not None else None
