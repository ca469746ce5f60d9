"""How large a drop must be to be seen."""

import pytest

from mens_pipeline.promotion.power import power_of_regression, smallest_drop


def test_the_power_of_a_small_test_by_hand() -> None:
    """Five tasks of which each is lost with one half: only five losses have a chance of at most a sixteenth."""
    assert power_of_regression(5, 0.5, 0.0, p_value=0.07) == pytest.approx(1 / 32)
    assert power_of_regression(5, 0.5, 0.0, p_value=0.0625) == 0.0


def test_gains_may_hide_a_drop() -> None:
    """Two tasks that both differ: two losses of two, at a chance of three quarters each."""
    assert power_of_regression(2, 0.5, 0.5, p_value=0.6) == pytest.approx(9 / 16)


def test_without_a_drop_the_power_is_the_false_alarm_rate() -> None:
    """One side of the test, at most half of the p-value."""
    assert 0.001 < power_of_regression(198, 0.0, 0.2, p_value=0.01) <= 0.005
    assert power_of_regression(198, 0.0, 0.0, p_value=0.01) == 0.0


def test_a_total_loss_is_certain_to_be_seen() -> None:
    """Every task differs, and every one is lost."""
    assert power_of_regression(198, 1.0, 0.0, p_value=0.01) == pytest.approx(1.0)


def test_three_points_are_hardly_seen_at_198_tasks() -> None:
    """The figures of the documentation: the gate is for breakage, not for slow decline."""
    powers = [power_of_regression(198, 0.03, disagreement, 0.01) for disagreement in (0.0, 0.05, 0.1, 0.2)]

    assert powers == pytest.approx([0.246, 0.084, 0.053, 0.033], abs=5e-4)


@pytest.mark.parametrize(("disagreement", "drop"), [(0.0, 0.0513), (0.05, 0.0915), (0.1, 0.1126), (0.2, 0.1441)])
def test_the_smallest_drop_that_is_seen(disagreement: float, drop: float) -> None:
    """With four in five chances at 198 tasks, and hardly more."""
    found = smallest_drop(198, disagreement, p_value=0.01)

    assert found is not None
    assert found == pytest.approx(drop, abs=5e-5)
    assert (
        power_of_regression(198, drop - 0.001, disagreement, 0.01)
        < 0.8
        <= power_of_regression(198, found, disagreement, 0.01)
    )


def test_too_few_tasks_show_no_drop_at_all() -> None:
    """Not even a total one: six losses have a chance of a thirty-second, both sides taken together."""
    assert smallest_drop(6, 0.0, p_value=0.01) is None
    assert smallest_drop(8, 0.0, p_value=0.01) is not None


@pytest.mark.parametrize(("drop", "disagreement"), [(-0.1, 0.5), (0.5, -0.1), (0.6, 0.5)])
def test_shares_must_make_sense(drop: float, disagreement: float) -> None:
    """More than all tasks cannot differ."""
    with pytest.raises(ValueError, match="must be shares of at most all tasks together"):
        power_of_regression(10, drop, disagreement, 0.01)
