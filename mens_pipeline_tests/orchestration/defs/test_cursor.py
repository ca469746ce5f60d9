"""What a sensor remembers."""

import pytest

from mens_pipeline.orchestration.defs.automation import SensorCursor, read_cursor


def test_a_cursor_survives_its_text() -> None:
    cursor = SensorCursor(n=1_800_000_000, fingerprint="a" * 64)

    assert read_cursor(cursor.model_dump_json()) == cursor
    assert len(cursor.model_dump_json()) < 240


@pytest.mark.parametrize("text", [None, "", "x", "{}", '{"n": -1, "fingerprint": "a"}'])
def test_what_is_no_cursor_is_a_first_look(text: str | None) -> None:
    assert read_cursor(text) is None


def test_a_b_a_are_three_keys() -> None:
    first = SensorCursor(n=7, fingerprint="a" * 64)
    second = first.advance("b" * 64)
    third = second.advance("a" * 64)

    assert len({cursor.run_key("s") for cursor in (first, second, third)}) == 3
    assert third.run_key("s") == f"s-9-{'a' * 16}"
