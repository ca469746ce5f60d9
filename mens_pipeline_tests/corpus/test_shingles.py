"""Words and runs of words."""

from mens_pipeline.corpus.curate.shingles import ngrams_of, words_of


def test_words_are_names_numbers_and_single_signs() -> None:
    """Spacing does not matter; signs stand alone."""
    assert words_of("fn f(a_1: int)\n\t{ a_1 >= 2.5 }") == (
        *("fn", "f", "(", "a_1", ":", "int", ")", "{", "a_1", ">", "=", "2", ".", "5", "}"),
    )


def test_runs_overlap() -> None:
    """Each word begins one, but the last few."""
    assert ngrams_of(("a", "b", "c", "a", "b"), 2) == {"a b", "b c", "c a"}


def test_a_short_text_is_one_run() -> None:
    """Nothing is too short to be compared, not even nothing."""
    assert ngrams_of(("a", "b"), 8) == {"a b"}
    assert ngrams_of((), 8) == {""}
