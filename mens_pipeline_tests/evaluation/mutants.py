"""Mutants of a program: small changes that hidden tests should notice. Only those that still parse are made."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language import Mode, Token, analyze, tokenize
from mens_pipeline.language.ast import (
    Assign,
    Break,
    Continue,
    Expr,
    ExprStatement,
    Function,
    GenericType,
    If,
    Module,
    NamedType,
    Return,
    Unary,
    While,
    walk,
)

_SWAPS: Final = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "is": ("isnt",),
    "isnt": ("is",),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "%": ("*",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("/=",),
    "/=": ("*=",),
    "and": ("or",),
    "or": ("and",),
    "true": ("false",),
    "false": ("true",),
}
"""Spelling -> its replacements."""

_DEFAULTS: Final = {
    "int": "0",
    "float": "0.0",
    "dec": "0dec",
    "str": '""',
    "bool": "false",
    "List": "[]",
    "Option": "None",
}
"""Return type -> its smallest value."""

_SPELLINGS: Final = {"Not": "not", "Neg": "-"}
"""Prefix operator -> its spelling."""

_DROPPED: Final = Assign | Return | Break | Continue | ExprStatement
"""Not `let`: without its name, any test fails."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one change, and where it differs."""

    text: str
    change: str


def mutants_of(program: str, mode: Mode = Mode.SOURCE) -> list[Mutant]:
    """The mutants of an accepted program that parse, each text once."""
    module = analyze(program, mode).module
    assert module is not None, "only programs that parse have mutants"
    found: dict[str, Mutant] = {}
    for start, end, new in (*_token_edits(tokenize(program)), *_tree_edits(module, program)):
        text = program[:start] + new + program[end:]
        if text != program and text not in found and analyze(text, mode).module is not None:
            line = program.count("\n", 0, start) + 1
            found[text] = Mutant(text, f"line {line}: {program[start:end]!r} -> {new!r}")
    return list(found.values())


def _token_edits(tokens: tuple[Token, ...]) -> Iterator[tuple[int, int, str]]:
    for token in tokens:
        for new in _replace(token):
            yield token.start, token.end, new


def _replace(token: Token) -> tuple[str, ...]:
    if token.kind == "INT":
        return str(int(token.text) + 1), str(int(token.text) - 1)
    if token.kind in {"STRING", "SSTRING"}:
        return ('"mutant"',) if len(token.text) == len('""') else ('""', f'{token.text[:-1]}x"')
    return _SWAPS.get(token.text, ())


def _tree_edits(module: Module, program: str) -> Iterator[tuple[int, int, str]]:
    for node in walk(module):
        if isinstance(node, If | While):
            yield _negate(node.condition, program)
        if isinstance(node, Unary):
            yield node.start, node.start + len(_SPELLINGS[node.op]), ""
        if isinstance(node, _DROPPED):
            yield node.start, node.end, ""
        if isinstance(node, Function):
            yield from _default_returns(node)


def _negate(condition: Expr, program: str) -> tuple[int, int, str]:
    return condition.start, condition.end, f"not ({program[condition.start : condition.end]})"


def _default_returns(function: Function) -> Iterator[tuple[int, int, str]]:
    declared = function.return_type
    default = _DEFAULTS.get(declared.name) if isinstance(declared, NamedType | GenericType) else None
    for node in walk(function):
        if default is not None and isinstance(node, Return) and node.value is not None:
            yield node.value.start, node.value.end, default
