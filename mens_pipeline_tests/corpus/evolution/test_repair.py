"""What is no Vox is sent back, and compared with asking again."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.evolution.outcome import EvolutionDrop
from mens_pipeline.corpus.evolution.requests import Request, repair_of
from mens_pipeline.language import Mode
from mens_pipeline_tests.bench.repair import RepairComparison, compare_repair
from mens_pipeline_tests.corpus.evolution.scripted import (
    BUDGET,
    Scripted,
    evolved,
    function_seeds,
    good,
    is_rewriting,
    read,
)

_GOOD = "fn f() to int {\n    return 1\n}\n"
_BROKEN = "fn f() to int {\n    return +\n}\n"
_REQUEST = Request("0" * 64, "You write Vox.", "Write `f`.")
_SEEDS = function_seeds(6)


def _is_repair(request: Request) -> bool:
    return "The compiler says:" in request.prompt


def test_a_repair_shows_the_program_and_its_errors() -> None:
    """Behind the request; with a key of its own."""
    repair = repair_of(_REQUEST, _BROKEN, Mode.SOURCE)

    assert repair is not None
    assert repair.prompt.startswith("Write `f`.\n\nThis answer is no Vox yet.")
    assert f"```vox\n{_BROKEN}```" in repair.prompt
    assert repair.prompt.partition("The compiler says:\n")[2].startswith("2:12: error[")
    assert repair.key not in {_REQUEST.key, getattr(repair_of(_REQUEST, "fn (", Mode.SOURCE), "key", "")}
    assert repair.system == _REQUEST.system


@pytest.mark.parametrize("program", [_GOOD, "", " \n", "x" * 4_001])
def test_what_is_good_empty_or_endless_is_not_sent_back(program: str) -> None:
    """There is nothing to mend, or nothing to show."""
    assert repair_of(_REQUEST, program, Mode.SOURCE) is None


def test_what_declares_nothing_is_sent_back() -> None:
    """It has no error that could be shown."""
    repair = repair_of(_REQUEST, "// soon\n", Mode.SOURCE)

    assert repair is not None
    assert repair.prompt.endswith("The compiler says:\nit declares nothing")


def _compared(say: dict[str, list[str]]) -> tuple[RepairComparison, Scripted]:
    """Two requests; `say` holds what is answered first, to repairs, and to fresh samples, in order."""
    requests = [(Request(f"{n}" * 64, "You write Vox.", f"Write `f{n}`."), Mode.SOURCE) for n in range(2)]
    keys = {request.key for request, _ in requests}

    def answer(request: Request) -> str:
        kind = "first" if request.key in keys else "repair" if _is_repair(request) else "fresh"
        return say[kind].pop(0)

    generator = Scripted(answer)
    return compare_repair(generator, requests, lambda text: read(text).program), generator


def test_repairs_and_fresh_samples_are_counted_side_by_side() -> None:
    """Round by round; what is Vox is asked for no more."""
    found, generator = _compared(
        {"first": [_BROKEN, _BROKEN], "repair": [_GOOD, "fn (", _GOOD], "fresh": [_BROKEN, _BROKEN, _BROKEN, _GOOD]}
    )

    assert found == RepairComparison(2, 0, repaired=(1, 2), fresh=(0, 1), num_repairs=3, num_fresh=4)
    assert len({request.key for request in generator.asked}) == len(generator.asked) == 9


def test_where_all_is_vox_nothing_more_is_asked() -> None:
    """Every count is that of the first answers."""
    found, generator = _compared({"first": [_GOOD, _GOOD]})

    assert found == RepairComparison(2, 2, repaired=(2, 2), fresh=(2, 2), num_repairs=0, num_fresh=0)
    assert len(generator.asked) == 2


def _broken_first(request: Request) -> str:
    """A program with a mistake, which a repair mends."""
    text = good(request)
    return text if is_rewriting(request) or _is_repair(request) else text.replace("return Ok(", "return Ok((")


def test_an_evolution_repairs_what_is_rejected(tmp_path: Path) -> None:
    """Rows come of it that are dropped otherwise; the account says how many."""
    without = evolved(_SEEDS, Scripted(_broken_first), tmp_path / "a")
    repaired = evolved(_SEEDS, Scripted(_broken_first), tmp_path / "b", repairs=2)
    plain = evolved(_SEEDS, Scripted(good), tmp_path / "c", repairs=2)

    assert without.kept == []
    assert {attempt.reason for attempt in without.dropped} == {EvolutionDrop.REJECTED}
    assert len(repaired.kept) == len(plain.kept) > 0
    assert (repaired.num_repairs, repaired.num_repaired) == (6, 6)
    assert repaired.num_requests == plain.num_requests + 6 == 18
    assert (plain.num_repairs, plain.num_repaired) == (0, 0)
    assert repaired.adds_up()


def test_repairs_are_within_the_budget_and_asked_once(tmp_path: Path) -> None:
    """Where it does not reach, answers stay as they are; a call that goes on asks nothing twice."""
    short = BUDGET.model_copy(update={"max_requests": 14})
    cut = evolved(_SEEDS, Scripted(_broken_first), tmp_path / "l", repairs=2, budget=short)
    again = Scripted(_broken_first)
    whole = evolved(_SEEDS, again, tmp_path / "l", repairs=2)

    assert (cut.num_requests, cut.num_repairs, cut.ended_by) == (14, 2, "max_requests")
    assert cut.adds_up()
    assert len(again.asked) == 4
    assert whole.num_repaired == 6
