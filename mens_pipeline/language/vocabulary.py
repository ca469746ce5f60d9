"""The words and tables of Vox, the single source for all other parts of the language.

Spellings are `Literal` types, so that mypy refuses a comparison with a token that does not exist.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, get_args

Keyword = Literal[
    "activity", "actor", "agent", "and", "async", "break", "cleanup", "component", "continue", "dec",
    "derived", "effect", "else", "empty", "env", "extern", "false", "fetching", "fn", "for",
    "fragment", "http", "if", "import", "in", "is", "isnt", "let", "loop", "match",
    "migrate", "mount", "mut", "not", "on", "or", "pub", "return", "side_effect", "spawn",
    "state", "to", "true", "type", "view", "when", "while", "with", "workflow",
]  # fmt: skip
"""The 49 reserved words (L12)."""

Symbol = Literal[
    "(", ")", "[", "]", "{", "}", ":", "?", ",", ".",
    "=", "==", "!=", "+=", "-=", "*=", "/=", "->", "=>", "|>", "|",
    "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "</", "/>", "<>", "</>", "_",
]  # fmt: skip
"""The 34 symbols and the underscore token (L11)."""

DecoratorName = Literal[
    "@ai", "@auth", "@back_button", "@cancellable", "@collaborative", "@component", "@cors", "@deep_link",
    "@deprecated", "@distributed_train", "@embed", "@endpoint", "@ensure", "@forall", "@form", "@fuzz",
    "@hole", "@index", "@inference", "@invariant", "@layer", "@loading", "@mcp.resource", "@mcp.tool",
    "@native", "@offline_capable", "@pii", "@prompt", "@pure", "@push", "@rate_limit", "@reactive",
    "@remote", "@require", "@resource", "@scheduled", "@search", "@subagent", "@table", "@test",
    "@tokens", "@tool", "@training_step", "@uses", "@v0", "@webhook",
]  # fmt: skip
"""The 46 decorator tokens (L14)."""

ClassKind = Literal["IDENT", "TYPEIDENT", "INT", "FLOAT", "DECIMAL", "STRING", "SSTRING", "NL", "EOF"]
"""Token classes whose text varies; STRING is double-quoted, SSTRING single-quoted."""

TriviaKind = Literal["SPACE", "COMMENT", "DROPPED_CHARACTERS", "DROPPED_DECORATOR", "DROPPED_NUMBER", "DROPPED_STRING"]
"""Pieces that the parser does not see: blanks, comments, and text that the reference drops (L5, L7, L9, L10)."""

TokenKind = Keyword | Symbol | DecoratorName | ClassKind
"""A fixed spelling is its own kind."""

KEYWORDS: Final[frozenset[Keyword]] = frozenset(get_args(Keyword))
SYMBOLS: Final[frozenset[Symbol]] = frozenset(get_args(Symbol))
DECORATORS: Final[frozenset[DecoratorName]] = frozenset(get_args(DecoratorName))
TRIVIA: Final[frozenset[TriviaKind]] = frozenset(get_args(TriviaKind))

NAME_KINDS: Final[frozenset[TokenKind]] = frozenset((
    "IDENT", "TYPEIDENT", "type", "on", "state", "derived", "effect", "mount", "cleanup", "view", "component",
    "http", "env", "to", "in",
))  # fmt: skip
"""`Name` of G1: for declared names and members."""

ID_KINDS: Final[frozenset[TokenKind]] = frozenset(("IDENT", "TYPEIDENT"))
"""`Id` of G1."""

ANY_STRING: Final[frozenset[TokenKind]] = frozenset(("STRING", "SSTRING"))
"""`AnyStr` of G1."""

SEGMENT_KINDS: Final[frozenset[TokenKind]] = frozenset(("IDENT", "TYPEIDENT", "env", "http"))
"""Import path segments (G6)."""

OBJECT_KEY_KINDS: Final[frozenset[TokenKind]] = frozenset(("IDENT", "TYPEIDENT", "STRING", "SSTRING"))
"""Keys of object literals (G37)."""

TOMBSTONES: Final[frozenset[TokenKind]] = frozenset(("http", "@component", "agent", "env"))
"""First tokens of declarations that are always rejected (S1)."""

EFFECTS: Final[frozenset[str]] = frozenset(
    ("net", "db", "fs", "clock", "random", "gpu_compute", "mutate", "nothing", "mcp", "env")
)
"""Effects a `uses` clause may name (G8)."""

FUNCTION_DECORATORS: Final[frozenset[TokenKind]] = frozenset((
    "@require", "@invariant", "@ensure", "@ai", "@prompt", "@subagent", "@search", "@hole", "@inference",
    "@webhook", "@cors", "@rate_limit", "@layer", "@pii", "@embed", "@pure", "@reactive", "@remote",
    "@deprecated", "@fuzz", "@native", "@training_step", "@uses", "@auth", "@offline_capable", "@collaborative",
))  # fmt: skip
"""Decorators of any `fn` (G9-G11)."""

LLM_DECORATORS: Final[frozenset[TokenKind]] = frozenset(("@ai", "@prompt", "@subagent", "@search"))
"""Decorators of functions whose body is optional (G8)."""

BARE_DECORATORS: Final[frozenset[TokenKind]] = frozenset(
    ("@pure", "@reactive", "@remote", "@deprecated", "@fuzz", "@native", "@training_step")
)
"""Function decorators that take no arguments (G11)."""

BALANCED_DECORATORS: Final[frozenset[TokenKind]] = frozenset(("@auth", "@offline_capable", "@collaborative"))
"""Function decorators whose optional arguments are any balanced text (G11)."""

LAYOUT_TAGS: Final[frozenset[str]] = frozenset(
    """
    stack column row wrap text heading link image button panel card list list_item route_outlet overlay toast drawer
    modal
    """.split()
)
MARKUP_TAGS: Final[frozenset[str]] = frozenset(
    """
    input label textarea select option form fieldset legend table thead tbody tfoot tr th td caption audio video
    source track canvas svg img span br hr i b em strong small code pre kbd abbr cite blockquote q head meta title
    link script style noscript main section article aside header footer nav details summary dialog figure figcaption
    iframe embed object param g defs path circle rect ellipse line polyline polygon text tspan use symbol marker mask
    pattern stop filter radial_gradient linear_gradient clip_path foreign_object fe_gaussian_blur
    """.split()
)
VIEW_TAGS: Final[frozenset[str]] = LAYOUT_TAGS | MARKUP_TAGS
"""Lower-case names whose call is a view call (G41)."""

BINARY_POWERS: Final[dict[str, tuple[int, int, str]]] = {
    "|>": (1, 2, "Pipe"),
    "or": (3, 4, "Or"),
    "and": (5, 6, "And"),
    "with": (5, 6, "With"),
    "is": (7, 8, "Is"),
    "==": (7, 8, "Is"),
    "isnt": (7, 8, "Isnt"),
    "!=": (7, 8, "Isnt"),
    "<": (9, 10, "Lt"),
    ">": (9, 10, "Gt"),
    "<=": (9, 10, "Lte"),
    ">=": (9, 10, "Gte"),
    "+": (11, 12, "Add"),
    "-": (11, 12, "Sub"),
    "*": (13, 14, "Mul"),
    "/": (13, 14, "Div"),
    "%": (13, 14, "Mod"),
    "?": (100, 0, "Try"),
}
"""Operator -> (left power, right power, node name) (G34)."""

ASSIGNMENTS: Final[dict[str, str]] = {"=": "", "+=": "Add", "-=": "Sub", "*=": "Mul", "/=": "Div"}
"""Assignment operator -> the binary operator it abbreviates; empty for plain `=` (A5)."""

MAX_INT: Final = 2**63 - 1
"""Largest integer literal; a larger one yields no token (L5)."""

MAX_VERSION: Final = 2**32 - 1
"""Largest version number in `workflow.version` (S4)."""

CONTEXT_WORDS: Final[frozenset[str]] = (
    EFFECTS
    | VIEW_TAGS
    | frozenset(
        """
    any as branch by class color dark default depends_on error error_message fallback family field font from git hidden
    key kind label light loader max_len min_len mutation not_found on_submit optional partial path pattern peers pending
    query radius range raw_css react required rev routes rust server shadow spacing state_machine strategy style
    success_redirect terminal url uses version
    """.split()
    )
)
"""Identifiers with a meaning in some places; elsewhere they are ordinary names."""

FOREIGN_WORDS: Final[dict[str, str]] = {
    "await": "Vox calls an async function like any other.",
    "case": "An arm of `match` begins with its pattern.",
    "class": "Write `type Name { ... }`.",
    "const": "Write `let`.",
    "def": "Write `fn`.",
    "elif": "Write `else if`.",
    "elseif": "Write `else if`.",
    "enum": "Write `type Name = | A | B`.",
    "func": "Write `fn`.",
    "function": "Write `fn`.",
    "interface": "Write `type Name { ... }`.",
    "new": "A constructor is called by its name alone.",
    "struct": "Write `type Name { ... }`.",
    "switch": "Write `match`.",
    "throw": "Return `Error(message)`.",
    "try": "Write `?` after an expression that may fail.",
    "use": "Write `import`.",
    "var": "Write `let mut`.",
}
"""Word of another language -> advice for Vox."""


class Separator(Enum):
    """Separator between a key and its value."""

    OPTIONAL_EQUALS = "="
    REQUIRED_COLON = ":"
    OPTIONAL_COLON = ":?"
    CLASS_COLON = "class:"
    """A required colon for the key `class`, none for any other key."""


LIST: Final[frozenset[TokenKind]] = frozenset(("[",))
"""The action `list`: a loose list if a bracket follows, else nothing."""

_STRING: Final[frozenset[TokenKind]] = frozenset(("STRING",))
_WORD: Final[frozenset[TokenKind]] = frozenset(("IDENT",))
_ID: Final = ID_KINDS
_STRING_OR_ID: Final = _STRING | _ID
_INT: Final[frozenset[TokenKind]] = frozenset(("INT",))
_NUMBER: Final[frozenset[TokenKind]] = frozenset(("FLOAT", "INT"))
_BOOL: Final[frozenset[TokenKind]] = frozenset(("true", "false"))
_BOOL_OR_WORD: Final = _BOOL | _WORD


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Arguments that one decorator accepts between its parentheses.

    `values` maps a key to the token kinds of its value; a token of another kind is not consumed. `takes_unknown` tells
    whether any value of an unknown key is consumed.
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
