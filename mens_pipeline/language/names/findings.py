"""Collection of semantic findings on a program."""

import re
from dataclasses import dataclass

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity
from mens_pipeline.language.source_text import SourceText

MAX_FINDINGS = 100
"""Of one program; what is wrong with the rest of it says no more."""


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of a text, in characters."""

    start: int
    end: int


class Findings:
    """The findings of one program, in the order in which they are made."""

    def __init__(self, source: str) -> None:
        """Begin without any."""
        self._source = source
        self.choices: dict[int, frozenset[str]] = {}
        """Where a member is named that a value has not -> the members that it has."""
        self._found: dict[tuple[int, Code], tuple[Place, str, str | None, Severity]] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are so many that no more are taken."""
        return len(self._found) >= MAX_FINDINGS

    def add(
        self,
        code: Code,
        place: Node | Place,
        message: str,
        advice: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Note one; what is said of a place twice counts once, since the target of `x += e` is visited twice (A5).

        It is a warning where the program does what it says.
        """
        if not self.is_full:
            self._found.setdefault((place.start, code), (Place(place.start, place.end), message, advice, severity))

    def name_in(self, node: Node, name: str) -> Place:
        """Find the name of a declaration in the text, as the tree does not keep its place.

        Returns:
            The first such word behind `fn` or after a dot or, if there is none, the first at all; else the whole node.
        """
        word = re.escape(name)
        for pattern in (rf"\bfn\s+({word})\b", rf"\b({word})\b"):
            found = re.compile(pattern).search(self._source, node.start, node.end)
            if found is not None:
                return Place(found.start(1), found.end(1))
        return Place(node.start, node.end)

    def text(self, place: Node | Place) -> str:
        """Return the source at a place."""
        return self._source[place.start : place.end]

    def member(self, before: Node, node: Node, name: str) -> Place:
        """Find the name behind a dot in the text."""
        start = self._source.find(name, before.end, node.end)
        return Place(start, start + len(name))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return all findings, in source order."""
        text = SourceText(self._source)
        ordered = sorted(self._found.items(), key=lambda entry: (entry[0][0], entry[0][1]))
        return tuple(
            Diagnostic(severity, code, message, text.position(place.start), text.position(place.end), advice)
            for (_start, code), (place, message, advice, severity) in ordered
        )
