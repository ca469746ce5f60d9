"""A Markdown page to records: its blocks of Vox, and its prose in a lane of its own."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeVar

from mens_pipeline.corpus.extract.code_record import code_record
from mens_pipeline.corpus.extract.frontmatter import FrontmatterError, comment_header, jsonable, objection, weight_of
from mens_pipeline.corpus.extract.includes import MAX_INCLUDED_BYTES, Allowance, IncludeError, resolve_includes
from mens_pipeline.corpus.extract.metadata_comments import has_skip_marker, strip_metadata
from mens_pipeline.corpus.extract.page import Block, Page, Section, parse_page, refuse_lost_header
from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.schema.drops import Drop, DropReason, Unit
from mens_pipeline.corpus.schema.records import (
    MAX_CONTEXT,
    MAX_FILE_RECORDS,
    MAX_TEXT,
    ExtractedRecord,
    Lane,
    Source,
    SourceKind,
)
from mens_pipeline.language import SourceText, analyze
from mens_pipeline.language.taxonomy import DEFAULT_DIFFICULTY
from mens_pipeline.storage.files import read_regular

MIN_PROSE: Final = 100
"""Characters of prose that make a section worth a record."""

MAX_PAGE_LINES: Final = 30_000
"""A page of very many very short lines keeps the parser busy: it looks at each once for every block around it."""

Piece = TypeVar("Piece", Block, Section)


@dataclass(frozen=True, slots=True)
class PageExtraction:
    """Sections, blocks and drops of a page.

    Blocks come first among the records; `drops` are the blocks and sections that gave none.
    """

    records: tuple[ExtractedRecord, ...]
    drops: tuple[Drop, ...]


def extract_docs(file: SourceFile, root: Path, may_include: Callable[[Path], bool]) -> PageExtraction | Drop:
    """Extract the records of a page, or return a drop with the reason why it has none.

    Includes are resolved inside `root`, the workspace; files below negative roots may not be included.
    """
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Drop(Unit.PAGE, file.path, 1, DropReason.NOT_TEXT, f"byte {error.start} is not UTF-8")
    num_lines = text.count("\n") + text.count("\r") - text.count("\r\n") + 1
    if num_lines > MAX_PAGE_LINES:
        return Drop(Unit.PAGE, file.path, 1, DropReason.TOO_LARGE, f"{num_lines} lines, more than {MAX_PAGE_LINES}")
    try:
        page = parse_page(text)
        if not page.header:
            refuse_lost_header(text)
        refusal = objection(page.header, must_opt_in=True)
        weight = weight_of(page.header)
    except FrontmatterError as error:
        return Drop(Unit.PAGE, file.path, 1, DropReason.BAD_FRONTMATTER, str(error))
    if refusal is not None:
        return Drop(Unit.PAGE, file.path, 1, *refusal)
    return _Extraction(file, root, may_include, page, SourceText(text), weight).run()


@dataclass
class _Extraction:
    """The records of one eligible page."""

    file: SourceFile
    root: Path
    may_include: Callable[[Path], bool]
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
        """Make the record of a piece, or drop it when the page has no room left for it."""
        result = made_of(piece) if self.room > 0 else None
        if isinstance(result, ExtractedRecord):
            self.room -= len(result.text) + len(str(self.metadata))
        if result is None or (isinstance(result, ExtractedRecord) and self.room < 0):
            detail = f"the records of the page have more than {MAX_FILE_RECORDS} characters"
            return Drop(unit, self.file.path, piece.first_line + 1, DropReason.TOO_LARGE, detail)
        return result

    def _block(self, block: Block) -> ExtractedRecord | Drop:
        def drop(reason: DropReason, detail: str, line: int = 0) -> Drop:
            return Drop(Unit.BLOCK, self.file.path, block.first_line + 1 + line, reason, detail)

        if block.is_skipped or has_skip_marker(block.text):
            return drop(DropReason.SKIP_MARKER, "vox:skip")
        try:
            resolved, files = resolve_includes(block.text, self.root / self.file.path, self.root, self.allowance)
            refusal = self._objection_to_includes(files)
            code = strip_metadata(resolved)
        except IncludeError as error:
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
        source = self._source(SourceKind.DOC_BLOCK, block.first_line, block.last_line)
        context = _joined(self.page.title, block.heading, block.paragraph)
        return code_record(
            code,
            analysis.module.declarations,
            source,
            weight=self.weight,
            metadata=self.metadata,
            context=context[:MAX_CONTEXT] or None,
        )

    def _objection_to_includes(self, files: tuple[Path, ...]) -> tuple[DropReason, str] | None:
        """Return why an included program may not be used for training, with a detail; None if all may."""
        for path in files:
            if not self.may_include(path):
                return DropReason.NEGATIVE_ROOT, f"{path.name} lies below a negative root"
            text = read_regular(path, MAX_INCLUDED_BYTES).decode("utf-8")
            refusal = objection(comment_header(text).values, must_opt_in=False)
            if refusal is not None:
                return refusal
        return None

    def _section(self, section: Section) -> ExtractedRecord | Drop:
        line = section.first_line + 1
        if len(section.prose) < MIN_PROSE:
            detail = f"{len(section.prose)} characters of prose, fewer than {MIN_PROSE}"
            return Drop(Unit.SECTION, self.file.path, line, DropReason.TOO_SHORT, detail)
        if len(section.prose) > MAX_TEXT:
            detail = f"{len(section.prose)} characters of prose, more than {MAX_TEXT}"
            return Drop(Unit.SECTION, self.file.path, line, DropReason.TOO_LARGE, detail)
        return ExtractedRecord(
            source=self._source(SourceKind.DOC_SECTION, section.first_line, section.last_line),
            lane=Lane.DOCS_QA,
            text=section.prose,
            text_sha256=hashlib.sha256(section.prose.encode()).hexdigest(),
            verdict="prose",
            prompt=None,
            context=_joined(self.page.title, section.heading)[:MAX_CONTEXT] or None,
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


def _joined(*parts: str) -> str:
    """Join the parts that are not empty with `: `, each once."""
    return ": ".join(dict.fromkeys(part for part in parts if part))
