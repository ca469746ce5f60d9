"""Texts that nearly repeat an earlier one."""

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates

_WORDS = [f"word{number}" for number in range(200)]


def _text(first: int, last: int) -> str:
    return " ".join(_WORDS[first:last])


def test_a_text_that_changed_a_little_is_near() -> None:
    """The same, or one word of a hundred changed; a text with other words is not, and joins."""
    near = NearDuplicates(0.85)

    assert near.earlier("a", _text(0, 100)) is None
    assert near.earlier("b", _text(0, 100)) == "a"
    assert near.earlier("c", _text(0, 100).replace("word50", "other")) == "a"
    assert near.earlier("d", _text(100, 200)) is None
    assert near.earlier("e", _text(100, 199)) == "d"


def test_a_text_that_is_near_does_not_join() -> None:
    """Nearness does not creep from text to text: each is compared with those that were kept."""
    near = NearDuplicates(0.8)
    answers = {str(start): near.earlier(str(start), _text(start, start + 100)) for start in range(0, 40, 5)}
    kept = [label for label, answer in answers.items() if answer is None]

    assert answers["5"] == kept[0] == "0"
    assert len(kept) > 1
    assert {answer for answer in answers.values() if answer is not None} <= set(kept)


def test_of_several_near_texts_the_first_is_named() -> None:
    """Whatever the index answers first, the order of the texts decides."""
    for order in (("left", "right"), ("right", "left")):
        near = NearDuplicates(0.4)
        texts = {"left": _text(0, 100), "right": _text(60, 160)}
        assert [near.earlier(label, texts[label]) for label in order] == [None, None]
        assert near.earlier("between", _text(20, 140)) == order[0]


def test_empty_and_short_texts_are_compared_as_well() -> None:
    """They are one run each."""
    near = NearDuplicates(0.9)

    assert [near.earlier(label, text) for label, text in (("a", ""), ("b", " "), ("c", "x y"), ("d", "x  y"))] == [
        *(None, "a", None, "c"),
    ]


def test_at_the_highest_threshold_only_the_same_words_are_near() -> None:
    """A threshold of one is no error."""
    near = NearDuplicates(1.0)

    assert near.earlier("a", _text(0, 50)) is None
    assert near.earlier("b", _text(0, 49)) is None
    assert near.earlier("c", _text(0, 50).replace(" ", "\n")) == "a"


def test_hardly_any_text_just_above_the_threshold_is_missed() -> None:
    """The index alone would miss every second one."""
    near = NearDuplicates(0.8)
    missed = 0
    for number in range(100):
        words = [f"w{number}x{place}" for place in range(100)]
        assert near.earlier(f"first {number}", " ".join(words)) is None
        words[50] = "other"
        missed += near.earlier(f"second {number}", " ".join(words)) is None

    assert missed <= 5
