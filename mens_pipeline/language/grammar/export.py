"""Export the grammar: `vox.lark` in the Lark dialect of llguidance, and the same rules as GBNF for llama.cpp.

`vox.lark` is handwritten except for its fingerprint and the rules below the last heading, which come from the tables
of the front end. `python -m mens_pipeline.language.grammar.export > new.lark` updates both. The two notations differ
only in spelling, because every regular expression in the file is a repeated character class.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from os.path import commonprefix
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from mens_pipeline.language.grammar import grammar_fingerprint
from mens_pipeline.language.vocabulary import (
    KEYED_DECORATORS,
    KEYWORDS,
    LLM_DECORATORS,
    NAME_KINDS,
    VIEW_TAGS,
    KeyTable,
    Separator,
    TokenKind,
)

GRAMMAR_FILE: Final = Path(__file__).with_name("vox.lark")

_FINGERPRINT: Final = "// Grammar fingerprint: "
_alternatives: Final = " | ".join
_TABLES: Final = "// Generated from the tables of the front end.\n"
_KEY_VALUES: Final = {"[": "loose_list", **{kind: kind for kind in ("STRING", "INT", "FLOAT", "IDENT", "TYPEIDENT")}}
_PIECE: Final = re.compile(
    r'//(?P<comment>.*)|/(?P<classes>(?:[^/\\]|\\.)++)/?|(?P<rule>\w+):|(?P<name>\w+)|(?P<repetition>[*+?])|"(?:[^"\\]|\\.)*+"?|[|()]'
)


class GrammarFormat(StrEnum):
    """Notation of a grammar: `lark` for llguidance and xgrammar, `gbnf` for llama.cpp."""

    LARK = "lark"
    GBNF = "gbnf"


def grammar_text(notation: GrammarFormat, *, is_ui: bool = False) -> str:
    """Return the grammar of a subset of Vox, without the parser's limit on nesting; `is_ui` is for `.vox.ui` files."""
    text = GRAMMAR_FILE.read_text(encoding="utf-8")
    if is_ui:
        text = text.replace("\ndecl: ", "\ndecl: reactive | ").replace("mode `source`", "mode `ui`")
    return text if notation is GrammarFormat.LARK else as_gbnf(text)


def as_gbnf(lark: str) -> str:
    """Convert the grammar to the notation of llama.cpp: one line per rule, the first named `root`."""
    lines: list[str] = []
    for piece in _PIECE.finditer(lark):
        match piece.lastgroup:
            case "comment":
                lines.append("#" + piece["comment"])
            case "rule":
                lines.append(_gbnf_name(piece["rule"]) + " ::=")
            case "name":
                lines[-1] += " " + _gbnf_name(piece["name"])
            case "repetition":
                lines[-1] += piece[0]
            case _:
                lines[-1] += " " + (piece["classes"] or piece[0])
    return "\n".join(lines) + "\n"


def _gbnf_name(name: str) -> str:
    return "root" if name == "start" else name.replace("_", "-")


def renew(lark: str) -> str:
    """Return the grammar with an up-to-date fingerprint and up-to-date rules from tables."""
    by_hand = lark.partition(_TABLES)[0]
    stamped = re.sub(f"(?<={_FINGERPRINT}).*", grammar_fingerprint(), by_hand)
    return stamped + _TABLES + "".join(f"{name}: {alternatives}\n" for name, alternatives in _table_rules())


def _table_rules() -> Iterator[tuple[str, str]]:
    yield "keyed_decorator", _alternatives(_keyed_rule(name) for name in KEYED_DECORATORS if name not in LLM_DECORATORS)
    yield "llm_decorator", _alternatives(_keyed_rule(name) for name in KEYED_DECORATORS if name in LLM_DECORATORS)
    for name, table in KEYED_DECORATORS.items():
        yield _name_rule(name), _alternatives(_key(table, key, kinds) for key, kinds in table.values.items())
    soft = sorted(NAME_KINDS & KEYWORDS)
    yield "NAME", f"IDENT | TYPEIDENT | {_alternatives(map(_quote, soft))}"
    yield "VIEW_TAG", _alternatives(map(_quote, sorted(VIEW_TAGS)))
    yield "IDENT", _identifier_but(KEYWORDS | {"_"})
    # First word of a path with `as { }` (G6), and of a call before a block (G41).
    yield "PLAIN", _identifier_but(KEYWORDS | VIEW_TAGS | {"_", "rust"})


def _keyed_rule(name: str) -> str:
    key = _name_rule(name)
    return f'"{name}" ("(" (NL? {key} (COMMA NL? {key})* (COMMA NL?)?)? ")")?'


def _name_rule(decorator: str) -> str:
    return decorator.removeprefix("@") + "_key"


def _key(table: KeyTable, key: str, kinds: frozenset[TokenKind]) -> str:
    sign = "EQ" if table.separator is Separator.OPTIONAL_EQUALS else "COLON"
    values = _alternatives(_KEY_VALUES.get(kind) or _quote(kind) for kind in sorted(kinds))
    return f'"{key}" {sign} {f"({values})" if len(kinds) > 1 else values}'


def _quote(word: str) -> str:
    return f'"{word}"'


def _identifier_but(words: Iterable[str]) -> str:
    """List every way to differ from the words, because neither notation can subtract."""
    return _alternatives(_branches(set(words), ""))


def _branches(tails: set[str], others: str) -> Iterator[str]:
    """Yield patterns that continue a common prefix of words without completing any of them.

    Shared prefixes are written once to keep parentheses shallow: engines limit their nesting.
    """
    firsts = sorted({tail[0] for tail in tails})
    yield _other_than(firsts, others)
    for first in firsts:
        alike = [tail for tail in tails if tail[0] == first]
        stem = commonprefix(alike)  # noqa: RUF071 - of words, not of paths
        for end in range(1, len(stem)):
            yield f'"{stem[:end]}" ({_other_than([stem[end]], "A-Z0-9")})?'
        ends = {tail.removeprefix(stem) for tail in alike}
        if ends == {""}:
            yield f'"{stem}" /[A-Za-z0-9_]+/'
        else:
            yield f'"{stem}" ({_alternatives(_branches(ends - {""}, "A-Z0-9"))})' + ("" if "" in ends else "?")


def _other_than(firsts: Iterable[str], others: str) -> str:
    runs = re.split(f"[{''.join(firsts)}]", ascii_lowercase)
    others += "".join(f"{run[0]}-{run[-1]}" for run in runs if run) + ("" if "_" in firsts else "_")
    return f"/[{others}][A-Za-z0-9_]*/"


if __name__ == "__main__":
    sys.stdout.write(renew(GRAMMAR_FILE.read_text(encoding="utf-8")))
