"""Pauses in typing, as the completion bench replays them."""

from itertools import pairwise
from pathlib import Path

from mens_pipeline_tests.bench.completion import choose_pauses

_PROGRAM = Path("data/golden/agentic/actor_auction_room.vox")


def test_pauses_are_in_typed_lines_from_top_to_bottom() -> None:
    program = _PROGRAM.read_text(encoding="utf-8")
    pauses = [*choose_pauses(program, 40)]

    assert len(pauses) > 40
    assert len({pause.suffix for pause in pauses}) == 1
    for pause in pauses:
        assert f"{pause.prefix}{pause.rest}\n" in program
        assert not pause.rest.startswith("\n")
        assert program.index(pause.suffix.lstrip()) > program.index(pause.prefix + pause.rest)
    ends = [program.index(pause.prefix) + len(pause.prefix) for pause in pauses]
    assert all(first < second for first, second in pairwise(ends))
