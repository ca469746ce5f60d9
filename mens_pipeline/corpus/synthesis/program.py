"""An accepted program with all that mutations and breakages ask about it."""

from dataclasses import dataclass
from typing import Final

from mens_pipeline.corpus.dependencies import declared_names
from mens_pipeline.language import DeclarationSpan, Mode, Token, analyze, declaration_spans, tokenize
from mens_pipeline.language.ast.declarations import Module

MAX_LINES: Final = 60
"""Longer programs make prompts that are mostly repetition."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that the front end accepts and that declares something.

    The text has no blank lines at its ends and one line end at its end; `origin` is the source file it comes from, if
    any; trivia are among the tokens; `warnings` is how many the front end gives.
    """

    source: str
    mode: Mode
    origin: str | None
    module: Module
    spans: tuple[DeclarationSpan, ...]
    tokens: tuple[Token, ...]
    warnings: int

    @property
    def is_short(self) -> bool:
        """Whether it has no more than `MAX_LINES` lines."""
        return self.source.count("\n") <= MAX_LINES

    @property
    def identifiers(self) -> frozenset[str]:
        """Every identifier in the text."""
        return frozenset(token.text for token in self.tokens if token.kind in {"IDENT", "TYPEIDENT"})

    @property
    def significant(self) -> tuple[Token, ...]:
        """The tokens that the parser sees, newlines included."""
        return tuple(token for token in self.tokens if not token.is_trivia)

    @property
    def needs(self) -> tuple[frozenset[int], ...]:
        """For each declaration the numbers, from 0, of the others whose names it uses."""
        declared = declared_names(self.spans)
        uses = [(self.place_at(token.start), token.text) for token in self.tokens if token.text in declared]
        return tuple(
            frozenset(needed for user, name in uses if user == place for needed in declared[name] if needed != place)
            for place in range(len(self.spans))
        )

    @property
    def tested(self) -> frozenset[int]:
        """The numbers of the tests, from 0, and of all declarations that they need."""
        needs = self.needs
        pending = [place for place, span in enumerate(self.spans) if span.construct.name in {"test", "forall"}]
        found = set(pending)
        while pending:
            more = needs[pending.pop()] - found
            found |= more
            pending.extend(more)
        return frozenset(found)

    def place_at(self, offset: int) -> int:
        """Return the index of the declaration at a place; between two, the later one; behind all, the last one."""
        last = len(self.spans) - 1
        return next((number for number, span in enumerate(self.spans) if offset < span.end), last)


def read_program(source: str, mode: Mode = Mode.SOURCE, origin: str | None = None) -> Program | None:
    """Parse a text as a program; return None when the front end rejects it or nothing is declared.

    Metadata comments are removed from the source already.
    """
    text = source.strip("\r\n") + "\n"
    analysis = analyze(text, mode)
    if analysis.module is None or not analysis.module.declarations:
        return None
    tokens = tokenize(text)
    spans = declaration_spans(text, analysis.module, tokens)
    return Program(text, mode, origin, analysis.module, spans, tokens, len(analysis.warnings))


def read_changed(program: Program, changed: str) -> Program | None:
    """Parse a changed text; return None when it is rejected, changes nothing, or earns a new warning."""
    after = read_program(changed, program.mode, program.origin)
    if after is None or after.source == program.source or after.warnings > program.warnings:
        return None
    return after
