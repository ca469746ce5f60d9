"""Which declarations of a file need which others."""

from collections.abc import Sequence

from mens_pipeline.language import DeclarationSpan, tokenize
from mens_pipeline.language.ast.base import walk
from mens_pipeline.language.ast.data import Variant

_NAMES = frozenset(("IDENT", "TYPEIDENT"))


def needed_with(index: int, spans: Sequence[DeclarationSpan], source: str) -> tuple[int, ...]:
    """A declaration and all it needs of its file, directly or not.

    A declaration needs another when one of its tokens is a name that the other declares: a function, type, variant,
    table, component. A local name that happens to be the same costs an unneeded neighbour, never a missing one.

    Args:
        index: Which declaration.
        spans: All declarations of the file, in source order.
        source: The file.

    Returns:
        Indexes in source order, `index` among them.
    """
    declared = declared_names(spans)
    needed = {index}
    pending = [index]
    while pending:
        span = spans[pending.pop()]
        names = {token.text for token in tokenize(span.cut(source)) if token.kind in _NAMES}
        found = {other for name in names for other in declared.get(name, ())} - needed
        needed |= found
        pending.extend(found)
    return tuple(sorted(needed))


def declared_names(spans: Sequence[DeclarationSpan]) -> dict[str, tuple[int, ...]]:
    """Name -> the declarations that declare it; indexes, imports and tests are never what another one needs by name.

    Args:
        spans: All declarations of a file.
    """
    declared: dict[str, tuple[int, ...]] = {}
    for index, span in enumerate(spans):
        names = {node.name for node in walk(span.declaration) if isinstance(node, Variant)}
        if span.name is not None and span.construct.name not in {"index", "test", "forall"}:
            names.add(span.name)
        for name in names:
            declared[name] = (*declared.get(name, ()), index)
    return declared
