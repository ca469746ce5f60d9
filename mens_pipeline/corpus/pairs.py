"""Records to pairs: one request for each, and one that its answer fits."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

from mens_pipeline.corpus.records import MAX_TEXT, ExtractedRecord, Lane, SourceKind
from mens_pipeline.corpus.training_pair import TrainingPair
from mens_pipeline.errors import RefusedError
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
_GIVEN: Final = (
    "It goes with this code:",
    "Write it for this code, and answer with it alone:",
    "This is there already:",
)
_MOST_NAMED: Final = 12
_LONGEST: Final = 1_000
"""Characters; a longer name or list of fields says no more about what is wanted."""


def make_pairs(records: Iterable[ExtractedRecord]) -> Iterator[TrainingPair]:
    """The pairs of each record, without those whose prompt and response were there before.

    Args:
        records: What was extracted.
    """
    seen: set[bytes] = set()
    for record in records:
        for pair in pairs_of(record):
            key = hashlib.sha256(f"{pair.prompt}\0{pair.response}".encode()).digest()
            if key not in seen:
                seen.add(key)
                yield pair


def pairs_of(record: ExtractedRecord) -> tuple[TrainingPair, ...]:
    """The pair of a record, and for a declaration that needs others a second one, with these in the prompt.

    The prompt is the record's own, or one made from what it declares and what is said of it. An answer declares what
    was asked for and nothing else: what a declaration needs is there already, shown or not. The wording is chosen by
    the hash of the text, so the same record always gives the same pairs.

    Args:
        record: What was extracted.

    Raises:
        RefusedError: The front end rejects the text.
    """
    if record.lane is Lane.DOCS_QA:
        return (_pair(record, record.prompt or _question(record), record.text),)
    spans = _spans(record)
    wanted = _wanted(record, spans)
    given = [span for span in spans if span not in wanted]
    if record.source.kind is not SourceKind.VOX_DECLARATION or not given:
        return (_pair(record, record.prompt or _request(record, wanted), record.text),)
    answer = "\n\n".join(span.cut(record.text) for span in wanted) + "\n"
    alone = _pair(record, record.prompt or _request(record, wanted), answer)
    context = "\n\n".join(span.cut(record.text) for span in given)
    prompt = f"{_request(record, wanted)}\n\n{_choose(_GIVEN, record)}\n\n{context}"
    return (alone, _pair(record, prompt, answer)) if len(prompt) <= MAX_TEXT else (alone,)


def _pair(record: ExtractedRecord, prompt: str, response: str) -> TrainingPair:
    is_prose = record.lane is Lane.DOCS_QA
    return TrainingPair(
        prompt=prompt,
        response=response,
        category=record.category,
        rating=_RATINGS.get(record.source.kind, 3),
        lane=record.lane,
        response_mode="prose_only" if is_prose else "code_only",
        task_family="docs_qa" if is_prose else "vox_codegen",
        difficulty=record.difficulty,
        source=record.source,
    )


def _question(record: ExtractedRecord) -> str:
    return _choose(_QUESTIONS, record).format(what=f'"{record.context or record.name or record.source.path}"')


def _spans(record: ExtractedRecord) -> tuple[DeclarationSpan, ...]:
    module = analyze(record.text, mode_of(record.source.path)).module
    if module is None:
        advice = "Run `mens corpus validate` on the records first."
        raise RefusedError(f"{record.source.path}: the text of a record is rejected. {advice}")
    return declaration_spans(record.text, module)


def _wanted(record: ExtractedRecord, spans: tuple[DeclarationSpan, ...]) -> list[DeclarationSpan]:
    """What the record is about: the declaration it was cut for, or all of them."""
    named = [span for span in spans if record.name is not None and span.name == record.name]
    return named or list(spans)


def _request(record: ExtractedRecord, wanted: list[DeclarationSpan]) -> str:
    named = [_described(span, record.text) for span in wanted[:_MOST_NAMED]]
    if len(wanted) > _MOST_NAMED:
        named.append(f"{len(wanted) - _MOST_NAMED} more declarations")
    request = _choose(_FRAMES, record).format(what=" and ".join(named))
    return f"{request} {record.context}" if record.context else request


def _described(span: DeclarationSpan, text: str) -> str:
    named = (
        f"{noun_of(span.construct.name)} `{span.name}`"
        if span.name and len(span.name) <= _LONGEST
        else noun_of(span.construct.name)
    )
    shape = shape_of(span.declaration, text)
    return f"{named} {shape}" if shape and len(shape) <= _LONGEST else named


def _choose(frames: tuple[str, ...], record: ExtractedRecord) -> str:
    return frames[int(record.text_sha256[:8], 16) % len(frames)]
