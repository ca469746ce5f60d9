"""Dependencies between the declarations of a file."""

from collections.abc import Sequence
from typing import Final

from mens_pipeline.language import DeclarationSpan
from mens_pipeline.language.lexer import scan

BETWEEN: Final = "\n\n"
"""What stands between declarations that are put together."""

_NAMES: Final = frozenset(("IDENT", "TYPEIDENT"))


class Dependencies:
    """Dependencies between the declarations of a file.

    A declaration needs another when one of its tokens is a name that the other declares: a function, type, variant,
    table, component. A local name that happens to be the same costs an unneeded neighbour, never a missing one.
    """

    def __init__(self, spans: Sequence[DeclarationSpan], source: str) -> None:
        """Look up every name once."""
        self._declared = declared_names(spans)
        self._sizes = tuple(span.end - span.start + len(BETWEEN) for span in spans)
        self._totals = {name: sum(self._sizes[i] for i in indexes) for name, indexes in self._declared.items()}
        self._names = tuple(
            tuple(dict.fromkeys(name for name in _names(span.cut(source)) if name in self._declared)) for span in spans
        )

    def needed_with(self, index: int, most: int) -> tuple[int, ...] | None:
        """Return a declaration and all it needs, directly or not.

        All of them together, each with `BETWEEN` behind it, may have `most` characters.

        Returns:
            Indexes in source order, `index` among them; None when they are longer.
        """
        needed = {index}
        pending = [index]
        seen: set[str] = set()
        size = self._sizes[index]
        while pending and size <= most:
            for name in self._names[pending.pop()]:
                if name in seen:
                    continue
                if self._totals[name] > most:
                    return None
                seen.add(name)
                found = [other for other in self._declared[name] if other not in needed]
                needed.update(found)
                pending.extend(found)
                size += sum(self._sizes[other] for other in found)
        return tuple(sorted(needed)) if size <= most else None


def _names(text: str) -> list[str]:
    tokens = scan(text)
    return [text for kind, text in zip(tokens.kinds, tokens.texts, strict=True) if kind in _NAMES]


def declared_names(spans: Sequence[DeclarationSpan]) -> dict[str, list[int]]:
    """Name -> the declarations that declare it; indexes, imports and tests are never what another one needs by name."""
    declared: dict[str, list[int]] = {}
    for index, span in enumerate(spans):
        names = {variant.name for variant in getattr(span.declaration, "variants", ())}
        if span.name is not None and span.construct.name not in {"index", "test", "forall"}:
            names.add(span.name)
        for name in names:
            declared.setdefault(name, []).append(index)
    return declared
