"""The cursor of a sensor."""

import pytest

from mens_pipeline.orchestration.defs.automation import SensorCursor, read_cursor


def test_a_cursor_survives_serialization() -> None:
    cursor = SensorCursor(n=1_800_000_000, fingerprint="a" * 64)

    assert read_cursor(cursor.model_dump_json()) == cursor
    assert len(cursor.model_dump_json()) < 240


@pytest.mark.parametrize("text", [None, "", "x", "{}", '{"n": -1, "fingerprint": "a"}'])
def test_an_invalid_cursor_counts_as_none(text: str | None) -> None:
    assert read_cursor(text) is None
