"""The order of rows in a run."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mens_pipeline.training.examples import plan_examples
from mens_pipeline.training.plan import (
    MOST_PASSES,
    BatchPlan,
    build_columns,
    category_weights,
    find_hardest,
    plan_run,
    shuffle,
)
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.training.encoded import Row, batches_of, continued_at, plan_of

_ROWS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 10)), max_size=40)
_SIZES: dict[str, st.SearchStrategy[Any]] = {
    "max_length": st.just(16),
    "per_device_train_batch_size": st.integers(1, 9),
    "max_tokens_per_batch": st.none() | st.integers(16, 900),
    "tokens_per_step": st.none() | st.integers(16, 2000),
    "gradient_accumulation_steps": st.none() | st.integers(1, 5),
    "devices": st.integers(1, 3),
    "num_train_epochs": st.integers(1, 4),
    "seed": st.integers(0, 99),
}
_RECIPES = st.builds(Recipe, **_SIZES)
_CURRICULA = st.builds(
    Recipe,
    **_SIZES,
    curriculum=st.just(value=True),
    curriculum_max_difficulty=st.lists(st.integers(1, 10), min_size=1, max_size=4).map(tuple),
)
_CHECKED = settings(max_examples=150, deadline=None, derandomize=True)


def _plan(rows: list[tuple[int, int]], recipe: Recipe) -> BatchPlan:
    return plan_of([Row(length, difficulty) for length, difficulty in rows], recipe)


def _epochs(rows: list[tuple[int, int]], recipe: Recipe, plan: BatchPlan) -> list[list[tuple[int, ...]]]:
    remaining, epochs = list(plan.batches), []
    for skipped in plan.num_skipped:
        batches: list[tuple[int, ...]] = []
        while sum(map(len, batches)) < len(rows) - skipped:
            batches.append(remaining.pop(0))
        epochs.append(batches)
    assert not remaining
    assert len(epochs) == recipe.num_train_epochs
    return epochs


@given(_ROWS, _RECIPES | _CURRICULA)
@_CHECKED
def test_every_row_comes_once_in_every_epoch(rows: list[tuple[int, int]], recipe: Recipe) -> None:
    """In a curriculum only those that are easy enough, from easy to hard."""
    plan = _plan(rows, recipe)

    for epoch, batches in enumerate(_epochs(rows, recipe, plan)):
        shown = [row for batch in batches for row in batch]
        hardest = find_hardest(epoch, recipe) if recipe.curriculum else 10
        assert not recipe.curriculum or all(rows[a][1] <= rows[b][1] for a, b in pairwise(shown))
        assert sorted(shown) == [row for row, (_, difficulty) in enumerate(rows) if difficulty <= hardest]
        assert plan.num_skipped[epoch] == sum(difficulty > hardest for _, difficulty in rows)


@given(_ROWS, _RECIPES | _CURRICULA, st.integers(1, 30))
@_CHECKED
def test_no_micro_batch_is_larger_than_allowed(rows: list[tuple[int, int]], recipe: Recipe, max_steps: int) -> None:
    """Limits hold for rows and, with padding, for tokens of device and step; a single row may exceed them.

    The accumulation decides the number of updates, and the same arguments give the same order.
    """
    plan, accumulated = _plan(rows, recipe), recipe.accumulation
    cut = _plan(rows, recipe.model_copy(update={"max_steps": max_steps}))
    assert plan == _plan(rows, recipe.model_copy())
    assert (plan.num_steps - 1) * accumulated < len(plan.batches) <= plan.num_steps * accumulated
    assert cut.num_steps == min(plan.num_steps, max_steps)
    assert cut.batches == plan.batches[: max_steps * accumulated]
    limits = [limit for limit in (recipe.max_tokens_per_batch, recipe.tokens_at_once) if limit is not None]
    for batch in plan.batches:
        padded = len(batch) * max(rows[row][0] for row in batch)
        assert 1 <= len(batch) <= recipe.per_device_train_batch_size
        assert all(padded <= limit for limit in limits) or len(batch) == 1


def test_epochs_and_seeds_differ_in_their_order() -> None:
    rows = [(10, 5)] * 40
    recipe = Recipe(num_train_epochs=2, per_device_train_batch_size=4)
    first, second = _epochs(rows, recipe, _plan(rows, recipe))
    (other, _) = _epochs(rows, recipe, _plan(rows, recipe.model_copy(update={"seed": 7})))

    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert first != other


def test_the_order_is_the_same_on_every_machine() -> None:
    recipe = Recipe(num_train_epochs=2, per_device_train_batch_size=3, gradient_accumulation_steps=2)
    plan = _plan([(10, 5)] * 7, recipe)

    assert plan.batches == batches_of((4, 2, 1), (0,), (6, 3, 5), (2, 3, 4), (0, 6, 5), (1,))
    assert (plan.num_steps, plan.num_skipped) == (3, (0, 0))


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 255, 256, 257, 1000])
def test_shuffles_numbers_as_python_does(number: int) -> None:
    ours, theirs = (Random("1:2") for _ in range(2))  # noqa: S311 - reproducible numbers, no secret
    rows, listed = np.arange(number, dtype=np.uint32), list(range(number))
    shuffle(rows, ours)
    theirs.shuffle(listed)

    assert rows.tolist() == listed
    assert ours.random() == theirs.random()


def test_a_plan_is_cached_beside_the_rows(tmp_path: Path) -> None:
    """Another recipe, other rows and a damaged file need a new plan."""
    rows = build_columns([Row(length, difficulty) for length in range(1, 40) for difficulty in (2, 5)])
    recipe = Recipe(num_train_epochs=2, max_steps=9, max_length=64)
    found = plan_examples(tmp_path, rows, recipe)
    (path,) = tmp_path.glob("*.arrow")
    made = path.stat().st_mtime_ns
    again = plan_examples(tmp_path, rows, recipe.model_copy(update={"quantization": "bf16"}))
    files = [len(list(tmp_path.glob("*.arrow")))]
    for other in (recipe.model_copy(update={"seed": 7}), recipe.model_copy(update={"max_steps": None})):
        assert plan_examples(tmp_path, rows, other) == plan_run(rows, other)
        files.append(len(list(tmp_path.glob("*.arrow"))))
    fewer = build_columns([Row(3)] * 5)

    assert found == again == plan_run(rows, recipe)
    assert found.num_steps == 9
    assert path.stat().st_mtime_ns == made
    assert files == [1, 2, 3]
    assert plan_examples(tmp_path, fewer, recipe) == plan_run(fewer, recipe)
    path.write_bytes(path.read_bytes()[:200])
    assert plan_examples(tmp_path, rows, recipe) == plan_run(rows, recipe)


def test_a_token_budget_groups_rows_of_similar_length() -> None:
    rows = [(length, 5) for length in range(1, 129)]
    recipe = Recipe(max_length=128, max_tokens_per_batch=256, per_device_train_batch_size=64, num_train_epochs=1)
    batches = _plan(rows, recipe).batches
    longest = [max(rows[row][0] for row in batch) for batch in batches]
    padded = sum(length * len(batch) for length, batch in zip(longest, batches, strict=True))

    assert padded < 1.1 * sum(length for length, _ in rows)
    assert longest != sorted(longest)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (4, None, 4)),
        ({"gradient_accumulation_steps": 1}, (1, None, 4)),
        ({"gradient_accumulation_steps": 1, "devices": 2}, (2, None, 2)),
        ({"devices": 8}, (8, None, 2)),
        ({"max_tokens_per_batch": 1024}, (4, 1024, 4)),
        ({"tokens_per_step": 8192}, (1, 8192, 4)),
        ({"tokens_per_step": 8192, "max_tokens_per_batch": 2048}, (4, 2048, 4)),
        ({"tokens_per_step": 8192, "max_tokens_per_batch": 2048, "devices": 3}, (4, 2048, 4)),
        ({"tokens_per_step": 8192, "max_tokens_per_batch": 2048, "devices": 8}, (8, 1024, 2)),
        ({"tokens_per_step": 8192, "max_tokens_per_batch": 32768}, (1, 8192, 4)),
        ({"tokens_per_step": 8192, "max_tokens_per_batch": 3000}, (3, 2731, 4)),
        (
            {"tokens_per_step": 8192, "max_tokens_per_batch": 2048, "gradient_accumulation_steps": 2, "devices": 4},
            (4, 1024, 2),
        ),
    ],
)
def test_a_step_is_divided_among_micro_batches_and_devices(
    fields: dict[str, int], expected: tuple[int, int | None, int]
) -> None:
    """Into as many as fit a device, at least one for each; an explicit accumulation wins over the tokens."""
    recipe = Recipe.model_validate(fields)

    assert (recipe.accumulation, recipe.tokens_at_once, recipe.rows_at_once) == expected


def test_a_token_budget_keeps_the_order_of_a_curriculum() -> None:
    rows = [(50, 2), (10, 9), (10, 2), (50, 9)]
    recipe = Recipe(
        max_length=64, max_tokens_per_batch=64, curriculum=True, curriculum_max_difficulty=(10,), num_train_epochs=1
    )

    assert _plan(rows, recipe).batches == batches_of((2,), (0,), (1,), (3,))


@pytest.mark.parametrize(("epochs", "hardest"), [(1, [9]), (2, [6, 9]), (3, [3, 6, 9]), (4, [3, 6, 9, 9])])
def test_a_run_of_few_epochs_still_reaches_the_last_stage(epochs: int, hardest: list[int]) -> None:
    """The last stage holds for all later epochs; without a curriculum the difficulty of the recipe holds."""
    recipe = Recipe(curriculum=True, curriculum_max_difficulty=(3, 6, 9), num_train_epochs=epochs)

    assert [find_hardest(epoch, recipe) for epoch in range(epochs)] == hardest
    assert find_hardest(50, recipe) == 9
    assert find_hardest(0, Recipe(max_difficulty=8, curriculum_max_difficulty=(3, 6, 9))) == 8


def test_micro_batches_have_rows_of_similar_length() -> None:
    """Also without a budget of tokens: nothing is padded here."""
    rows = [(length, 1) for length in (5, 90, 5, 90, 5, 90, 5, 90)]
    plan = _plan(rows, Recipe(per_device_train_batch_size=4, num_train_epochs=1))

    assert [{rows[row][0] for row in batch} for batch in plan.batches] in ([{5}, {90}], [{90}, {5}])


def test_no_rows_make_no_updates() -> None:
    curriculum = Recipe(curriculum=True, curriculum_max_difficulty=(1,), num_train_epochs=2)

    assert _plan([], Recipe(num_train_epochs=2)) == BatchPlan(batches_of(), 0, (0, 0))
    assert _plan([(9, 5), (9, 6)], curriculum) == BatchPlan(batches_of(), 0, (2, 2))


def test_a_curriculum_shows_easy_rows_in_more_epochs() -> None:
    recipe = Recipe(curriculum=True, curriculum_max_difficulty=(3, 6, 9), num_train_epochs=3)
    plan = _plan([(9, 2), (9, 5), (9, 8), (9, 10)], recipe)

    assert Counter(row for batch in plan.batches for row in batch) == {0: 3, 1: 2, 2: 1}
    assert plan.num_skipped == (3, 2, 1)


def test_rare_categories_gain_the_share_that_frequent_ones_lose() -> None:
    """With 90 rows of one and 10 of another, the square root gives shares of three to one, and zero equal ones."""
    rows = [Row(1, 1, "function" if row < 90 else "form") for row in range(100)]
    recipe = Recipe(category_alpha=0.5, num_train_epochs=200, per_device_train_batch_size=1)

    shown = Counter(rows[row].category for batch in plan_of(rows, recipe).batches for row in batch)

    assert shown["function"] / shown["form"] == pytest.approx(3, rel=0.02)
    assert shown.total() == pytest.approx(200 * 100, rel=0.01)
    assert category_weights({"a": 8, "b": 2}, 0.0) == pytest.approx({"a": 0.625, "b": 2.5})


_KINDS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 10), st.sampled_from("abc")), min_size=1, max_size=40)


@given(
    _KINDS,
    _RECIPES | _CURRICULA,
    st.floats(0, 0.99, allow_subnormal=False),
    st.sampled_from([{}, {"a": 0.5, "b": 0.2}]),
)
@_CHECKED
def test_a_continued_run_shows_the_rows_of_an_uninterrupted_one(
    rows: list[tuple[int, int, str]], recipe: Recipe, part: float, shares: dict[str, float]
) -> None:
    recipe = recipe.model_copy(update={"token_shares": shares})
    examples = [Row(length, hard, kind=kind) for length, hard, kind in rows]
    whole = plan_of(examples, recipe)
    num_shown = int(part * len(whole.batches))
    assume(whole.batches)
    rest = plan_of(examples, recipe.model_copy(update={"max_steps": 1}), continued_at(num_shown))

    assert [*whole.batches[:num_shown], *rest.batches][: len(whole.batches)] == [*whole.batches]
    assert len(rest.num_skipped) == MOST_PASSES * recipe.num_train_epochs
    # A run that is one batch further shows the same rows.
    twice = plan_of(examples, recipe, continued_at(num_shown + 1))
    assert twice.batches[: len(rest.batches) - 1] == rest.batches[1:]
