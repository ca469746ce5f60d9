"""Windows of a file that clients send."""

from random import Random

from mens_pipeline.corpus.infill.views import WINDOWS, draw_view, leave_line_unfinished

_DICE = Random(1)  # noqa: S311 - a reproducible draw
_PREFIX = "".join(f"    let value_{number} = {number}\n" for number in range(300)) + "    let x ="
_SUFFIX = " 1\n" + "".join(f"    print({number})\n" for number in range(100))


def test_windows_are_the_text_at_the_cursor() -> None:
    sizes = {}
    for name, view in WINDOWS.items():
        before, after = view(_PREFIX, _SUFFIX)
        assert _PREFIX.endswith(before), name
        assert _SUFFIX.startswith(after), name
        sizes[name] = (before.count("\n"), after.count("\n")) if "lines" in name else (len(before), len(after))

    assert sorted(sizes.values()) == [(20, 20), (256, 64), (600, 300), (1_100, 1_100), (1_300, 900)]


def test_one_line_above_is_left_unfinished() -> None:
    before, after = leave_line_unfinished(_PREFIX, _SUFFIX, _DICE)

    (place,) = (
        number
        for number, (old, new) in enumerate(zip(_PREFIX.split("\n"), before.split("\n"), strict=True))
        if old != new
    )
    assert _PREFIX.split("\n")[place].startswith(before.split("\n")[place])
    assert after == _SUFFIX
    assert leave_line_unfinished("fn\nlet x", "", _DICE) == ("fn\nlet x", "")


def test_views_are_drawn_by_their_share() -> None:
    drawn = {draw_view(_PREFIX, _SUFFIX, 1, _DICE) for _ in range(100)}

    assert draw_view(_PREFIX, _SUFFIX, 0, _DICE) == (_PREFIX, _SUFFIX)
    assert len({len(before) for before, _ in drawn if _PREFIX.endswith(before)}) == len(WINDOWS)
    assert any(not _PREFIX.endswith(before) for before, _ in drawn)
