"""Rows that repeat earlier ones, and origins that give too many."""

from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.repetition import Repetition
from mens_pipeline.corpus.schema.records import SourceKind
from mens_pipeline.corpus.schema.reject_reasons import RejectReason
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline_tests.corpus.rows import pair_at, records_of

_POLICY = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=3, max_per_template=2)


def _reasons(repetition: Repetition, *rows: TrainingPair) -> list[str | None]:
    found = [repetition.objection(row, f"line {number}") for number, row in enumerate(rows, start=1)]
    return [objection and objection[0] for objection in found]


def _long(number: int) -> str:
    return " ".join(f"w{number}x{place}" for place in range(60))


def test_exact_repetition_is_a_duplicate_and_names_the_first() -> None:
    """With a policy and without, and whatever else differs."""
    row = pair_at("a.vox", "p", "r")
    for policy in (None, _POLICY):
        repetition = Repetition(policy)
        assert repetition.objection(row, "line 1") is None
        again = row.model_copy(update={"rating": 1, "source": None})
        assert repetition.objection(again, "line 2") == (RejectReason.DUPLICATE, "the same as line 1")
        assert repetition.objection(again, "line 3") == (RejectReason.DUPLICATE, "the same as line 1")


def test_prompt_and_response_are_not_run_together() -> None:
    """Where the one ends and the other begins makes a difference."""
    assert _reasons(Repetition(None), pair_at(None, "a", "b c"), pair_at(None, "a b", "c")) == [None, None]


def test_a_row_with_hardly_anything_new_is_a_near_duplicate() -> None:
    """The detail names the row that came first; it does not count for its origin."""
    repetition = Repetition(_POLICY)
    first = pair_at("a.vox", "p", _long(0))
    near = pair_at("a.vox", "p", _long(0) + " more")

    assert repetition.objection(first, "line 1") is None
    assert repetition.objection(near, "line 2") == (RejectReason.NEAR_DUPLICATE, "nearly the same as line 1")
    assert repetition.objection(pair_at("a.vox", "p", _long(1)), "line 3") is None
    assert repetition.objection(pair_at("a.vox", "p", _long(2)), "line 4") is None
    assert repetition.objection(pair_at("a.vox", "p", _long(3)), "line 5") is not None


def test_without_a_policy_only_exact_repetition_counts() -> None:
    """Neither likeness nor origin matters."""
    rows = [pair_at("a.vox", "p", _long(0) + f" {number}") for number in range(9)]

    assert _reasons(Repetition(None), *rows) == [None] * 9


def test_a_source_file_gives_as_many_rows_as_it_may() -> None:
    """Other files are not affected, and rows from nowhere have no limit."""
    rows = [pair_at(path, "p", _long(n)) for n, path in enumerate(["a", "a", "a", "a", "b", None, None, None, None])]
    repetition = Repetition(_POLICY)
    reasons = _reasons(repetition, *rows)

    assert reasons == [None, None, None, "source_cap", None, None, None, None, None]
    assert repetition.objection(pair_at("a", "p", _long(99)), "x") == (RejectReason.SOURCE_CAP, "a has given 3 rows")


def test_a_template_counts_before_the_file_it_changed() -> None:
    """A derived row is one of its template, not of its file."""
    rows = [pair_at("a", "p", _long(n), SourceKind.DERIVED, template="mutation/x") for n in range(3)]
    plain = [pair_at("a", "p", _long(n)) for n in range(10, 13)]

    assert _reasons(Repetition(_POLICY), *rows, *plain) == [None, None, "template_cap", None, None, None]


def test_records_are_the_same_by_place_and_text() -> None:
    """The same text at another place is no duplicate, but a near one."""
    record = records_of("fn f(a: int, b: int) to int { return a + b }\n")[0]
    elsewhere = records_of("fn f(a: int, b: int) to int { return a + b }\n", "b.vox")[0]

    assert Repetition(None).objection(record, "line 1") is None
    repetition = Repetition(_POLICY)
    found = [repetition.objection(row, f"line {n}") for n, row in enumerate((record, record, elsewhere))]
    assert [objection and objection[0] for objection in found] == [None, "duplicate", "near_duplicate"]
    exact = Repetition(None)
    assert [exact.objection(row, f"line {n}") for n, row in enumerate((record, elsewhere))] == [None, None]
