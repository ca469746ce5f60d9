"""How many steps fit into a budget, on machines of any speed."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import CHECKPOINTS, COMPLETE
from mens_pipeline.training.step_plan import FILE, Schedule, StepDecision, StepPlan, take_up
from mens_pipeline_tests.every import every_row

_TARGET = 150
_BUDGET = 1200.0


def _plan(
    folder: Path, budget: float | None = _BUDGET, resumed_at: int = 0, tokens: list[int] | None = None
) -> StepPlan:
    return StepPlan(
        folder / FILE, Schedule(_TARGET, 5, "linear"), tokens or [940] * _TARGET, budget, resumed_at=resumed_at
    )


def _run(plan: StepPlan, lap_of: Callable[[int], float], seconds: float = 0.0, first: int = 0) -> tuple[int, float]:
    step = first
    while step < plan.num_steps:
        step += 1
        seconds += lap_of(step)
        plan.measure(step, lap_of(step), seconds)
    return step, seconds


def test_a_fast_machine_makes_all_steps(tmp_path: Path) -> None:
    plan = _plan(tmp_path)

    assert _run(plan, lambda _step: 3.6) == pytest.approx((_TARGET, 540))
    assert plan.account() == {"target_steps": 150, "budget_seconds": 1200.0, "decisions": []}
    assert not (tmp_path / FILE).exists()


def test_a_slow_machine_makes_as_many_steps_as_fit(tmp_path: Path) -> None:
    plan = _plan(tmp_path)

    assert _run(plan, lambda _step: 12.0) == pytest.approx((100, 1200))
    (decision,) = json.loads((tmp_path / FILE).read_text())["decisions"]
    assert decision == {
        "step": 5,
        "num_steps": 100,
        "seconds": 60.0,
        "seconds_per_step": pytest.approx(12),
        "reason": "150 steps would take 30.0 min, at 12.00 s a step",
    }


@pytest.mark.parametrize("at", [1, 4, 20, 70, 99, 110])
@pytest.mark.parametrize(("before", "after"), [(7.5, 15.0), (7.5, 30.0), (12.0, 6.0), (12.0, 24.0), (9.0, 3.0)])
def test_a_machine_that_changes_speed_ends_in_time(tmp_path: Path, at: int, before: float, after: float) -> None:
    """Twice, four times as slow, twice or three times as fast from some step on: it uses its budget and keeps to it."""
    plan = _plan(tmp_path)
    steps, seconds = _run(plan, lambda step: before if step <= at else after)

    assert seconds <= 1.03 * _BUDGET + 2 * max(before, after)
    assert steps == _TARGET or seconds >= 0.97 * _BUDGET - max(before, after)


def test_steps_return_when_time_allows(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    steps, seconds = _run(plan, lambda step: 16.0 if step <= 20 else 4.0)
    planned = [decision["num_steps"] for decision in plan.account()["decisions"]]

    assert (steps, seconds) == (_TARGET, 20 * 16 + 130 * 4)
    assert planned[0] == 75
    assert planned[-1] == _TARGET


def test_one_pause_does_not_change_the_estimated_speed(tmp_path: Path) -> None:
    """A minute is lost, and later steps take as long as those before."""
    plan = _plan(tmp_path)
    steps, _ = _run(plan, lambda step: 60.0 if step == 50 else 7.8)

    assert steps == (1200 - 60 + 7.8) // 7.8
    assert len(plan.account()["decisions"]) == 1


@pytest.mark.parametrize("seed", range(20))
def test_machines_of_varying_speed_keep_to_the_budget(tmp_path: Path, seed: int) -> None:
    """Steps of any length between four and twenty seconds, now mostly fast, now mostly slow."""
    random = Random(seed)  # noqa: S311 - a reproducible machine, no secret
    laps = [random.uniform(4, 20) * (1 if step // 25 % 2 else 0.6) for step in range(_TARGET)]
    plan = _plan(tmp_path)
    steps, seconds = _run(plan, lambda step: laps[step - 1])

    assert seconds <= 1.03 * _BUDGET + 20
    assert steps == _TARGET or seconds >= 0.9 * _BUDGET


def test_the_time_of_a_step_depends_on_its_tokens(tmp_path: Path) -> None:
    """The first half has small steps, the second large ones, which is known from the beginning."""
    tokens = [500] * 75 + [1500] * 75
    plan = _plan(tmp_path, tokens=tokens)
    steps, seconds = _run(plan, lambda step: tokens[step - 1] / 100)

    assert (steps, seconds) == pytest.approx((75 + 55, 1200))
    assert [decision["step"] for decision in plan.account()["decisions"]] == [5]


def test_without_a_budget_nothing_depends_on_time(tmp_path: Path) -> None:
    plan = _plan(tmp_path, budget=None)
    details = [plan.measure(step, 1000.0, 1000.0 * step) for step in range(1, _TARGET + 1)]

    assert [step for step, event in enumerate(details, start=1) if event] == [5]
    assert details[4] == {
        "step": 5,
        "num_steps": 150,
        "target_steps": 150,
        "seconds": 5000.0,
        "budget_seconds": None,
        "reason": None,
        "seconds_per_step": pytest.approx(1000),
        "end_seconds": pytest.approx(150_000),
    }
    assert plan.num_steps == _TARGET


def test_a_run_beyond_its_budget_lets_the_rate_fall(tmp_path: Path) -> None:
    """Two more steps, in which the rate falls, although the machine almost stopped."""
    plan = _plan(tmp_path)
    steps, _ = _run(plan, lambda step: 8.0 if step < 110 else 2000.0)

    assert steps == 112
    assert plan.schedule.factor(111) > 0
    assert plan.schedule.factor(112) == 0


def test_a_resumed_run_drops_decisions_after_its_checkpoint(tmp_path: Path) -> None:
    """Their steps are lost, and the file contains the decisions that remain."""
    before = _plan(tmp_path)
    _run(before, lambda step: 12.0 if step <= 40 else 24.0)
    made = before.account()["decisions"]
    after = _plan(tmp_path, resumed_at=30)

    assert len(made) > 1
    assert after.account()["decisions"] == made[:1] == json.loads((tmp_path / FILE).read_text())["decisions"]
    assert after.num_steps == 100
    assert not after.is_over
    assert _run(after, lambda _step: 12.0, 30 * 12.0, 30) == pytest.approx((100, 1200))


@every_row(
    (None, '{"global_step": 30, "max_steps": 100}', "has 150 steps, but checkpoint-30 is from a run of 100"),
    (None, "{}", "has 150 steps, but checkpoint-30 is from a run of None"),
    (None, "[", r"trainer_state\.json: not JSON"),
    ("[" * 100_000, "{}", r"steps\.json: not JSON"),
    ('{"decisions": [{}]}', "{}", "not the decisions of a run"),
)
def test_a_damaged_checkpoint_or_one_of_other_decisions_is_refused(
    decisions: str | None, state: str, problem: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / CHECKPOINTS / "checkpoint-30"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / COMPLETE).write_text("{}")
    (checkpoint / "trainer_state.json").write_text(state)
    if decisions is not None:
        (tmp_path / FILE).write_text(decisions)

    with pytest.raises(RefusedError, match=rf"{problem}.*or start over with --force-restart"):
        take_up(tmp_path, Schedule(_TARGET, 5, "linear"), [1] * _TARGET, 20)


_CHECKED = settings(max_examples=300, deadline=None, derandomize=True)
_KINDS = ("linear", "cosine")


@st.composite
def _schedules(draw: st.DrawFn, kinds: tuple[str, ...] = _KINDS) -> Schedule:
    """A schedule with up to four decisions, each made before the end that was decided before it."""
    target = draw(st.integers(1, 80))
    decisions: list[StepDecision] = []
    step, end = 0, target
    for _ in range(draw(st.integers(0, 4))):
        if step + 1 >= end:
            break
        step = draw(st.integers(step + 1, end - 1))
        end = draw(st.integers(step + 1, target))
        decisions.append(StepDecision(step, end, 1.0, 1.0, "a test"))
    return Schedule(target, draw(st.integers(0, 20)), draw(st.sampled_from(kinds)), tuple(decisions))


def _warmup_of(schedule: Schedule) -> int:
    factors = [schedule.factor(step) for step in range(schedule.num_steps)]
    return factors.index(max(factors))


@given(_schedules())
@_CHECKED
def test_the_rate_is_positive_until_the_last_step(schedule: Schedule) -> None:
    """It is exactly 0 at the end and nowhere before. It rises only in the warmup.

    The warmup is no longer than the recipe says, and no longer than a tenth of the target. A decision changes no rate
    that was used, nor the next one.
    """
    *factors, last = (schedule.factor(step) for step in range(schedule.num_steps + 1))
    top = _warmup_of(schedule)

    assert last == 0
    assert all(0 < factor <= 1 for factor in factors)
    assert top <= min(schedule.warmup_steps, schedule.target_steps // 10)
    assert all(before < after for before, after in pairwise(factors[: top + 1]))
    assert all(before >= after for before, after in pairwise(factors[top:]))
    for number, decision in enumerate(schedule.decisions):
        before = Schedule(schedule.target_steps, schedule.warmup_steps, schedule.kind, schedule.decisions[:number])
        used = [before.factor(step) for step in range(decision.step + 1)]
        assert factors[: decision.step + 1] == pytest.approx(used, rel=1e-12)


@given(_schedules(("linear",)))
@_CHECKED
def test_a_linear_rate_is_linear_between_decisions(schedule: Schedule) -> None:
    bends = {decision.step for decision in schedule.decisions}
    top = _warmup_of(schedule)
    for step in range(top + 1, schedule.num_steps):
        if step not in bends:
            first, second, third = (schedule.factor(near) for near in (step - 1, step, step + 1))
            assert first - second == pytest.approx(second - third, abs=1e-9)


def test_the_schedule_is_the_usual_one_without_decisions() -> None:
    """150 steps, of which 5 warm up; the last step has the last positive rate."""
    linear = Schedule(150, 5, "linear")

    assert [linear.factor(step) for step in (0, 1, 4, 5)] == pytest.approx([1 / 6, 2 / 6, 5 / 6, 1])
    assert linear.factor(149) == pytest.approx(1 / 145)
    assert Schedule(101, 1, "cosine").factor(51) == pytest.approx(0.5)
    assert {Schedule(9, 0, "constant_with_warmup").factor(step) for step in range(10)} == {1.0}
    assert [Schedule(few, 100, "linear").factor(0) for few in (1, 2, 9)] == [1, 1, 1], "no warmup"


def test_the_rate_of_a_shortened_run_falls_from_its_current_value() -> None:
    """At step 40 of 100 the rate is at 0.6, and 30 steps are left instead of 60: it falls twice as fast."""
    schedule = Schedule(100, 0, "linear", (StepDecision(40, 70, 1.0, 40.0, "slow"),))

    assert [schedule.factor(step) for step in (39, 40, 55, 69)] == pytest.approx([0.61, 0.6, 0.3, 0.02])


def test_the_rate_falls_after_a_shortened_warmup() -> None:
    """Twelve steps are left of a hundred, so one more of them warms up instead of eight."""
    schedule = Schedule(100, 10, "linear", (StepDecision(2, 14, 1.0, 2.0, "slow"),))

    assert [schedule.factor(step) for step in range(4)] == pytest.approx([1 / 11, 2 / 11, 3 / 11, 4 / 11])
    assert schedule.factor(13) == pytest.approx(4 / 11 / 11)
