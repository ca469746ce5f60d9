"""Offsets, lines and columns."""

import pytest

from mens_pipeline.language import Position, SourceText


@pytest.mark.parametrize(
    ("text", "index", "position"),
    [
        ("", 0, Position(0, 1, 0)),
        ("ab", 2, Position(2, 1, 2)),
        ("a\nb", 1, Position(1, 1, 1)),
        ("a\nb", 2, Position(2, 2, 0)),
        ("a\r\nb", 3, Position(3, 2, 0)),
        ("a\rb", 2, Position(2, 1, 2)),
        ("é\n日x", 3, Position(6, 2, 1)),
        ("\ud800x", 1, Position(3, 1, 1)),
        ("a\n", 2, Position(2, 2, 0)),
    ],
)
def test_position_of_a_character(text: str, index: int, position: Position) -> None:
    """LF ends a line, columns are characters, offsets are bytes."""
    assert SourceText(text).position(index) == position


def test_line_is_without_its_end() -> None:
    """LF and CR LF are no part of a line."""
    text = SourceText("a\r\nb\n\nc")

    assert [text.line(number) for number in (1, 2, 3, 4)] == ["a", "b", "", "c"]
