"""The reward of completions, and of completions that only look like a solution."""

from dataclasses import replace

import pytest

from mens_pipeline.evaluation.reward import Tier, is_telling, num_given_away
from mens_pipeline_tests.evaluation.rewarded import RIGHT, TESTS, pair, rewarded, task

_HEAD = "fn twice_or_zero(n: int) to int "
_LADDER = f"{_HEAD}{{\n    if n is 3 {{\n        return 6\n    }}\n    if n is -4 {{\n        return 0\n    }}\n"
_OWN_TEST = "\n@test\nfn it_works() to Unit {\n    assert(true)\n}\n"
_DECLARED = "fn twice_or_zero(n: int) {\n}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("completion", "tier"),
    [
        ("", Tier.NOTHING),
        ("I cannot do that.", Tier.NOTHING),
        (f"{_HEAD}{{ return n *", Tier.NOTHING),
        (f"{_HEAD}{{\n}}\n", Tier.NOTHING),
        (_DECLARED, Tier.NOTHING),
        (f'{_HEAD}{{\n    return panic("later")\n}}\n', Tier.NOTHING),
        (f"{_HEAD}{{\n    // TODO: write this\n    return n\n}}\n", Tier.NOTHING),
        (_OWN_TEST, Tier.NOTHING),
        ("// twice_or_zero\n", Tier.NOTHING),
        (RIGHT.replace("twice_or_zero", "another_name"), Tier.VOX),
        ("type twice_or_zero {\n    n: int\n}\n", Tier.VOX),
        (f"{_HEAD}{{\n    return unknown_name\n}}\n", Tier.VOX),
        (f"{_HEAD}{{\n    return 0\n}}\n", Tier.RESOLVES),
        (f"{_HEAD}{{\n    return 2\n}}\n", Tier.RESOLVES),
        (f"{_LADDER}    return 0\n}}\n", Tier.RESOLVES),
        (f"{_LADDER}    return 2\n}}\n{_OWN_TEST}", Tier.RESOLVES),
        (f"{_HEAD}{{\n    return twice_or_zero(n)\n}}\n", Tier.RESOLVES),
        (f"{RIGHT}\nfn assert(is_right: bool) to Unit {{\n    return\n}}\n", Tier.RESOLVES),
    ],
)
def test_a_completion_that_solves_nothing_gets_little(completion: str, tier: Tier) -> None:
    found = rewarded(completion)

    assert found.tier is tier
    assert found.value == {Tier.NOTHING: 0.0, Tier.VOX: 0.05, Tier.RESOLVES: 0.1}[tier]
    assert found.why


def test_some_passed_tests_earn_part_of_the_reward() -> None:
    found = rewarded(
        f"{_HEAD}{{\n    if n > 6 {{\n        return 0\n    }}\n    if n < 0 {{ return 0 }}\n    return n * 2\n}}\n"
    )

    assert found.tier is Tier.TESTS
    assert found.value == pytest.approx(0.1 + 0.4 * (6 - 4) / (8 - 4))
    assert found.why == "6 of 8 hidden tests, 4 of them given away"


@pytest.mark.parametrize("completion", [RIGHT, f"```vox\n{RIGHT}```\n", RIGHT + _OWN_TEST])
def test_a_right_completion_gets_the_full_reward(completion: str) -> None:
    assert (rewarded(completion).tier, rewarded(completion).value) == (Tier.PASSED, 1.0)


def test_a_truncated_completion_never_gets_the_full_reward() -> None:
    right, loop = rewarded(RIGHT, stopped=False), rewarded("fn fn fn fn", stopped=False)

    assert right.tier is Tier.TESTS
    assert right.value == pytest.approx(0.4)
    assert loop.value == pytest.approx(-0.1)
    assert "it was cut off" in loop.why


def test_counts_tests_whose_results_are_given_away() -> None:
    asked = task()
    lines = TESTS.splitlines()
    flat = replace(asked, tests="\n".join(line for line in lines if line.endswith("is 0) }")))
    stated = replace(asked, tests="\n".join(line for line in lines if "(-4)" in line or "(5)" in line))

    assert num_given_away(asked) == 4
    assert is_telling(asked)
    assert (num_given_away(flat), is_telling(flat)) == (4, False)
    assert (num_given_away(stated), is_telling(stated)) == (2, False)
    assert rewarded(RIGHT, to=flat).tier is rewarded(f"{_HEAD}{{\n    return 0\n}}\n", to=flat).tier is Tier.RESOLVES


def test_tests_in_other_forms_are_not_given_away() -> None:
    forms = "@test fn a() { assert(twice_or_zero(1) > 1) }\n@forall fn b(n: int) { assert(twice_or_zero(n) >= 0) }\n"

    assert num_given_away(replace(task(), tests=forms)) == 0


def test_rows_of_one_prompt_are_one_task() -> None:
    from mens_pipeline.evaluation.tasks import training_tasks  # noqa: PLC0415 - beside its use

    rows = [pair(), pair(1), pair().model_copy(update={"tests": None}), pair()]

    assert [row.prompt for _, row in training_tasks(rows).values()] == [rows[0].prompt, rows[1].prompt]
