"""The key lists of function decorators, as a table (G10)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mens_pipeline.language.vocabulary import TokenKind


class Separator(Enum):
    """Separator between a key and its value."""

    OPTIONAL_EQUALS = "="
    REQUIRED_COLON = ":"
    OPTIONAL_COLON = ":?"
    CLASS_COLON = "class:"
    """A required colon for the key `class`, none for any other key."""


LIST: Final[frozenset[TokenKind]] = frozenset(("[",))
"""The action `list`: a loose list if a bracket follows, otherwise nothing."""

_STRING: Final[frozenset[TokenKind]] = frozenset(("STRING",))
_WORD: Final[frozenset[TokenKind]] = frozenset(("IDENT",))
_ID: Final[frozenset[TokenKind]] = frozenset(("IDENT", "TYPEIDENT"))
_STRING_OR_ID: Final = _STRING | _ID
_INT: Final[frozenset[TokenKind]] = frozenset(("INT",))
_NUMBER: Final[frozenset[TokenKind]] = frozenset(("FLOAT", "INT"))
_BOOL: Final[frozenset[TokenKind]] = frozenset(("true", "false"))
_BOOL_OR_WORD: Final = _BOOL | _WORD


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Arguments that one decorator accepts between its parentheses.

    The `values` of a key are the token kinds it may have; one of another kind is not consumed. `takes_unknown` tells
    whether the value of an unknown key is consumed, whatever it is.
    """

    separator: Separator
    values: dict[str, frozenset[TokenKind]]
    takes_unknown: bool = True


KEYED_DECORATORS: Final[dict[TokenKind, KeyTable]] = {
    "@ai": KeyTable(
        Separator.OPTIONAL_EQUALS,
        {
            "model": _STRING,
            "structured_output": _ID,
            "task_category": _ID,
            "tier_max": _ID,
            "max_iterations": _INT,
            "cost_ceiling_usd_per_call": _NUMBER,
            "strengths": LIST,
        },
    ),
    "@prompt": KeyTable(Separator.OPTIONAL_EQUALS, {"stage": _ID, "schema": _ID, "redact": LIST}),
    "@subagent": KeyTable(
        Separator.OPTIONAL_EQUALS,
        {
            "policy": _ID,
            "max_depth": _INT,
            "complexity": _INT,
            "budget_usd": _NUMBER,
            "description": _STRING,
            "parallel": _BOOL,
        },
    ),
    "@search": KeyTable(
        Separator.OPTIONAL_EQUALS,
        {"corpus": _ID, "into": _ID, "query": _STRING_OR_ID, "policy": _STRING_OR_ID, "top_k": _INT},
    ),
    "@hole": KeyTable(
        Separator.OPTIONAL_EQUALS,
        {"spec": _STRING_OR_ID, "cache_key": _STRING_OR_ID, "reviewer": _ID, "constraints": LIST},
    ),
    "@inference": KeyTable(Separator.OPTIONAL_EQUALS, {"model": _STRING}, takes_unknown=False),
    "@webhook": KeyTable(
        Separator.REQUIRED_COLON,
        {"provider": _WORD, "secret": _STRING, "replay_window_secs": _INT, "idempotent": _BOOL_OR_WORD},
    ),
    "@cors": KeyTable(Separator.REQUIRED_COLON, {"origins": LIST | _STRING, "allow_credentials": _BOOL_OR_WORD}),
    "@rate_limit": KeyTable(
        Separator.REQUIRED_COLON,
        {"by": _WORD, "window": _INT, "window_secs": _INT, "max": _INT, "max_requests": _INT},
    ),
    "@layer": KeyTable(Separator.REQUIRED_COLON, {"tier": _WORD}),
    "@pii": KeyTable(Separator.CLASS_COLON, {"class": _WORD}),
    "@embed": KeyTable(Separator.OPTIONAL_COLON, {"model": _STRING, "source_field": _STRING, "dimensions": _INT}),
}
