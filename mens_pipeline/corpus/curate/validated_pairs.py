"""The validated pairs as an artifact: pairs made from records, and pairs from elsewhere."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from mens_pipeline.corpus.behaviour.examples import examples_sentence
from mens_pipeline.corpus.behaviour.observe import Behaviour, callable_syntax
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers, ObservationJob
from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.validate import Quarantined, Repetition, ValidationReport, validate_rows
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS
from mens_pipeline.corpus.schema.account import Account
from mens_pipeline.corpus.schema.prompts import describe_shape, noun_of
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, Lane, SourceKind, TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import DeclarationSpan, Mode, analyze, declaration_spans, mode_of
from mens_pipeline.storage.jsonl import open_rows, write_jsonl
from mens_pipeline.storage.kinds import Kind, PairsFile
from mens_pipeline.storage.stage import Content, Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Details

_RATINGS: Final = {
    SourceKind.VOX_FILE: 5,
    SourceKind.VOX_DECLARATION: 5,
    SourceKind.DOC_BLOCK: 4,
    SourceKind.DOC_SECTION: 3,
}
_NOT_GOLDEN: Final = 4  # the best rating of a program outside the golden roots: 5 is ground truth
_FRAMES: Final = (
    "Write {what} in Vox.",
    "In Vox, write {what}.",
    "I need {what} in Vox.",
    "Show me {what}, written in Vox.",
)
_QUESTIONS: Final = ("What does the Vox documentation say about {what}?", "Explain from the Vox documentation: {what}.")
_GIVEN: Final = (
    "It goes with this code:",
    "Write it for this code, and answer with it alone:",
    "This is there already:",
)
_AT_ONCE: Final = 64  # records in memory at once
_MOST_NAMED: Final = 12
_LONGEST: Final = 1_000  # characters; longer names or lists of fields are left out of a request


class RowCounts(BaseModel):
    """Counts of the rows of a file: seen, kept, rejected by reason, and kept with a warning, with its place."""

    seen: int
    kept: int
    rejected: dict[str, int]
    warned: dict[str, int]
    places: list[tuple[str, str]] = []


class BehaviourCounts(BaseModel):
    """Counts of records that request a function: with observed behaviour, and without it by reason."""

    functions: int
    observed: int
    without: dict[str, int]


class PairsDetails(Details):
    """Counts in the manifest of validated pairs."""

    num_pairs: dict[str, int]
    validation: dict[str, RowCounts]
    behaviour: BehaviourCounts
    lanes: dict[str, int]
    categories: dict[str, int]


def behaviour_report(account: Account[NoBehaviour]) -> dict[str, Any]:
    """Return the counts of records that request functions, by whether behaviour was observed, in JSON types."""
    without = {str(reason): count for reason, count in account.dropped.most_common()}
    return {"functions": account.seen, "observed": account.kept, "without": without}


def make_pairs(
    records: Iterable[ExtractedRecord], workers: BehaviourWorkers, account: Account[NoBehaviour] | None = None
) -> Iterator[TrainingPair]:
    """Yield the pairs of each record, without repeated pairs of prompt and response.

    A record gives one pair; a declaration that needs others gives a second one with these in the prompt. The prompt is
    the record's own, or is built from its declarations and their comments. A completion contains only the requested
    declarations. The hash of the text selects the wording, so the same record always gives the same pairs. If a record
    requests one function with observable behaviour, the prompt gives examples, and the pair has hidden tests.

    Raises `RefusedError` if the front end rejects the text of a record.
    """
    account = account if account is not None else Account()
    seen: set[bytes] = set()
    waiting = iter(records)
    while batch := [_RecordPairs(record) for record in islice(waiting, _AT_ONCE)]:
        found = workers.observe(asked.job for asked in batch if asked.job is not None)
        for asked in batch:
            several = NoBehaviour.SEVERAL_FUNCTIONS if len(asked.functions) > 1 else None
            observed = next(found) if asked.job is not None else several
            account.seen += observed is not None
            account.kept += isinstance(observed, Behaviour)
            if isinstance(observed, NoBehaviour):
                account.dropped[observed] += 1
            for pair in asked.pairs(observed if isinstance(observed, Behaviour) else None):
                if pair.digest not in seen:
                    seen.add(pair.digest)
                    yield pair


class _RecordPairs:
    def __init__(self, record: ExtractedRecord) -> None:
        self.record = record
        spans: list[DeclarationSpan] = []
        if record.lane is not Lane.DOCS_QA:
            module = analyze(record.text, mode_of(record.source.path)).module
            if module is None:
                advice = "Run `mens corpus validate` on the records first."
                raise RefusedError(f"{record.source.path}: the text of a record is rejected. {advice}")
            spans += declaration_spans(record.text, module)
        # The declaration that the record was cut for, or all of them.
        self.wanted = [span for span in spans if record.name is not None and span.name == record.name] or spans
        given = [span for span in spans if span not in self.wanted]
        self.is_part = record.source.kind is SourceKind.VOX_DECLARATION and bool(given)
        self.given = "\n\n".join(span.cut(record.text) for span in given) if self.is_part else ""
        # Comments above declarations move from the completion, where no parser reads them, to the request.
        completion = "\n\n".join(span.cut(record.text) for span in self.wanted) + "\n"
        self.completion = completion if self.wanted and len(completion) <= MAX_TEXT else record.text
        is_source = mode_of(record.source.path) is Mode.SOURCE
        self.functions = [span.name for span in self.wanted if is_source and callable_syntax(span.declaration)]

    @property
    def job(self) -> ObservationJob | None:
        if len(self.functions) != 1 or self.functions[0] is None:
            return None
        return ObservationJob(self.completion, self.functions[0], self.given, self.record.text_sha256)

    def pairs(self, behaviour: Behaviour | None) -> tuple[TrainingPair, ...]:
        record = self.record
        if record.lane is Lane.DOCS_QA:
            about = f'"{record.context or record.source.path}"'
            return (_pair(record, record.prompt or _choose(_QUESTIONS, record).format(what=about), record.text, None),)
        tests = behaviour.tests if behaviour is not None else None
        named = [_describe(span, record.text) for span in self.wanted[:_MOST_NAMED]]
        if len(self.wanted) > _MOST_NAMED:
            named.append(f"{len(self.wanted) - _MOST_NAMED} more declarations")
        request, stated = _choose(_FRAMES, record).format(what=" and ".join(named)), record.prompt
        if record.context:
            request = f"{request} {record.context}"
        if behaviour is not None:
            examples = examples_sentence(behaviour.examples)
            request, stated = f"{request} {examples}", f"{stated} {examples}" if stated else None
        alone = _pair(record, stated if stated and len(stated) <= MAX_TEXT else request, self.completion, tests)
        if not self.is_part:
            return (alone,)
        prompt = f"{request}\n\n{_choose(_GIVEN, record)}\n\n{self.given}"
        return (alone, _pair(record, prompt, self.completion, tests)) if len(prompt) <= MAX_TEXT else (alone,)


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


def _describe(span: DeclarationSpan, text: str) -> str:
    noun = noun_of(span.construct.name)
    named = f"{noun} `{span.name}`" if span.name and len(span.name) <= _LONGEST else noun
    shape = describe_shape(span.declaration, text)
    return f"{named} {shape}" if shape and len(shape) <= _LONGEST else named


def _choose(frames: tuple[str, ...], record: ExtractedRecord) -> str:
    return frames[int(record.text_sha256[:8], 16) % len(frames)]


Row = TypeVar("Row", ExtractedRecord, TrainingPair)

PAIRS: Final = PairsFile.PAIRS
QUARANTINE: Final = PairsFile.QUARANTINE


class ValidationParams(Params):
    """A corpus, files of other pairs by name, and the policy."""

    corpus: Parent
    others: dict[str, Content]
    policy: ValidatePolicy
    observers: Helper[Callable[[], BehaviourWorkers]] = BehaviourWorkers


def write_validated_pairs(folder: Path, params: ValidationParams) -> dict[str, Any]:
    """Validate a corpus and make its pairs, and validate other pairs.

    Writes `pairs.jsonl`, a file for each of the others, and `quarantine.jsonl`; returns the counts for the manifest.
    """
    refused: list[Quarantined] = []
    validation: dict[str, Any] = {}
    num_pairs: dict[str, int] = {}
    lanes, categories = Counter[str](), Counter[str]()
    behaviour = Account[NoBehaviour]()

    def read_valid(path: Path, kind: type[Row], repetition: Repetition) -> Iterator[Row]:
        report = ValidationReport(recheck=True)
        with open_rows(path) as lines:
            for row in validate_rows(lines, report, refused.append, repetition):
                assert isinstance(row, kind), f"{path}: a {type(row).__name__}"  # noqa: S101 - we wrote the file
                yield row
        report.check()
        validation[path.name] = report.as_json()

    def count_pairs(pairs: Iterable[TrainingPair]) -> Iterator[TrainingPair]:
        for pair in pairs:
            lanes[pair.lane] += 1
            categories[pair.category] += 1
            yield pair

    records = read_valid(params.corpus.file(RECORDS), ExtractedRecord, Repetition(params.policy))
    with params.observers() as workers:
        num_pairs[PAIRS] = write_jsonl(folder / PAIRS, count_pairs(make_pairs(records, workers, behaviour)))
    for name, path in params.others.items():
        # Repetition across files is checked in the split, which reads all of them.
        pairs = read_valid(path, TrainingPair, Repetition(None))
        num_pairs[name] = write_jsonl(folder / name, count_pairs(pairs))
    write_jsonl(folder / QUARANTINE, refused)
    return {
        "num_pairs": num_pairs,
        "validation": validation,
        "behaviour": behaviour_report(behaviour),
        "lanes": dict(sorted(lanes.items())),
        "categories": dict(sorted(categories.items())),
    }


STAGE: Final = Stage(Kind.VALIDATED_PAIRS, (__name__,), write_validated_pairs)
