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
