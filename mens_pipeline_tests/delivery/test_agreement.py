"""The rules by which two models count as the same."""

from typing import Any

import pytest

from mens_pipeline.delivery.agreement import (
    STRICT,
    Demand,
    PromptComparison,
    Written,
    compute_agreement,
    reasons_against,
    spread,
)
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, task
from mens_pipeline_tests.every import every

_TASKS = [task(number) for number in range(10)]
_BY_ID = {found.id: found for found in _TASKS}


def _complete(text: str = GOOD, tokens: range = range(100)) -> Written:
    return Written(tokens=tuple(tokens), text=text, stopped=True)


def _same(number: int, **changes: Any) -> PromptComparison:
    values: dict[str, Any] = {
        "task": _TASKS[number].id,
        "same_prompt": True,
        "reference": _complete(),
        "candidate": _complete(),
        "num_led": 100,
        **changes,
    }
    return PromptComparison(**values)


def _reasons(*changed: PromptComparison, demand: Demand = STRICT) -> tuple[str, ...]:
    rest = [_same(number) for number in range(len(changed), 10)]
    return reasons_against(compute_agreement([*changed, *rest], _BY_ID, 0.0), demand)


def test_models_with_the_same_completions_are_the_same() -> None:
    found = compute_agreement([_same(number) for number in range(10)], _BY_ID, 1e-5)

    assert reasons_against(found, STRICT) == ()
    assert (found.num_prompts, found.num_tokens, found.num_same_completions) == (10, 1000, 10)
    assert (found.token_agreement, found.led_agreement, found.parse_difference) == (1.0, 1.0, 0.0)
    assert found.reference_parse_rate.numerator == 10


def test_one_token_in_a_thousand_may_differ() -> None:
    last = _complete(tokens=range(99))

    assert _reasons(_same(0, candidate=last)) == ()
    (reason,) = _reasons(_same(0, candidate=last), _same(1, candidate=last))
    assert reason.startswith("998/1000 (99.80 %) of the tokens ")
    assert "99.9 %" in reason


def test_tokens_differ_from_the_first_difference_on() -> None:
    shifted = _complete(tokens=range(1, 101))
    longer = _complete(tokens=range(200))

    assert compute_agreement([_same(0, candidate=shifted)], _BY_ID, 0.0).num_same_tokens == 0
    assert compute_agreement([_same(0, candidate=longer)], _BY_ID, 0.0).token_agreement == 0.5


@every(
    "case",
    [
        ({"num_led": 98}, "Teacher-forced along the reference, 998/1000 (99.80 %) of the tokens are the same"),
        ({"candidate": _complete(BROKEN)}, "Parse rate 9/10 (90.0 %), before 10/10 (100.0 %)"),
        ({"reference": _complete(BROKEN)}, "Parse rate 10/10 (100.0 %), before 9/10 (90.0 %)"),
        ({"same_prompt": False}, "1/10 prompts have other tokens"),
    ],
)
def test_a_single_difference_is_a_reason(case: tuple[dict[str, Any], str]) -> None:
    changes, reason = case
    (found,) = _reasons(_same(0, **changes))

    assert found.startswith(reason)
    assert not reason.startswith("Parse rate") or "0.2 points" in found


def test_an_empty_comparison_proves_nothing() -> None:
    reasons = reasons_against(compute_agreement([], {}, 0.0), STRICT)

    assert reasons[0] == "Nothing was compared."
    assert len(reasons) == 4


@pytest.mark.parametrize(("number", "places"), [(1, [0]), (2, [0, 5]), (4, [0, 2, 5, 7]), (10, list(range(10)))])
def test_requests_are_spread_evenly(number: int, places: list[int]) -> None:
    assert spread(_TASKS, number) == tuple(_TASKS[place] for place in places)
    assert spread(_TASKS, 99) == tuple(_TASKS)
