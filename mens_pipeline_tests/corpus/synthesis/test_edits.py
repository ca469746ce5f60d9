"""Replacing stretches of a text."""

import pytest

from mens_pipeline.corpus.synthesis.edits import Edit, apply_edits


@pytest.mark.parametrize(
    ("edits", "changed"),
    [
        ((), "abcdef"),
        ((Edit(1, 3, "X"),), "aXdef"),
        ((Edit(4, 6, ""), Edit(0, 1, "AA")), "AAbcd"),
        ((Edit(2, 2, "1"), Edit(2, 2, "2")), "ab12cdef"),
        ((Edit(0, 2, ""), Edit(2, 4, "!")), "!ef"),
        ((Edit(6, 6, "."),), "abcdef."),
    ],
)
def test_edits_count_in_the_original_text(edits: tuple[Edit, ...], changed: str) -> None:
    """Their order does not matter, and what they do to lengths neither."""
    assert apply_edits("abcdef", edits) == changed


@pytest.mark.parametrize("edits", [(Edit(0, 3, ""), Edit(2, 4, "")), (Edit(5, 7, ""),), (Edit(3, 2, ""),)])
def test_edits_that_overlap_or_leave_the_text_are_refused(edits: tuple[Edit, ...]) -> None:
    """Nobody could say what they mean."""
    with pytest.raises(ValueError, match="overlaps another edit or lies outside"):
        apply_edits("abcdef", edits)
