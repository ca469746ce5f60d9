"""Metadata that assets show."""

from mens_pipeline.orchestration.metadata import count_reasons


def test_reasons_are_counted_with_their_first_places() -> None:
    dropped = [("lane", ""), *(("ignored", f"build/{name}.vox:1") for name in "abbcd"), ("rejected", "c.vox:3 bad")]

    assert list(count_reasons(dropped)) == [
        "5 ignored (build/a.vox:1, build/b.vox:1, build/c.vox:1 and 1 more)",
        "1 lane",
        "1 rejected (c.vox:3 bad)",
    ]
    assert list(count_reasons([])) == []
