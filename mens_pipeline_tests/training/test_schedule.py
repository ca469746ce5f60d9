"""The learning rate of each step, whatever is decided on the way."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.training.schedule import Decision, Schedule

_CHECKED = settings(max_examples=300, deadline=None, derandomize=True)
_KINDS = ("linear", "cosine")


@st.composite
def _schedules(draw: st.DrawFn, kinds: tuple[str, ...] = _KINDS) -> Schedule:
    """A schedule with up to four decisions, each made before the end that was decided before it."""
    target = draw(st.integers(1, 80))
    decisions: list[Decision] = []
    step, end = 0, target
    for _ in range(draw(st.integers(0, 4))):
        if step + 1 >= end:
            break
        step = draw(st.integers(step + 1, end - 1))
        end = draw(st.integers(step + 1, target))
        decisions.append(Decision(step, end, 1.0, 1.0, "a test"))
    return Schedule(target, draw(st.integers(0, 20)), draw(st.sampled_from(kinds)), tuple(decisions))


def _warmup_of(schedule: Schedule) -> int:
    """Steps until the highest rate."""
    factors = [schedule.factor(step) for step in range(schedule.num_steps)]
    return factors.index(max(factors))


@given(_schedules())
@_CHECKED
def test_every_step_has_a_rate_and_what_comes_after_the_last_has_none(schedule: Schedule) -> None:
    """The first step too; exactly 0 at the end, and nowhere before."""
    factors = [schedule.factor(step) for step in range(schedule.num_steps)]

    assert all(0 < factor <= 1 for factor in factors)
    assert schedule.factor(schedule.num_steps) == 0


@given(_schedules())
@_CHECKED
def test_the_rate_rises_in_the_warmup_and_never_again(schedule: Schedule) -> None:
    """The warmup is no longer than the recipe says, and no longer than a tenth of the target."""
    factors = [schedule.factor(step) for step in range(schedule.num_steps + 1)]
    top = _warmup_of(schedule)

    assert top <= min(schedule.warmup_steps, schedule.target_steps // 10)
    assert all(before < after for before, after in pairwise(factors[: top + 1]))
    assert all(before >= after for before, after in pairwise(factors[top:]))


@given(_schedules())
@_CHECKED
def test_a_decision_changes_no_rate_that_was_used_nor_the_next_one(schedule: Schedule) -> None:
    """It bends the line where the run is; it does not break it."""
    for number, decision in enumerate(schedule.decisions):
        before = Schedule(schedule.target_steps, schedule.warmup_steps, schedule.kind, schedule.decisions[:number])
        for step in range(decision.step + 1):
            assert schedule.factor(step) == pytest.approx(before.factor(step), rel=1e-12)


@given(_schedules(("linear",)))
@_CHECKED
def test_a_linear_rate_is_linear_between_decisions(schedule: Schedule) -> None:
    """From the end of the warmup on."""
    bends = {decision.step for decision in schedule.decisions}
    top = _warmup_of(schedule)
    for step in range(top + 1, schedule.num_steps):
        if step not in bends:
            first, second, third = (schedule.factor(near) for near in (step - 1, step, step + 1))
            assert first - second == pytest.approx(second - third, abs=1e-9)


def test_without_decisions_it_is_the_usual_schedule() -> None:
    """150 steps, of which 5 warm up; the last step has the last positive rate."""
    linear = Schedule(150, 5, "linear")

    assert [linear.factor(step) for step in (0, 1, 4, 5)] == pytest.approx([1 / 6, 2 / 6, 5 / 6, 1])
    assert linear.factor(149) == pytest.approx(1 / 145)
    assert Schedule(101, 1, "cosine").factor(51) == pytest.approx(0.5)
    assert {Schedule(9, 0, "constant_with_warmup").factor(step) for step in range(10)} == {1.0}


@pytest.mark.parametrize("target", [1, 2, 9])
def test_few_steps_have_no_warmup(target: int) -> None:
    """A run of one step trains at the full rate."""
    assert Schedule(target, 100, "linear").factor(0) == 1


def test_a_shorter_run_comes_down_from_where_it_is() -> None:
    """At step 40 of 100 the rate is at 0.6, and 30 steps are left instead of 60: it falls twice as fast."""
    schedule = Schedule(100, 0, "linear", (Decision(40, 70, 1.0, 40.0, "slow"),))

    assert [schedule.factor(step) for step in (39, 40, 55, 69)] == pytest.approx([0.61, 0.6, 0.3, 0.02])


def test_a_warmup_that_is_cut_short_goes_down_from_there() -> None:
    """Twelve steps are left of a hundred, so one more of them warms up instead of eight."""
    schedule = Schedule(100, 10, "linear", (Decision(2, 14, 1.0, 2.0, "slow"),))

    assert [schedule.factor(step) for step in range(4)] == pytest.approx([1 / 11, 2 / 11, 3 / 11, 4 / 11])
    assert schedule.factor(13) == pytest.approx(4 / 11 / 11)
