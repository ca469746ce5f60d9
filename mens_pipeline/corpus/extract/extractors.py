"""Extract records: a program and its declarations, or the blocks and sections of a page."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeVar

from mens_pipeline.corpus.extract.metadata import (
    FrontmatterError,
    comment_header,
    find_reason,
    has_skip_marker,
    jsonable,
    read_weight,
    strip_metadata,
    task_sentence,
    training_prompt,
)
from mens_pipeline.corpus.extract.page import (
    MAX_INCLUDED_BYTES,
    Allowance,
    IncludeError,
    Page,
    PageBlock,
    PageSection,
    parse_page,
    refuse_lost_header,
    resolve_includes,
)
from mens_pipeline.corpus.schema.account import Drop, Unit
from mens_pipeline.corpus.schema.file_text import decode_text
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import (
    MAX_CONTEXT,
    MAX_FILE_RECORDS,
    MAX_TEXT,
    ExtractedRecord,
    Lane,
    Source,
    SourceFile,
    SourceKind,
    code_record,
)
from mens_pipeline.language import DEFAULT_DIFFICULTY, DeclarationSpan, SourceText, analyze, declaration_spans, scan
from mens_pipeline.storage.files import read_regular

BETWEEN: Final = "\n\n"
"""Separates declarations that are joined."""

_NAMES: Final = frozenset(("IDENT", "TYPEIDENT"))

MAX_PIECE: Final = 16_384
"""Most characters of a declaration and all it needs; if everything calls everything, larger pieces are useless."""

MIN_PROSE: Final = 100
"""Fewest characters of prose that make a section worth a record."""

MAX_PAGE_LINES: Final = 30_000
"""Most lines of a page. The parser visits each line once per enclosing block, so very many short lines are slow."""


def extract_vox(file: SourceFile) -> tuple[ExtractedRecord, ...] | Drop:
    """Extract the records of a program, or return a drop with a reason.

    Returns:
        A record for the whole file, then one for each declaration that, with all it needs, is less than the file. The
        front end accepts the text of each record. Texts longer than `MAX_TEXT` give no record, and records end after
        `MAX_FILE_RECORDS` characters.
    """

    def drop(reason: DropReason, detail: str, line: int = 1) -> Drop:
        return Drop(Unit.VOX_FILE, file.path, line, reason, detail)

    try:
        source = file.text
        header = comment_header(source).values
        refusal = find_reason(header, must_opt_in=False)
        weight = read_weight(header)
    except UnicodeDecodeError as error:
        return drop(DropReason.NOT_UTF8, f"byte {error.start} is not UTF-8; save the file as UTF-8")
    except FrontmatterError as error:
        return drop(DropReason.BAD_FRONTMATTER, str(error))
    if refusal is None and has_skip_marker(source):
        refusal = DropReason.SKIP_MARKER, "vox:skip"
    if refusal is not None:
        return drop(*refusal)
    analysis = analyze(source, file.mode)
    if analysis.module is None:
        first = analysis.errors[0]
        return drop(DropReason.REJECTED, f"{first.code}: {first.message}", first.start.line)
    spans = declaration_spans(source, analysis.module)
    if not spans:
        return drop(DropReason.NO_DECLARATION, "nothing is declared")
    stated = training_prompt(source)
    if stated is not None and len(stated) > MAX_TEXT:
        return drop(DropReason.BAD_FRONTMATTER, f"a training prompt of {len(stated)} characters, more than {MAX_TEXT}")
    records = tuple(_program_records(file, source, header, weight, spans, stated))
    return records or drop(DropReason.TOO_LARGE, f"no piece of at most {MAX_TEXT} characters")


def _program_records(  # noqa: PLR0913, PLR0917 - the parts of a program
    file: SourceFile,
    source: str,
    header: dict[str, Any],
    weight: float,
    spans: tuple[DeclarationSpan, ...],
    stated: str | None,
) -> Iterator[ExtractedRecord]:
    text, dependencies = SourceText(source), Dependencies(spans, source)
    metadata = {key: jsonable(value) for key, value in header.items()}
    whole = strip_metadata(source)
    if len(whole) <= MAX_TEXT:
        about = _text(header.get("description")) or _text(header.get("title"))
        yield code_record(
            whole,
            [span.declaration for span in spans],
            file.source(SourceKind.VOX_FILE, text, (0, len(source))),
            weight=weight,
            metadata=metadata,
            prompt=stated,
            context=(about or task_sentence(spans[0].doc) or "")[:MAX_CONTEXT] or None,
        )
    room = MAX_FILE_RECORDS
    for index, span in enumerate(spans):
        needed = dependencies.needed_with(index, MAX_PIECE)
        if needed is None or len(needed) == len(spans):
            continue
        piece = strip_metadata(BETWEEN.join(spans[other].cut(source) for other in needed))
        room -= len(piece) + len(str(metadata))
        if room < 0:
            return
        yield code_record(
            piece,
            [spans[other].declaration for other in needed],
            file.source(SourceKind.VOX_DECLARATION, text, (span.start, span.end)),
            weight=weight,
            metadata=metadata,
            context=(task_sentence(span.doc) or "")[:MAX_CONTEXT] or None,
            name=span.name,
            category=span.construct.name,
        )


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


class Dependencies:
    """The dependencies between the declarations of a file.

    A declaration needs another if one of its tokens is a name that the other declares: a function, type, variant, table
    or component. An equal local name adds an unneeded declaration; a needed one is never missed.
    """

    def __init__(self, spans: Sequence[DeclarationSpan], source: str) -> None:
        self._declared: dict[str, list[int]] = {}
        for index, span in enumerate(spans):
            declared = {variant.name for variant in getattr(span.declaration, "variants", ())}
            # No declaration needs an index, an import or a test by name.
            if span.name is not None and span.construct.name not in {"index", "test", "forall"}:
                declared.add(span.name)
            for name in declared:
                self._declared.setdefault(name, []).append(index)
        self._sizes = tuple(span.end - span.start + len(BETWEEN) for span in spans)
        self._totals = {name: sum(self._sizes[i] for i in indexes) for name, indexes in self._declared.items()}
        self._names: list[list[str]] = []
        for span in spans:
            tokens = scan(span.cut(source))
            names = (text for kind, text in zip(tokens.kinds, tokens.texts, strict=True) if kind in _NAMES)
            self._names.append(list(dict.fromkeys(name for name in names if name in self._declared)))

    def needed_with(self, index: int, most: int) -> tuple[int, ...] | None:
        """Return the indexes of a declaration and all it needs, in source order; None beyond `most` characters."""
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


Piece = TypeVar("Piece", PageBlock, PageSection)


RefuseInclude = Callable[[Path, bytes], tuple[DropReason, str] | None]
"""Returns the reason why a page may not include a file with this content, with a detail; None if it may."""


@dataclass(frozen=True, slots=True)
class PageExtraction:
    """The records of a page, blocks first, and its dropped blocks and sections."""

    records: tuple[ExtractedRecord, ...]
    drops: tuple[Drop, ...]


def extract_docs(file: SourceFile, root: Path, refuse: RefuseInclude = lambda *_: None) -> PageExtraction | Drop:
    """Extract the records of a page, or return a drop with a reason.

    Includes are resolved inside `root`, the workspace; `refuse` returns why a file may not be included.
    """
    try:
        text = file.text
    except UnicodeDecodeError as error:
        return Drop(Unit.PAGE, file.path, 1, DropReason.NOT_UTF8, f"byte {error.start} is not UTF-8; save it as UTF-8")
    num_lines = text.count("\n") + 1
    if num_lines > MAX_PAGE_LINES:
        return Drop(Unit.PAGE, file.path, 1, DropReason.TOO_LARGE, f"{num_lines} lines, more than {MAX_PAGE_LINES}")
    try:
        page = parse_page(text)
        if not page.header:
            refuse_lost_header(text)
        refusal = find_reason(page.header, must_opt_in=True)
        weight = read_weight(page.header)
    except FrontmatterError as error:
        return Drop(Unit.PAGE, file.path, 1, DropReason.BAD_FRONTMATTER, str(error))
    if refusal is not None:
        return Drop(Unit.PAGE, file.path, 1, *refusal)
    return _PageRecords(file, root, refuse, page, SourceText(text), weight).run()


@dataclass
class _PageRecords:
    file: SourceFile
    root: Path
    refuse: RefuseInclude
    page: Page
    text: SourceText
    weight: float
    room: int = MAX_FILE_RECORDS
    allowance: Allowance = field(default_factory=Allowance)

    def __post_init__(self) -> None:
        self.starts = tuple(accumulate((len(line) + 1 for line in self.text.text.split("\n")), initial=0))
        self.metadata = {key: jsonable(value) for key, value in self.page.header.items()}

    def run(self) -> PageExtraction:
        results = [self._fitting(Unit.BLOCK, block, self._block) for block in self.page.blocks]
        results += [self._fitting(Unit.SECTION, section, self._section) for section in self.page.sections]
        return PageExtraction(
            tuple(result for result in results if isinstance(result, ExtractedRecord)),
            tuple(result for result in results if isinstance(result, Drop)),
        )

    def _fitting(
        self, unit: Unit, piece: Piece, made_of: Callable[[Piece], ExtractedRecord | Drop]
    ) -> ExtractedRecord | Drop:
        result = made_of(piece) if self.room > 0 else None
        if isinstance(result, ExtractedRecord):
            self.room -= len(result.text) + len(str(self.metadata))
        if result is None or (isinstance(result, ExtractedRecord) and self.room < 0):
            detail = f"the records of the page have more than {MAX_FILE_RECORDS} characters"
            return Drop(unit, self.file.path, piece.first_line + 1, DropReason.TOO_LARGE, detail)
        return result

    def _block(self, block: PageBlock) -> ExtractedRecord | Drop:
        def drop(reason: DropReason, detail: str, line: int = 0) -> Drop:
            return Drop(Unit.BLOCK, self.file.path, block.first_line + 1 + line, reason, detail)

        if block.is_skipped or has_skip_marker(block.text):
            return drop(DropReason.SKIP_MARKER, "vox:skip")
        try:
            resolved, files = resolve_includes(block.text, self.root / self.file.path, self.root, self.allowance)
            refusal = self._find_reason_against_includes(files)
            code = strip_metadata(resolved)
        except (IncludeError, OSError, UnicodeDecodeError) as error:  # a file may change after it was resolved
            return drop(DropReason.BAD_INCLUDE, str(error))
        except FrontmatterError as error:
            return drop(DropReason.BAD_FRONTMATTER, str(error))
        if refusal is not None:
            return drop(*refusal)
        if len(code) > MAX_TEXT:
            return drop(DropReason.TOO_LARGE, f"{len(code)} characters, more than {MAX_TEXT}")
        analysis = analyze(code)
        if analysis.module is None:
            first = analysis.errors[0]
            return drop(DropReason.REJECTED, f"{first.code}: {first.message}", first.start.line - 1)
        if not analysis.module.declarations:
            return drop(DropReason.NO_DECLARATION, "nothing is declared")
        return code_record(
            code,
            analysis.module.declarations,
            self._source(SourceKind.DOC_BLOCK, block.first_line, block.last_line),
            weight=self.weight,
            metadata=self.metadata,
            context=_join(self.page.title, block.heading, block.paragraph)[:MAX_CONTEXT] or None,
        )

    def _find_reason_against_includes(self, files: tuple[Path, ...]) -> tuple[DropReason, str] | None:
        for path in files:
            data = read_regular(path, MAX_INCLUDED_BYTES, below=self.root.resolve())
            refusal = self.refuse(path, data)
            text = decode_text(data)
            refusal = refusal or find_reason(comment_header(text).values, must_opt_in=False)
            if refusal is None and has_skip_marker(text):
                refusal = DropReason.SKIP_MARKER, f"{path.name}: vox:skip"
            if refusal is not None:
                return refusal
        return None

    def _section(self, section: PageSection) -> ExtractedRecord | Drop:
        if not MIN_PROSE <= len(section.prose) <= MAX_TEXT:
            is_short = len(section.prose) < MIN_PROSE
            bound = f"fewer than {MIN_PROSE}" if is_short else f"more than {MAX_TEXT}"
            reason = DropReason.TOO_SHORT if is_short else DropReason.TOO_LARGE
            detail = f"{len(section.prose)} characters of prose, {bound}"
            return Drop(Unit.SECTION, self.file.path, section.first_line + 1, reason, detail)
        return ExtractedRecord(
            source=self._source(SourceKind.DOC_SECTION, section.first_line, section.last_line),
            lane=Lane.DOCS_QA,
            text=section.prose,
            text_sha256=hashlib.sha256(section.prose.encode()).hexdigest(),
            verdict="prose",
            prompt=None,
            context=_join(self.page.title, section.heading)[:MAX_CONTEXT] or None,
            name=section.heading or None,
            category="documentation",
            constructs={},
            difficulty=DEFAULT_DIFFICULTY,
            weight=self.weight,
            metadata=self.metadata,
        )

    def _source(self, kind: SourceKind, first_line: int, last_line: int) -> Source:
        span = self.starts[first_line], min(self.starts[last_line], len(self.text.text))
        return self.file.source(kind, self.text, span)


def _join(*parts: str) -> str:
    return ": ".join(dict.fromkeys(part for part in parts if part))
