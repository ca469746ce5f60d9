"""What a file gave, to JSON and back."""

import json

from mens_pipeline.corpus.extract.file_outcome import FileOutcome, outcome_of, with_commit
from mens_pipeline.corpus.schema.drops import Drop, DropReason, Tally, Unit
from mens_pipeline_tests.corpus.rows import records_of

_OUTCOME = FileOutcome(
    path="p.md",
    blob="00",
    lines=('{"a": 1}', '{"b": 2}'),
    kept={Unit.PAGE: 1, Unit.BLOCK: 2},
    drops=(Drop(Unit.SECTION, "p.md", 4, DropReason.TOO_SHORT, "few words"),),
    stands_alone=False,
)


def test_an_outcome_survives_json() -> None:
    """Its account and its lines are all there is to it."""
    assert outcome_of(json.loads(json.dumps(_OUTCOME.account())), _OUTCOME.lines) == _OUTCOME


def test_an_outcome_is_counted_with_what_it_dropped() -> None:
    """Kept and dropped, each by unit."""
    tally = Tally()
    _OUTCOME.count(tally)

    assert tally.adds_up()
    assert (tally.kept[Unit.BLOCK], tally.seen[Unit.SECTION], tally.kept[Unit.SECTION]) == (2, 1, 0)


def test_only_the_commit_of_the_source_is_exchanged() -> None:
    """A text or a header that looks like one stays as it is."""
    header = '// ---\n// commit: null\n// title: "\\"commit\\":null"\n// ---\n'
    (record,) = records_of(f'{header}fn f() to str {{ return "\\"commit\\":null" }}\n')
    line = record.model_dump_json()
    stamped = type(record).model_validate_json(with_commit(line, None, "c0ffee"))

    assert stamped.source.commit == "c0ffee"
    assert (stamped.text, stamped.metadata) == (record.text, record.metadata)
    assert with_commit(with_commit(line, None, "c0ffee"), "c0ffee", None) == line
    assert with_commit(line, None, None) is line
