"""The front end: one text in, its verdict, syntax tree and diagnostics out."""

import gc
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any, Final, TypeVar

from mens_pipeline.language.ast.declarations import Declaration, Module
from mens_pipeline.language.diagnostics import Code, Diagnostic, Severity, SourceText
from mens_pipeline.language.explanations import dropped_warnings, explain
from mens_pipeline.language.lexer import TokenStream, scan
from mens_pipeline.language.parser.cursor import MAX_NESTING, Finding
from mens_pipeline.language.parser.modules import Mode, ModuleParser
from mens_pipeline.language.taxonomy import histogram, kind_of

Made = TypeVar("Made")


class DeepStack:
    """The recursion limit, raised on demand and given back when the last parse has ended."""

    def __init__(self, extra_frames: int) -> None:
        """Remember how many Python calls a parse may nest beyond those of its caller."""
        self._extra_frames = extra_frames
        self._lock = Lock()
        self._num_parses = 0
        self._usual_limit: int | None = None

    def run(self, work: Callable[[], Made]) -> Made:
        """Do what recurses; once more from its beginning, with a higher limit, where the usual one is too low."""
        with self.parse():
            try:
                return work()
            except RecursionError:
                self.deepen()
                return work()

    @contextmanager
    def parse(self) -> Iterator[None]:
        """Mark a parse as under way; the recursion limit is given back when the last one has ended."""
        with self._lock:
            self._num_parses += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_parses -= 1
                if self._num_parses == 0:
                    self._give_back()

    def deepen(self) -> None:
        """Raise the limit for the parses under way."""
        with self._lock:
            if self._usual_limit is None:
                self._usual_limit = sys.getrecursionlimit()
                sys.setrecursionlimit(self._usual_limit + self._extra_frames)

    def _give_back(self) -> None:
        if self._usual_limit is None:
            return
        try:
            sys.setrecursionlimit(self._usual_limit)
        except RecursionError:
            return  # this caller itself lives beyond the usual limit by now: a later parse gives it back
        self._usual_limit = None


MAX_WARNINGS: Final = 100
"""Warnings reported for one text; a megabyte of stray characters says no more than the first hundred."""

_FRAMES_PER_LEVEL: Final = 16
"""Python calls that one level of nesting can cost: seven operator precedences and the longest production."""

DEEP_STACK: Final = DeepStack(MAX_NESTING * _FRAMES_PER_LEVEL)
"""One for the whole process, as the recursion limit is: whatever else recurses over trees must use it, too."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Syntax tree and diagnostics of a text.

    `module` is None when the text is rejected; diagnostics are in source order.
    """

    module: Module | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """The verdict: accepted (E1)."""
        return self.module is not None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that reject the text; empty exactly when it is accepted."""
        return tuple(d for d in self.diagnostics if d.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that decide nothing (E3, E4)."""
        return tuple(d for d in self.diagnostics if d.severity is Severity.WARNING)


def analyze(source: str, mode: Mode = Mode.SOURCE) -> Analysis:
    """Lex and parse a text in a mode (M1-M5), once in a process while it is remembered.

    Returns:
        The verdict of the reference front end, with our own messages. Its trees are frozen: callers share them.
    """
    return _ANALYSES.analyze(source, mode)


class AnalysisCache:
    """Analyses of the texts that were asked for last; threads may share one.

    Bounded by the characters of the texts: a character of code makes about 16 bytes of tree. A text beyond the bound is
    not kept, so that it does not push all others out.
    """

    def __init__(self, max_characters: int) -> None:
        """Start empty."""
        self._max_characters = max_characters
        self._num_characters = 0
        self._kept: OrderedDict[tuple[str, Mode], Analysis] = OrderedDict()
        self._lock = Lock()

    def analyze(self, source: str, mode: Mode) -> Analysis:
        """Analyze a text, unless its analysis is kept."""
        key = source, mode
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        analysis = analyze_uncached(source, mode)
        if _size_of(source) > self._max_characters:
            return analysis
        with self._lock:
            is_new = key not in self._kept  # another thread may have been faster
            self._kept[key] = analysis
            self._num_characters += is_new * _size_of(source)
            while self._num_characters > self._max_characters:
                (text, _), _ = self._kept.popitem(last=False)
                self._num_characters -= _size_of(text)
        return analysis


