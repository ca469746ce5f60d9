"""A `.vox` file to records: one for the file, one for each of its declarations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from mens_pipeline.corpus.behaviour.wording import behaviour_sentence
from mens_pipeline.corpus.dependencies import BETWEEN, Dependencies
from mens_pipeline.corpus.extract.code_record import code_record
from mens_pipeline.corpus.extract.frontmatter import FrontmatterError, comment_header, jsonable, objection, weight_of
from mens_pipeline.corpus.extract.metadata_comments import has_skip_marker, strip_metadata, training_prompt
from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.schema.drops import Drop, DropReason, Unit
from mens_pipeline.corpus.schema.records import MAX_CONTEXT, MAX_FILE_RECORDS, MAX_TEXT, ExtractedRecord, SourceKind
from mens_pipeline.language import DeclarationSpan, SourceText, analyze, declaration_spans

MAX_PIECE: Final = 16_384
"""Characters of a declaration with all it needs; where all call one another, longer pieces would grow without end."""


def extract_vox(file: SourceFile) -> tuple[ExtractedRecord, ...] | Drop:
    """Extract the records of a program, or return a drop with the reason why it has none.

    Returns:
        A record for the whole file, then one for each declaration that with all it needs is less than the file. The
        front end accepts every text. What is longer than `MAX_TEXT` gives no record, nor what comes after records of
        `MAX_FILE_RECORDS` characters.
    """
    try:
        source = file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Drop(Unit.VOX_FILE, file.path, 1, DropReason.NOT_TEXT, f"byte {error.start} is not UTF-8")
    try:
        header = comment_header(source).values
        refusal = objection(header, must_opt_in=False)
        weight = weight_of(header)
    except FrontmatterError as error:
        return Drop(Unit.VOX_FILE, file.path, 1, DropReason.BAD_FRONTMATTER, str(error))
    if refusal is None and has_skip_marker(source):
        refusal = DropReason.SKIP_MARKER, "vox:skip"
    if refusal is not None:
        return Drop(Unit.VOX_FILE, file.path, 1, *refusal)
    analysis = analyze(source, file.mode)
    if analysis.module is None:
        first = analysis.errors[0]
        detail = f"{first.code}: {first.message}"
        return Drop(Unit.VOX_FILE, file.path, first.start.line, DropReason.REJECTED, detail)
    spans = declaration_spans(source, analysis.module)
    if not spans:
        return Drop(Unit.VOX_FILE, file.path, 1, DropReason.NO_DECLARATION, "nothing is declared")
    stated = training_prompt(source)
    if stated is not None and len(stated) > MAX_TEXT:
        detail = f"a training prompt of {len(stated)} characters, more than {MAX_TEXT}"
        return Drop(Unit.VOX_FILE, file.path, 1, DropReason.BAD_FRONTMATTER, detail)
    records = _Extraction(file, source, header, weight, spans).records(stated)
    if not records:
        return Drop(Unit.VOX_FILE, file.path, 1, DropReason.TOO_LARGE, f"no piece of at most {MAX_TEXT} characters")
    return records


@dataclass
class _Extraction:
    """The records of one accepted program."""

    file: SourceFile
    source: str
    header: dict[str, Any]
    weight: float
    spans: tuple[DeclarationSpan, ...]

    def __post_init__(self) -> None:
        self.text = SourceText(self.source)
        self.dependencies = Dependencies(self.spans, self.source)
        self.metadata = {key: jsonable(value) for key, value in self.header.items()}

    def records(self, stated: str | None) -> tuple[ExtractedRecord, ...]:
        whole = self._whole(stated)
        return ((whole,) if whole is not None else ()) + tuple(self._pieces())

    def _pieces(self) -> Iterator[ExtractedRecord]:
        room, header = MAX_FILE_RECORDS, len(str(self.metadata))
        for index in range(len(self.spans)):
            record = self._piece(index)
            room -= 0 if record is None else len(record.text) + header
            if room < 0:
                return
            if record is not None:
                yield record

    def _whole(self, stated: str | None) -> ExtractedRecord | None:
        text = strip_metadata(self.source)
        if len(text) > MAX_TEXT:
            return None
        about = _text(self.header.get("description")) or _text(self.header.get("title"))
        return code_record(
            text,
            [span.declaration for span in self.spans],
            self.file.source(SourceKind.VOX_FILE, self.text, (0, len(self.source))),
            weight=self.weight,
            metadata=self.metadata,
            prompt=stated,
            context=(about or behaviour_sentence(self.spans[0]) or "")[:MAX_CONTEXT] or None,
        )

    def _piece(self, index: int) -> ExtractedRecord | None:
        """Build the record of a declaration with all it needs; None when that is the whole file, or too long."""
        needed = self.dependencies.needed_with(index, MAX_PIECE)
        if needed is None or len(needed) == len(self.spans):
            return None
        span = self.spans[index]
        text = strip_metadata(BETWEEN.join(self.spans[other].cut(self.source) for other in needed))
        return code_record(
            text,
            [self.spans[other].declaration for other in needed],
            self.file.source(SourceKind.VOX_DECLARATION, self.text, (span.start, span.end)),
            weight=self.weight,
            metadata=self.metadata,
            context=(behaviour_sentence(span) or "")[:MAX_CONTEXT] or None,
            name=span.name,
            category=span.construct.name,
        )


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
