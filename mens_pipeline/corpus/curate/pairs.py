"""Records to pairs: one request for each, and one that its answer fits."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from mens_pipeline.corpus.behaviour.observe import Behaviour, NoBehaviour
from mens_pipeline.corpus.behaviour.wording import examples_sentence
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers, Job
from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, Lane, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import DeclarationSpan, Mode, analyze, declaration_spans, mode_of
from mens_pipeline.language.ast.behaviour import Activity, Workflow
from mens_pipeline.language.ast.functions import Forall, Function, Test
from mens_pipeline.language.requests import noun_of, shape_of

_RATINGS: Final = {
    SourceKind.VOX_FILE: 5,
    SourceKind.VOX_DECLARATION: 5,
    SourceKind.DOC_BLOCK: 4,
    SourceKind.DOC_SECTION: 3,
}
_NOT_GOLDEN: Final = 4
"""At most, of a program outside the golden roots: 5 is ground truth."""
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
_AT_ONCE: Final = 64
"""Records in memory at once."""
_MOST_NAMED: Final = 12
_LONGEST: Final = 1_000
"""Characters; a longer name or list of fields says no more about what is wanted."""


SEVERAL: Final = "several_functions"
"""Why a record gives no behaviour although it declares functions: it is about more than one."""


@dataclass
class BehaviourCounts:
    """Records that ask for functions, with and without observed behaviour; the counts add up."""

    observed: int = 0
    without: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types, the most frequent reason first."""
        return {
            "functions": self.observed + self.without.total(),
            "observed": self.observed,
            "without": {str(reason): count for reason, count in self.without.most_common()},
        }


def make_pairs(
    records: Iterable[ExtractedRecord], workers: BehaviourWorkers, counts: BehaviourCounts | None = None
) -> Iterator[TrainingPair]:
    """Yield the pairs of each record, without those whose prompt and response were there before.

    A record gives one pair, and for a declaration that needs others a second one with these in the prompt.
    The prompt is the record's own, or one made from what it declares and what is said of it. An answer declares what
    was asked for and nothing else: what a declaration needs is there already, shown or not. The wording is chosen by
    the hash of the text, so the same record always gives the same pairs. Where one function is asked for and its
    behaviour can be observed, the prompt gives examples of it, and the pair has hidden tests.

    Raises:
        RefusedError: The front end rejects the text of a record.
    """
    counts = counts if counts is not None else BehaviourCounts()
    seen: set[bytes] = set()
    waiting = iter(records)
    while batch := [_Asked(record) for record in islice(waiting, _AT_ONCE)]:
        found = workers.observe(asked.job for asked in batch if asked.job is not None)
        for asked in batch:
            behaviour = _counted(next(found) if asked.job is not None else None, asked, counts)
            for pair in asked.pairs(behaviour):
                key = hashlib.sha256(f"{pair.prompt}\0{pair.response}".encode()).digest()
                if key not in seen:
                    seen.add(key)
                    yield pair


def _counted(found: Behaviour | NoBehaviour | None, asked: "_Asked", counts: BehaviourCounts) -> Behaviour | None:
    if isinstance(found, Behaviour):
        counts.observed += 1
        return found
    if found is not None:
        counts.without[found] += 1
    elif len(asked.functions) > 1:
        counts.without[SEVERAL] += 1
    return None


class _Asked:
    """Prompts for the pairs of one record."""

    def __init__(self, record: ExtractedRecord) -> None:
        self.record = record
        self.spans: tuple[DeclarationSpan, ...] = () if record.lane is Lane.DOCS_QA else _spans(record)
        self.wanted = _wanted(record, self.spans)
        given = [span for span in self.spans if span not in self.wanted]
        self.is_part = record.source.kind is SourceKind.VOX_DECLARATION and bool(given)
        self.given = "\n\n".join(span.cut(record.text) for span in given) if self.is_part else ""
        # Comments above declarations say what a request says; in answers they are tokens that no parser reads.
        answer = "\n\n".join(span.cut(record.text) for span in self.wanted) + "\n"
        self.answer = answer if self.wanted else record.text
        is_source = mode_of(record.source.path) is Mode.SOURCE
        self.functions = [span.name for span in self.wanted if is_source and _is_function(span)]

    @property
    def job(self) -> Job | None:
        """Behaviour to observe; None where not exactly one function is asked for."""
        if len(self.functions) != 1 or self.functions[0] is None:
            return None
        return Job(self.answer, self.functions[0], self.given, self.record.text_sha256)

    def pairs(self, behaviour: Behaviour | None) -> tuple[TrainingPair, ...]:
        record = self.record
        if record.lane is Lane.DOCS_QA:
            return (_pair(record, record.prompt or _question(record), record.text, None),)
        tests = behaviour.tests if behaviour is not None else None
        request, stated = _request(record, self.wanted), record.prompt
        if behaviour is not None:
            examples = examples_sentence(behaviour.examples)
            request, stated = f"{request} {examples}", f"{stated} {examples}" if stated else None
        alone = _pair(record, stated or request, self.answer, tests)
        if not self.is_part:
            return (alone,)
        prompt = f"{request}\n\n{_choose(_GIVEN, record)}\n\n{self.given}"
        return (alone, _pair(record, prompt, self.answer, tests)) if len(prompt) <= MAX_TEXT else (alone,)


def _is_function(span: DeclarationSpan) -> bool:
    """Return whether a declaration is something to call, as hidden tests do."""
    inner = getattr(span.declaration, "function", span.declaration)
    return isinstance(inner, Function | Workflow | Activity) and not isinstance(span.declaration, Test | Forall)


def _pair(record: ExtractedRecord, prompt: str, response: str, tests: str | None) -> TrainingPair:
    is_prose = record.lane is Lane.DOCS_QA
    rating = _RATINGS.get(record.source.kind, 3)
    return TrainingPair(
        prompt=prompt,
        response=response,
        category=record.category,
        rating=rating if record.source.golden else min(rating, _NOT_GOLDEN),
        lane=record.lane,
        response_mode="prose_only" if is_prose else "code_only",
        task_family="docs_qa" if is_prose else "vox_codegen",
        difficulty=record.difficulty,
        source=record.source,
        tests=tests,
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
    """Return the declaration that the record was cut for, or all of them."""
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