_CHARACTERS_OF_AN_ENTRY: Final = 50
"""Characters of code whose tree takes as much memory as the rest of an entry."""


def _size_of(source: str) -> int:
    """Return the memory of an entry, in characters of code."""
    return _CHARACTERS_OF_AN_ENTRY + len(source)


_ANALYSES: Final = AnalysisCache(2**22)
"""At most about 70 MB: what the corpus stages parse of the seed data, so that one stage remembers for the next."""


def analyze_uncached(source: str, mode: Mode = Mode.SOURCE) -> Analysis:
    """Analyze a text as `analyze` does, whether or not that was done before."""
    with collector_paused():
        stream = scan(source)
        declarations, failures, notes = _parse(stream, mode)
    module = None if failures else Module(0, len(source), declarations)
    if not failures and not notes and not stream.dropped:
        return Analysis(module, ())
    text = SourceText(source)
    explanations = [explain(failure, stream, text) for failure in failures]
    blamed = frozenset(explanation.blamed for explanation in explanations if explanation.blamed is not None)
    warnings = islice(_warnings(notes, stream, text, blamed), MAX_WARNINGS)
    diagnostics = sorted(
        (*(explanation.error for explanation in explanations), *warnings),
        key=lambda diagnostic: diagnostic.start.offset,
    )
    return Analysis(module, tuple(diagnostics))


def analyze_bytes(data: bytes, mode: Mode = Mode.SOURCE) -> Analysis:
    """Decode, lex and parse the content of a file.

    Returns:
        As `analyze`; bytes that are not UTF-8 are a rejection of their own (L1).
    """
    try:
        source = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = SourceText(data[: error.start].decode("utf-8"))
        place = before.position(len(before.text))
        message = f"byte 0x{data[error.start]:02X} is not UTF-8: {error.reason}"
        advice = "Save the file as UTF-8."
        return Analysis(None, (Diagnostic(Severity.ERROR, Code.INVALID_UTF8, message, place, place, advice),))
    return analyze(source, mode)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Suspend cyclic garbage collection: a walk makes a tree, no cycles, and large ones took twice the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _warnings(
    notes: list[Finding], stream: TokenStream, text: SourceText, blamed: frozenset[int]
) -> Iterator[Diagnostic]:
    for note in notes:
        start = stream.starts[note.token]
        end = start + len(stream.texts[note.token])
        place = text.position(start), text.position(end)
        yield Diagnostic(Severity.WARNING, note.code, note.message, *place, note.advice)
    yield from dropped_warnings(stream, text, blamed)


def _parse(stream: TokenStream, mode: Mode) -> tuple[tuple[Declaration, ...], tuple[Finding, ...], list[Finding]]:
    """Return declarations, failures and warnings; parse a text too deep for the usual recursion limit a second time."""

    def parse() -> tuple[tuple[Declaration, ...], tuple[Finding, ...], list[Finding]]:
        parser = ModuleParser(stream, mode)
        declarations, failures = parser.items()
        return declarations, failures, parser.warnings

    return DEEP_STACK.run(parse)


def verdict_record(analysis: Analysis) -> dict[str, Any]:
    """Return an analysis in JSON types.

    Returns:
        `ok`; `declarations`, their kinds in order (A2); `constructs`, the histogram (A10), both empty if rejected;
        `diagnostics`, the errors, empty exactly when accepted; `warnings`. Lines count from 1, columns from 0,
        offsets are bytes.
    """
    module = analysis.module
    return {
        "ok": analysis.ok,
        "declarations": [kind_of(declaration) for declaration in module.declarations] if module else [],
        "constructs": histogram(module) if module else {},
        "diagnostics": diagnostic_records(analysis.errors),
        "warnings": diagnostic_records(analysis.warnings),
    }


def diagnostic_records(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Return diagnostics in JSON types."""
    return [
        {
            "line": diagnostic.start.line,
            "column": diagnostic.start.column,
            "offset": diagnostic.start.offset,
            "code": str(diagnostic.code),
            "message": diagnostic.message,
            "advice": diagnostic.advice,
        }
        for diagnostic in diagnostics
    ]
