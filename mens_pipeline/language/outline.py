"""Top-level declarations of a text: their exact spans, and their structure.

The structure ignores declared names and literals, so that renamed copies are equal.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.ast.declarations import Declaration, Function, Import, Module
from mens_pipeline.language.ast.nodes import field_names, walk
from mens_pipeline.language.lexer import Token, tokenize
from mens_pipeline.language.taxonomy import Construct, construct_of
from mens_pipeline.language.vocabulary import DECORATORS


@dataclass(frozen=True, slots=True)
class DeclarationSpan:
    """One declaration and its doc comment; offsets include decorators and modifiers, `end` is after the last token.

    `name` is None for an unnamed block such as `routes`; `decorators` include wrappers. `doc_start` is the start
    of the comment directly above, or `start` without one; `doc` has its lines without markers.
    """

    declaration: Declaration
    construct: Construct
    name: str | None
    decorators: tuple[str, ...]
    start: int
    end: int
    doc_start: int
    doc: tuple[str, ...]

    def cut(self, source: str) -> str:
        """Return the source of the declaration without its doc comment."""
        return source[self.start : self.end]


def declaration_spans(
    source: str, module: Module, tokens: tuple[Token, ...] | None = None
) -> tuple[DeclarationSpan, ...]:
    """Return the top-level declarations of an accepted text, in source order.

    A doc comment is the run of whole-line comments directly above, without frontmatter. The synthetic `main`
    of a script spans its first to its last statement.
    """
    tokens = tokenize(source) if tokens is None else tokens
    index_of = {token.start: index for index, token in enumerate(tokens)}
    spans = []
    for declaration in module.declarations:
        first = index_of[declaration.start]
        comments = _doc_comments(tokens, first)
        decorators = _decorators(tokens, first, declaration)
        doc_start = comments[0].start if comments else declaration.start
        spans.append(
            DeclarationSpan(
                declaration,
                construct_of(declaration),
                name_of(declaration),
                decorators,
                declaration.start,
                declaration.end,
                doc_start,
                tuple(token.text.lstrip("/#").strip() for token in comments),
            )
        )
    return tuple(spans)


def name_of(declaration: Declaration) -> str | None:
    """Return the name of a declaration; None if it has no name.

    A wrapper has the name of its function, an index is `Table.index`, an import the last part of its first path.
    """
    if isinstance(declaration, Import):
        return declaration.paths[0].segments[-1] if declaration.paths else None
    table = getattr(declaration, "table", None)
    if table is not None:
        return f"{table}.{getattr(declaration, 'index', '')}"
    function = getattr(declaration, "function", None)
    named = function if isinstance(function, Function) else declaration
    name: str | None = getattr(named, "name", None)
    return name


def _decorators(tokens: tuple[Token, ...], first: int, declaration: Declaration) -> tuple[str, ...]:
    function = getattr(declaration, "function", declaration)
    own = tuple(decorator.name for decorator in function.decorators) if isinstance(function, Function) else ()
    wrapper = tokens[first].kind
    is_wrapped = wrapper in DECORATORS and (function is not declaration or not isinstance(declaration, Function))
    return (wrapper, *own) if is_wrapped else own


def _doc_comments(tokens: tuple[Token, ...], first: int) -> tuple[Token, ...]:
    comments: list[Token] = []
    index = first
    while (above := _line_above(tokens, index)) is not None:
        comment, index = above
        if comment.text.rstrip() == "// ---":  # frontmatter
            break
        comments.append(comment)
    return tuple(reversed(comments))


def _line_above(tokens: tuple[Token, ...], index: int) -> tuple[Token, int] | None:
    newline = index - 1
    while newline >= 0 and tokens[newline].kind == "SPACE":
        newline -= 1
    if newline < 1 or tokens[newline].kind != "NL" or tokens[newline - 1].kind != "COMMENT":
        return None
    comment = newline - 1
    before = comment - 1
    while before >= 0 and tokens[before].kind == "SPACE":
        before -= 1
    if before >= 0 and tokens[before].kind != "NL":
        return None
    return tokens[comment], comment


_USES: Final = (
    ast.Argument,
    ast.Attribute,
    ast.ConstructorPattern,
    ast.Decorator,
    ast.GenericType,
    ast.Ident,
    ast.NamedType,
    ast.SelfClosingView,
    ast.View,
)
"""Nodes that use a name without declaring it."""

_DECLARING: Final = frozenset(("name", "binding", "index", "alias", "event", "generics", "table"))
"""Fields that declare a name in all other nodes."""

_WORDING: Final = frozenset(
    (
        *("label", "description", "uri", "path", "interval", "image_path", "id", "error_message"),
        *("peers", "minimum", "maximum", "values"),
    )
)
"""Fields with texts or numbers that a copy changes as freely as literals."""

_LITERALS: Final = (ast.IntLit, ast.FloatLit, ast.DecimalLit, ast.StringLit, ast.BoolLit, ast.LiteralPattern)

_FIXED: Final = frozenset(("op", "role", "kind", "root", "category", "strategy"))
"""Fields with a word of the language, which is never a name, even if the program declares the same word."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a piece of syntax.

    `digest` is the hexadecimal SHA-256 of its nodes, with names numbered and literals left out. Small pieces often have
    equal digests by chance.
    """

    digest: str
    num_nodes: int


def structure_of(root: ast.Node) -> Structure:
    """Return the structure of a declaration or a module.

    It ignores declared names, literal values, comments, spacing and redundant brackets. It depends on the names of
    built-in types, methods, tags, attributes and operators.
    """
    return _structure(root, _declared_names(root))


def declaration_structures(module: ast.Module) -> tuple[Structure, ...]:
    """Return the structure of each declaration of a module, independent of all names that the module declares."""
    declared = _declared_names(module)
    return tuple(_structure(declaration, declared) for declaration in module.declarations)


def _structure(root: ast.Node, declared: frozenset[str]) -> Structure:
    numbers: dict[str, int] = {}
    digest = hashlib.sha256()
    num_nodes = 0
    pending: list[object] = [root]
    while pending:
        item = pending.pop()
        if isinstance(item, ast.Node):
            num_nodes += 1
            pending.extend(reversed(_parts(item)))
        elif isinstance(item, tuple):
            pending.extend((_Mark(")"), *reversed(item), _Mark("(")))
        elif isinstance(item, str) and item in declared:
            digest.update(b"\0%d" % numbers.setdefault(item, len(numbers)))
        else:
            digest.update(f"\0{item!r}".encode())
    return Structure(digest.hexdigest(), num_nodes)


@dataclass(frozen=True, slots=True)
class _Mark:
    text: str


def _parts(node: ast.Node) -> list[object]:
    parts: list[object] = [_Mark(type(node).__name__)]
    for name in field_names(node):
        if name in {"start", "end"}:
            continue
        value = getattr(node, name)
        is_given = isinstance(node, ast.DecoratorArgument) and name == "value"
        if is_given or name in _WORDING or isinstance(node, _LITERALS):
            parts.append(_Mark(type(value).__name__))
        elif name in _FIXED and isinstance(value, str):
            parts.append(_Mark(value))
        else:
            parts.append(value)
    return parts


def _declared_names(root: ast.Node) -> frozenset[str]:
    names: set[str] = set()
    for node in walk(root):
        if isinstance(node, _USES):
            continue
        for field in _DECLARING.intersection(field_names(node)):
            value = getattr(node, field)
            values = value if isinstance(value, tuple) else (value,)
            names.update(name for name in values if isinstance(name, str))
    return frozenset(names)
