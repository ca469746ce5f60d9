"""In which roles a name occurs in a program, as the syntax tree has it."""

from collections.abc import Iterator
from dataclasses import fields

from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.language import DeclarationSpan
from mens_pipeline.language.ast.base import Node, walk
from mens_pipeline.language.ast.expressions import Attribute, FieldAccess, Ident, Lambda, SelfClosingView, View
from mens_pipeline.language.ast.patterns import IdentPattern
from mens_pipeline.language.ast.ui import ReactiveMember


def roles_of_names(program: Program) -> dict[str, tuple[tuple[str, DeclarationSpan], ...]]:
    """Name -> each of its roles with the declaration it stands in, in source order of the declarations.

    A role is the node and the field of it that holds the text: `Param.name`. Some are finer than that: members by
    their role (`state.name`), parameters of lambdas (`LambdaParam.name`), upper-case patterns (`VariantPattern.name`),
    tables behind `db` (`Database.field`), and the attributes of components that the program declares itself
    (`OwnAttribute.name`). Texts that are no names (string literals, operators) have roles too.

    Args:
        program: An accepted program.
    """
    own = frozenset(span.name for span in program.spans if span.construct.name in {"component", "fragment"})
    found: dict[str, list[tuple[str, DeclarationSpan]]] = {}
    for span in program.spans:
        for node in _each_once(span.declaration):
            for role, text in _texts(node, own):
                found.setdefault(text, []).append((role, span))
    return {name: tuple(roles) for name, roles in found.items()}


def _each_once(root: Node) -> Iterator[Node]:
    """Every node below a root once; the target of a compound assignment is visited twice, by `walk`.

    What is spoken of by the node above, parameters of lambdas and attributes of views, is left out.
    """
    seen: set[int] = set()
    for node in walk(root):
        if isinstance(node, Lambda):
            seen.update(map(id, node.params))
        if id(node) not in seen and not isinstance(node, Attribute):
            seen.add(id(node))
            yield node


def _texts(node: Node, own: frozenset[str | None]) -> Iterator[tuple[str, str]]:
    kind = _kind(node)
    for field in fields(node):
        for text in _strings(getattr(node, field.name)):
            yield f"{kind}.{field.name}", text
    if isinstance(node, Lambda):
        yield from (("LambdaParam.name", param.name) for param in node.params)
    if isinstance(node, View | SelfClosingView):
        attribute = "OwnAttribute.name" if node.tag in own else "Attribute.name"
        yield from ((attribute, each.name) for each in node.attributes)


def _kind(node: Node) -> str:
    if isinstance(node, ReactiveMember):
        return node.role
    if isinstance(node, IdentPattern) and node.name[0].isupper():
        return "VariantPattern"
    if isinstance(node, FieldAccess) and isinstance(node.object, Ident) and node.object.name == "db":
        return "Database"
    return type(node).__name__


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _strings(item)
