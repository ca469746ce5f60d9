"""Records to pairs: one request for each, and one that its answer fits."""

from collections.abc import Iterable, Iterator
from typing import Final

from mens_pipeline.corpus.records import ExtractedRecord, Lane, SourceKind
from mens_pipeline.corpus.training_pair import TrainingPair
from mens_pipeline.language import DeclarationSpan, analyze, declaration_spans, mode_of
from mens_pipeline.language.requests import noun_of, shape_of

_RATINGS: Final = {
    SourceKind.VOX_FILE: 5,
    SourceKind.VOX_DECLARATION: 5,
    SourceKind.DOC_BLOCK: 4,
    SourceKind.DOC_SECTION: 3,
}
_FRAMES: Final = (
    "Write {what} in Vox.",
    "In Vox, write {what}.",
    "I need {what} in Vox.",
    "Show me {what}, written in Vox.",
)
_QUESTIONS: Final = (
    "What does the Vox documentation say about {what}?",
    "Explain from the Vox documentation: {what}.",
)


def make_pairs(records: Iterable[ExtractedRecord]) -> Iterator[TrainingPair]:
    """A pair for each record, without those whose prompt and response were there before.

    Args:
        records: What was extracted.
    """
    seen: set[tuple[str, str]] = set()
    for record in records:
        pair = pair_of(record)
        if (pair.prompt, pair.response) not in seen:
            seen.add((pair.prompt, pair.response))
            yield pair


def pair_of(record: ExtractedRecord) -> TrainingPair:
    """The pair of a record: its own prompt, or one made from what it declares and what is said of it.

    The wording is chosen by the hash of the text, so the same record always gives the same pair.

    Args:
        record: What was extracted.
    """
    is_prose = record.lane is Lane.DOCS_QA
    return TrainingPair(
        prompt=record.prompt or (_question(record) if is_prose else _request(record)),
        response=record.text,
        category=record.category,
        rating=_RATINGS[record.source.kind],
        lane=record.lane,
        response_mode="prose_only" if is_prose else "code_only",
        task_family="docs_qa" if is_prose else "vox_codegen",
        difficulty=record.difficulty,
        source=record.source,
    )


def _question(record: ExtractedRecord) -> str:
    return _choose(_QUESTIONS, record).format(what=f'"{record.context or record.name or record.source.path}"')


def _request(record: ExtractedRecord) -> str:
    module = analyze(record.text, mode_of(record.source.path)).module
    assert module is not None, f"{record.source.path}: an accepted text is rejected"  # noqa: S101 - our own impossibility
    spans = declaration_spans(record.text, module)
    wanted = [span for span in spans if record.name is not None and span.name == record.name] or list(spans)
    what = " and ".join(_described(span, record.text) for span in wanted)
    request = _choose(_FRAMES, record).format(what=what)
    return f"{request} {record.context}" if record.context else request


def _described(span: DeclarationSpan, text: str) -> str:
    named = f"{noun_of(span.construct.name)} `{span.name}`" if span.name else noun_of(span.construct.name)
    shape = shape_of(span.declaration, text)
    return f"{named} {shape}" if shape else named


def _choose(frames: tuple[str, ...], record: ExtractedRecord) -> str:
    return frames[int(record.text_sha256[:8], 16) % len(frames)]
