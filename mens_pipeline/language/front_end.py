"""The front end: analyze a text to its verdict, syntax tree and diagnostics."""

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
    """The recursion limit of Python, raised on demand, and restored when the last parse has ended."""

    def __init__(self, extra_frames: int) -> None:
        self._extra_frames = extra_frames
        self._lock = Lock()
        self._num_parses = 0
        self._usual_limit: int | None = None

    def run(self, work: Callable[[], Made]) -> Made:
        """Call `work`; if the usual limit is too low, raise it and call `work` again."""
        with self.parse():
            try:
                return work()
            except RecursionError:
                self.deepen()
                return work()

    @contextmanager
    def parse(self) -> Iterator[None]:
        """Count a parse as running while the block runs."""
        with self._lock:
            self._num_parses += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_parses -= 1
                if self._num_parses == 0:
                    self._restore()

    def deepen(self) -> None:
        """Raise the limit; it stays raised until no parse is running."""
        with self._lock:
            if self._usual_limit is None:
                self._usual_limit = sys.getrecursionlimit()
                sys.setrecursionlimit(self._usual_limit + self._extra_frames)

    def _restore(self) -> None:
        if self._usual_limit is None:
            return
        try:
            sys.setrecursionlimit(self._usual_limit)
        except RecursionError:
            return  # the caller is already deeper than the usual limit: a later parse restores it
        self._usual_limit = None


MAX_WARNINGS: Final = 100
"""Warnings reported for one text."""

_FRAMES_PER_LEVEL: Final = 16
"""Python calls for one level of nesting: seven operator precedences and the longest production."""

DEEP_STACK: Final = DeepStack(MAX_NESTING * _FRAMES_PER_LEVEL)
"""The recursion limit is global, so all code that recurses over trees must share this instance."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Syntax tree of a text, None if it is rejected, and its diagnostics in source order."""

    module: Module | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """Whether the text is accepted (E1)."""
        return self.module is not None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that reject the text; empty if it is accepted."""
        return tuple(d for d in self.diagnostics if d.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that do not affect the verdict (E3, E4)."""
        return tuple(d for d in self.diagnostics if d.severity is Severity.WARNING)


def analyze(source: str, mode: Mode = Mode.SOURCE) -> Analysis:
    """Lex and parse a text in a mode (M1-M5), with a cache.

    The verdict equals the one of the reference front end; the messages are our own. Callers share the frozen trees.
    """
    return _ANALYSES.analyze(source, mode)


class AnalysisCache:
    """Thread-safe LRU cache of analyses, bounded by the total length of their texts; longer texts are not kept."""

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._num_characters = 0
        self._kept: OrderedDict[tuple[str, Mode], Analysis] = OrderedDict()
        self._lock = Lock()

    def analyze(self, source: str, mode: Mode) -> Analysis:
        """Return the cached analysis of a text, or analyze it."""
        key = source, mode
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        analysis = analyze_uncached(source, mode)
        if _compute_size(source) > self._max_characters:
            return analysis
        with self._lock:
            is_new = key not in self._kept  # another thread may have been faster
            self._kept[key] = analysis
            self._num_characters += is_new * _compute_size(source)
            while self._num_characters > self._max_characters:
                (text, _), _ = self._kept.popitem(last=False)
                self._num_characters -= _compute_size(text)
        return analysis


_CHARACTERS_OF_AN_ENTRY: Final = 50
"""Memory of an entry apart from its tree, as an equivalent number of characters."""


def _compute_size(source: str) -> int:
    return _CHARACTERS_OF_AN_ENTRY + len(source)


_ANALYSES: Final = AnalysisCache(2**22)
"""About 70 MB: enough for the seed data, so that each stage of the corpus reuses the trees of the previous stage."""


def analyze_uncached(source: str, mode: Mode = Mode.SOURCE) -> Analysis:
    """Analyze a text as `analyze` does, without its cache."""
    with collector_paused():
        stream = scan(source)
        declarations, failures, notes = DEEP_STACK.run(lambda: _parse(stream, mode))
    module = None if failures else Module(0, len(source), declarations)
    if not failures and not notes and not stream.dropped:
        return Analysis(module, ())
    text = SourceText(source)
    explanations = [explain(failure, stream, text) for failure in failures]
    blamed = frozenset(start for _, start in explanations if start is not None)
    warnings = islice(_warnings(notes, stream, text, blamed), MAX_WARNINGS)
    diagnostics = sorted(
        (*(error for error, _ in explanations), *warnings),
        key=lambda diagnostic: diagnostic.start.offset,
    )
    return Analysis(module, tuple(diagnostics))


def analyze_bytes(data: bytes, mode: Mode = Mode.SOURCE) -> Analysis:
    """Analyze the content of a file; bytes that are not UTF-8 are rejected (L1)."""
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
    """Pause garbage collection, which doubles the time of large parses; trees have no cycles."""
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
    parser = ModuleParser(stream, mode)
    declarations, failures = parser.items()
    return declarations, failures, parser.warnings


def verdict_record(analysis: Analysis) -> dict[str, Any]:
    """Convert an analysis to JSON types; lines count from 1, columns from 0, offsets are bytes.

    `declarations` lists their kinds in order (A2), and `constructs` is the histogram (A10); both are empty for a
    rejected text. `diagnostics` lists the errors.
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
    """Convert diagnostics to JSON types."""
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
