"""Rows that repeat earlier rows, and origins with too many rows."""

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates, ngrams_of, words_of
from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.schema.reasons import RejectReason
from mens_pipeline.corpus.schema.records import SourceKind, TrainingPair
from mens_pipeline_tests.corpus.rows import pair_at, records_of


def test_words_are_names_numbers_and_signs_and_ngrams_overlap() -> None:
    words = ("fn", "f", "(", "a_1", ":", "int", ")", "{", "a_1", ">", "=", "2", ".", "5", "}")

    assert words_of("fn f(a_1: int)\n\t{ a_1 >= 2.5 }") == words
    assert ngrams_of(("a", "b", "c", "a", "b"), 2) == {"a b", "b c", "c a"}
    assert ngrams_of(("a", "b"), 8) == {"a b"}, "a short text is one n-gram"
    assert ngrams_of((), 8) == {""}


_WORDS = [f"word{number}" for number in range(200)]


def _text(first: int, last: int) -> str:
    return " ".join(_WORDS[first:last])


def test_a_slightly_changed_text_is_near() -> None:
    near = NearDuplicates(0.85)

    assert near.earlier("a", _text(0, 100)) is None
    assert near.earlier("b", _text(0, 100)) == "a"
    assert near.earlier("c", _text(0, 100).replace("word50", "other")) == "a"
    assert near.earlier("d", _text(100, 200)) is None
    assert near.earlier("e", _text(100, 199)) == "d"


def test_a_near_text_is_not_added() -> None:
    near = NearDuplicates(0.8)
    completions = {str(start): near.earlier(str(start), _text(start, start + 100)) for start in range(0, 40, 5)}
    kept = [label for label, completion in completions.items() if completion is None]

    assert completions["5"] == kept[0] == "0"
    assert len(kept) > 1
    assert {completion for completion in completions.values() if completion is not None} <= set(kept)


def test_the_first_of_several_near_texts_is_named() -> None:
    for order in (("left", "right"), ("right", "left")):
        near = NearDuplicates(0.4)
        texts = {"left": _text(0, 100), "right": _text(60, 160)}
        assert [near.earlier(label, texts[label]) for label in order] == [None, None]
        assert near.earlier("between", _text(20, 140)) == order[0]


def test_empty_and_short_texts_are_compared_as_well() -> None:
    near = NearDuplicates(0.9)

    assert [near.earlier(label, text) for label, text in (("a", ""), ("b", " "), ("c", "x y"), ("d", "x  y"))] == [
        *(None, "a", None, "c")
    ]


def test_at_the_highest_threshold_only_the_same_words_are_near() -> None:
    near = NearDuplicates(1.0)

    assert near.earlier("a", _text(0, 50)) is None
    assert near.earlier("b", _text(0, 49)) is None
    assert near.earlier("c", _text(0, 50).replace(" ", "\n")) == "a"


def test_few_texts_just_above_the_threshold_are_missed() -> None:
    near = NearDuplicates(0.8)
    missed = 0
    for number in range(100):
        words = [f"w{number}x{place}" for place in range(100)]
        assert near.earlier(f"first {number}", " ".join(words)) is None
        words[50] = "other"
        missed += near.earlier(f"second {number}", " ".join(words)) is None

    assert missed <= 5


_POLICY = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=3, max_per_template=2)


def _reasons(repetition: Repetition, *rows: TrainingPair) -> list[str | None]:
    found = [repetition.find_reason(row, f"line {number}") for number, row in enumerate(rows, start=1)]
    return [reason and reason[0] for reason in found]


def _long(number: int) -> str:
    return " ".join(f"w{number}x{place}" for place in range(60))


def test_exact_repetition_is_a_duplicate_and_names_the_first() -> None:
    row = pair_at("a.vox", "p", "r")
    for policy in (None, _POLICY):
        repetition = Repetition(policy)
        assert repetition.find_reason(row, "line 1") is None
        again = row.model_copy(update={"rating": 1, "source": None})
        assert repetition.find_reason(again, "line 2") == (RejectReason.DUPLICATE, "the same as line 1")
        assert repetition.find_reason(again, "line 3") == (RejectReason.DUPLICATE, "the same as line 1")


def test_prompt_and_response_are_compared_separately() -> None:
    assert _reasons(Repetition(None), pair_at(None, "a", "b c"), pair_at(None, "a b", "c")) == [None, None]


def test_a_slightly_longer_row_is_a_near_duplicate() -> None:
    repetition = Repetition(_POLICY)
    first = pair_at("a.vox", "p", _long(0))
    near = pair_at("a.vox", "p", _long(0) + " more")

    assert repetition.find_reason(first, "line 1") is None
    assert repetition.find_reason(near, "line 2") == (RejectReason.NEAR_DUPLICATE, "nearly the same as line 1")
    assert repetition.find_reason(pair_at("a.vox", "p", _long(1)), "line 3") is None
    assert repetition.find_reason(pair_at("a.vox", "p", _long(2)), "line 4") is None
    assert repetition.find_reason(pair_at("a.vox", "p", _long(3)), "line 5") is not None


def test_without_a_policy_only_exact_repetition_counts() -> None:
    rows = [pair_at("a.vox", "p", _long(0) + f" {number}") for number in range(9)]

    assert _reasons(Repetition(None), *rows) == [None] * 9


def test_the_rows_of_a_source_file_are_capped() -> None:
    rows = [pair_at(path, "p", _long(n)) for n, path in enumerate(["a", "a", "a", "a", "b", None, None, None, None])]
    repetition = Repetition(_POLICY)
    reasons = _reasons(repetition, *rows)

    assert reasons == [None, None, None, "source_cap", None, None, None, None, None]
    assert repetition.find_reason(pair_at("a", "p", _long(99)), "x") == (RejectReason.SOURCE_CAP, "a has given 3 rows")


def test_evolved_rows_count_for_their_template_and_not_for_their_file() -> None:
    rows = [pair_at("a", "p", _long(n), SourceKind.EVOLVED, template="function/x") for n in range(3)]
    plain = [pair_at("a", "p", _long(n)) for n in range(10, 13)]

    assert _reasons(Repetition(_POLICY), *rows, *plain) == [None, None, "template_cap", None, None, None]


def test_records_repeat_if_place_and_text_are_the_same() -> None:
    record = records_of("fn f(a: int, b: int) to int { return a + b }\n")[0]
    elsewhere = records_of("fn f(a: int, b: int) to int { return a + b }\n", "b.vox")[0]

    assert Repetition(None).find_reason(record, "line 1") is None
    repetition = Repetition(_POLICY)
    found = [repetition.find_reason(row, f"line {n}") for n, row in enumerate((record, record, elsewhere))]
    assert [reason and reason[0] for reason in found] == [None, "duplicate", "near_duplicate"]
    exact = Repetition(None)
    assert [exact.find_reason(row, f"line {n}") for n, row in enumerate((record, elsewhere))] == [None, None]
