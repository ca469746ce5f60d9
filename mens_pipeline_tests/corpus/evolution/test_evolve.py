"""From seeds to evolved rows."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.heldout_split import group_of
from mens_pipeline.corpus.evolution.operators import ModelRequest
from mens_pipeline.corpus.schema.reasons import EvolutionDrop
from mens_pipeline.corpus.schema.records import SourceKind, TrainingPair, parsed_code
from mens_pipeline.language import analyze
from mens_pipeline_tests.corpus.evolution.scripted import (
    BUDGET,
    Scripted,
    function_seeds,
    good,
    is_rewriting,
    run_evolution,
)

_SEEDS = function_seeds(8)


def _dump(rows: list[TrainingPair]) -> list[str]:
    return [row.model_dump_json() for row in rows]


@pytest.mark.seed_row(11)
def test_accepted_rows_record_their_lineage(tmp_path: Path) -> None:
    account = run_evolution(_SEEDS, Scripted(good), tmp_path / "ledger.jsonl", generations=2)
    parents = {pair.digest.hex(): pair for pair in [*_SEEDS, *account.rows]}

    assert account.num_lost == 0
    assert account.ended_by is None
    assert account.kept > 8
    for row in account.rows:
        code = parsed_code(row)
        assert code is not None
        assert row.lineage is not None
        assert row.source is not None
        parent = parents[row.lineage.parent]
        assert analyze(*code).ok
        assert row.lineage.generation == (1 if parent.lineage is None else parent.lineage.generation + 1)
        assert parent.source is not None
        assert row.source.path == parent.source.path == group_of(row)
        assert row.source.kind is SourceKind.EVOLVED
        assert (row.lineage.generator, row.lineage.generator_digest) == ("scripted", "0" * 64)
        assert row.lineage.root_kind is SourceKind.VOX_FILE
        assert (row.rating, row.task_family) == (4, "evolved")
    assert {row.lineage.generation for row in account.rows if row.lineage} == {1, 2}
    assert account.as_json()["generations"]["1"] + account.as_json()["generations"]["2"] == account.kept


def test_rows_depend_on_the_seed_and_not_on_the_order_of_pairs(tmp_path: Path) -> None:
    first = run_evolution(_SEEDS, Scripted(good), tmp_path / "a")
    again = run_evolution(_SEEDS[::-1], Scripted(good), tmp_path / "b")
    other = run_evolution(_SEEDS, Scripted(good), tmp_path / "c", seed=1)

    assert _dump(first.rows) == _dump(again.rows)
    assert _dump(first.rows) != _dump(other.rows)


@pytest.mark.parametrize("completed", [0, 1, 7, 9, 17])
def test_an_interrupted_evolution_is_resumed(tmp_path: Path, completed: int) -> None:
    whole = Scripted(good)
    expected = run_evolution(_SEEDS, whole, tmp_path / "whole", generations=2)
    first, second = Scripted(good, fail_after=completed), Scripted(good)
    with pytest.raises(KeyboardInterrupt):
        run_evolution(_SEEDS, first, tmp_path / "ledger", generations=2)
    with (tmp_path / "ledger").open("ab") as ledger:
        ledger.write(b'{"key": "torn')
    resumed = run_evolution(_SEEDS, second, tmp_path / "ledger", generations=2)
    third = Scripted(good)
    known = run_evolution(_SEEDS, third, tmp_path / "ledger", generations=2)

    assert _dump(resumed.rows) == _dump(expected.rows) == _dump(known.rows)
    assert resumed.failures == expected.failures
    assert [request.key for request in [*first.asked, *second.asked]] == [request.key for request in whole.asked]
    assert second.ledger is not None
    assert second.ledger.num_new == len(second.asked) == len(whole.asked) - completed
    assert resumed.num_requests == expected.num_requests
    assert third.asked == []


@pytest.mark.parametrize("most", [0, 1, 5, 8, 9, 12])
def test_requests_stay_within_the_budget(tmp_path: Path, most: int) -> None:
    """A prompt is rewritten only if the budget allows its completion too, so no request is wasted."""
    generator = Scripted(good)
    account = run_evolution(_SEEDS, generator, tmp_path / "l", budget=BUDGET.model_copy(update={"max_requests": most}))

    assert len(generator.asked) == account.num_requests == most - most % 2
    assert account.ended_by == "max_requests"
    assert account.num_lost == 0
    assert account.seen == most // 2
    assert account.as_json()["dropped"]["over_budget"] == 0


def test_unused_budget_goes_to_the_next_seed(tmp_path: Path) -> None:
    generator = Scripted(lambda _request: "")
    account = run_evolution(_SEEDS, generator, tmp_path / "l", budget=BUDGET.model_copy(update={"max_requests": 6}))

    assert (account.seen, account.num_requests, account.ended_by) == (5, 5, "max_requests")


def test_a_completion_beyond_the_budget_of_tokens_is_counted(tmp_path: Path) -> None:
    long = _SEEDS[0].model_copy(update={"response": _SEEDS[0].response + "// x" * 2_000})
    budget = BUDGET.model_copy(update={"max_tokens": 3_000})
    account = run_evolution([long], Scripted(good), tmp_path / "l", budget=budget)

    assert [attempt.reason for attempt in account.failures] == [EvolutionDrop.OVER_BUDGET]
    assert (account.num_requests, account.ended_by) == (1, "max_tokens")


def test_tokens_stay_within_the_budget(tmp_path: Path) -> None:
    for most in (0, 500, 1_000, 3_000):
        generator = Scripted(good)
        budget = BUDGET.model_copy(update={"max_tokens": most})
        account = run_evolution(_SEEDS, generator, tmp_path / str(most), budget=budget)

        assert account.ended_by == "max_tokens"
        assert account.num_tokens == 150 * len(generator.asked) <= most
        assert account.num_lost == 0


def test_no_request_begins_after_the_time_limit(tmp_path: Path) -> None:
    ticks = iter(range(1000))
    budget = BUDGET.model_copy(update={"max_minutes": 0.05})
    first = Scripted(good)
    account = run_evolution(_SEEDS, first, tmp_path / "l", budget=budget, clock=lambda: float(next(ticks)))
    rest = run_evolution(_SEEDS, Scripted(good), tmp_path / "l")

    assert len(first.asked) == 2
    assert account.ended_by == "max_minutes"
    assert (account.seen, account.kept) == (2, 0)
    assert _dump(rest.rows) == _dump(run_evolution(_SEEDS, Scripted(good), tmp_path / "whole").rows)


def test_rows_stay_within_the_budget(tmp_path: Path) -> None:
    account = run_evolution(_SEEDS, Scripted(good), tmp_path / "l", budget=BUDGET.model_copy(update={"max_rows": 3}))

    assert account.kept == 3
    assert account.ended_by == "max_rows"
    assert account.num_lost == 0
    assert account.as_json()["dropped"]["over_budget"] > 0


def test_seeds_beyond_the_first_wave_are_evolved_too(tmp_path: Path) -> None:
    account = run_evolution(function_seeds(40), Scripted(good), tmp_path / "l")

    assert account.seen == 40
    assert account.num_lost == 0


def test_a_row_without_a_file_gets_a_path_and_is_never_held_out(tmp_path: Path) -> None:
    seed = _SEEDS[0].model_copy(update={"source": None})
    (row,) = run_evolution([seed], Scripted(good), tmp_path / "l").rows

    assert row.source is not None
    assert row.source.path == f"evolved/{seed.digest.hex()[:16]}.vox"
    assert row.lineage is not None
    assert row.lineage.root_kind is None
    assert group_of(row) is None


_INSTRUCTION = "Write a function `clamp` in Vox that keeps a weight between two bounds, and says so in a text."


@pytest.mark.parametrize(
    ("instruction", "completion", "reason"),
    [
        ("", "", EvolutionDrop.BAD_INSTRUCTION),
        ("I cannot do that.", "", EvolutionDrop.BAD_INSTRUCTION),
        (None, "", EvolutionDrop.BAD_INSTRUCTION),
        (_INSTRUCTION, None, EvolutionDrop.BAD_REPLY),
        (_INSTRUCTION, "fn clamp(", EvolutionDrop.REJECTED),
        (_INSTRUCTION, "```vox\n\n```\n", EvolutionDrop.BAD_REPLY),
        (_INSTRUCTION, "I cannot do that.", EvolutionDrop.BAD_REPLY),
        (_INSTRUCTION, "type Clamp {\n    low: int\n}\n", EvolutionDrop.NOT_AS_ASKED),
    ],
)
def test_a_failed_attempt_has_a_reason(
    tmp_path: Path, instruction: str | None, completion: str | None, reason: EvolutionDrop
) -> None:
    def write_reply(request: ModelRequest) -> str | None:
        return instruction if is_rewriting(request) else completion

    account = run_evolution(_SEEDS[:1], Scripted(write_reply), tmp_path / "l", generations=3)
    (attempt,) = account.failures

    assert (attempt.reason, attempt.generation, attempt.parent) == (reason, 1, _SEEDS[0].digest.hex())
    assert account.as_json()["dropped"][reason] == account.seen == 1
    assert account.num_requests == (1 if reason is EvolutionDrop.BAD_INSTRUCTION else 2)


def test_rows_with_failing_tests_and_near_duplicates_are_dropped(tmp_path: Path) -> None:
    def break_test(request: ModelRequest) -> str:
        return good(request).replace(".is_ok()", ".is_err()")

    def rename(request: ModelRequest) -> str:
        return good(request if is_rewriting(request) else ModelRequest(request.key, request.system, "`g0123456789ab`"))

    def use_unknown_type(request: ModelRequest) -> str:
        return good(request).replace("text: str", "text: Quux")

    untyped = run_evolution(_SEEDS[:1], Scripted(use_unknown_type), tmp_path / "d")
    failed = run_evolution(_SEEDS[:1], Scripted(break_test), tmp_path / "a")
    near = run_evolution(_SEEDS[:2], Scripted(rename), tmp_path / "b")
    (row,) = run_evolution(_SEEDS[:1], Scripted(good), tmp_path / "c").rows
    protected = run_evolution(_SEEDS[:1], Scripted(good), tmp_path / "c", protected=[row])

    assert [attempt.reason for attempt in failed.failures] == [EvolutionDrop.TESTS_FAILED]
    assert [attempt.reason for attempt in untyped.failures] == [EvolutionDrop.SEMANTIC_ERROR]
    assert untyped.failures[0].detail.endswith("unknown-type: no type is called `Quux`")
    assert untyped.num_lost == 0
    assert [attempt.reason for attempt in near.failures] == [EvolutionDrop.NOT_AS_ASKED] * 2
    assert [attempt.reason for attempt in protected.failures] == [EvolutionDrop.NEAR_HELD_OUT]
