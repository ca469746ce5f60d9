"""The tables agree with the language reference."""

import re
from pathlib import Path

import mens_pipeline.language
from mens_pipeline.language.vocabulary import (
    BALANCED_DECORATORS,
    BARE_DECORATORS,
    BINARY_POWERS,
    DECORATORS,
    FUNCTION_DECORATORS,
    KEYED_DECORATORS,
    KEYWORDS,
    LAYOUT_TAGS,
    LLM_DECORATORS,
    MARKUP_TAGS,
    NAME_KINDS,
    SYMBOLS,
)

_REFERENCE = (Path(mens_pipeline.language.__file__).parent / "vox-language.md").read_text(encoding="utf-8")


def _words_after(heading: str) -> set[str]:
    line = _REFERENCE.split(heading, 1)[1].lstrip("\n").split("\n")[0]
    return set(" ".join(re.findall(r"`([^`]*)`", line)).split())


def test_keywords_are_those_of_the_reference() -> None:
    """L12 lists them."""
    assert len(KEYWORDS) == 49
    assert set(_REFERENCE.split("all case-sensitive:\n\n`", 1)[1].split("`", 1)[0].split()) == KEYWORDS


def test_decorators_are_those_of_the_reference() -> None:
    """L14 lists them."""
    assert len(DECORATORS) == 46
    assert _words_after("**L14 Decorator tokens (46).**") == DECORATORS


def test_symbols_are_those_of_the_reference() -> None:
    """L11 lists 34, and the underscore token."""
    listed = _REFERENCE.split("**L11 Symbols (34, longest match).**\n", 1)[1].split("\nplus the underscore", 1)[0]

    assert len(SYMBOLS) == 35
    assert set(listed.replace("`", " ").split()) | {"_"} == SYMBOLS


def test_view_tags_are_those_of_the_reference() -> None:
    """G41 lists layout primitives and markup elements."""
    assert _words_after("Tag list, layout primitives:") == LAYOUT_TAGS
    assert _words_after("Tag list, markup elements:") == MARKUP_TAGS


def test_operator_powers_are_those_of_the_reference() -> None:
    """G34 is a table of left and right powers."""
    table = _REFERENCE.split("| token | left | right | node |", 1)[1].split("\n\n", 1)[0]
    powers = {}
    for row in table.splitlines()[2:]:
        tokens, left, right = re.split(r"(?<!\\)\|", row)[1:4]
        for token in re.findall(r"`([^`]+)`", tokens):
            powers[token.replace("\\", "")] = (int(left), 0 if right.strip() == "none" else int(right))

    assert {token: (left, right) for token, (left, right, _) in BINARY_POWERS.items()} == powers


def test_every_function_decorator_has_exactly_one_argument_form() -> None:
    """Contract, keyed, bare, balanced or `@uses`: nothing is left over and nothing overlaps (G9-G11)."""
    contracts = {"@require", "@invariant", "@ensure"}
    others: list[set[str]] = [set(KEYED_DECORATORS), set(BARE_DECORATORS), set(BALANCED_DECORATORS), {"@uses"}]
    forms: list[set[str]] = [contracts, *others]

    assert set().union(*forms) == FUNCTION_DECORATORS
    assert sum(map(len, forms)) == len(FUNCTION_DECORATORS)


def test_groups_hold_existing_tokens_only() -> None:
    assert FUNCTION_DECORATORS <= DECORATORS
    assert LLM_DECORATORS <= FUNCTION_DECORATORS
    assert NAME_KINDS - {"IDENT", "TYPEIDENT"} <= KEYWORDS
