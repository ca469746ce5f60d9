"""Time limits that are multiples of other work."""

import re

import pytest

from mens_pipeline_tests.speed import assert_below, assert_linear


def test_a_quadratic_pattern_fails_and_a_linear_one_does_not() -> None:
    assert_linear(re.compile(r"\ba+b").search, lambda size: "a" * size, 4_000_000)
    with pytest.raises(AssertionError, match="36 times other work"):
        assert_linear(re.compile(r"a+b").search, lambda size: "a" * size, 8_000)


def test_work_that_takes_longer_than_its_multiple_fails() -> None:
    def work(size: int) -> int:
        return sum(range(size))

    assert_below(lambda: work(2_000_000), 20, lambda: work(200_000))
    with pytest.raises(AssertionError, match="5 times other work"):
        assert_below(lambda: work(2_000_000), 5, lambda: work(200_000))
