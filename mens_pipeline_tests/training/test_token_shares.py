"""Shares of kinds of rows in the shown tokens, wherever a run ends."""

from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.corpus.schema.records import HoleKind, InfillContext, TrainingPair
from mens_pipeline.models.adapter import ShownKind
from mens_pipeline.models.card import format_kinds
from mens_pipeline.settings import PRESETS
from mens_pipeline.training.examples import Examples, format_too_long
from mens_pipeline.training.plan import MOST_PASSES, BatchPlan, build_columns, compute_shares
from mens_pipeline.training.presets import load_named
from mens_pipeline.training.recipe import FROM_USERS, Recipe
from mens_pipeline_tests.training.encoded import Row, batches_of, plan_of
from mens_pipeline_tests.training.runs import pairs, prepare_fast, train_here

_CHECKED = settings(max_examples=60, deadline=None, derandomize=True)
_SIZES = {"max_length": 256, "max_tokens_per_batch": 1024, "per_device_train_batch_size": 64, "num_train_epochs": 1}
_SIZES |= {"gradient_accumulation_steps": 1}


def _rows(seed: int = 0, **counts: int) -> list[Row]:
    """Make rows of each kind, with other lengths for each kind."""
    random = Random(seed)  # noqa: S311 - reproducible rows, no secret
    rows = []
    for number, (kind, count) in enumerate(counts.items()):
        for _ in range(count):
            length = random.randint(20 + 40 * number, 100 + 50 * number)
            category = random.choice(("function", "function", "table", "actor"))
            rows.append(Row(length, random.randint(1, 9), category, kind))
    random.shuffle(rows)
    return rows


def _tokens(rows: list[Row], batch: tuple[int, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in batch:
        counts[rows[row].kind] += len(rows[row])
    return counts


def _shares(rows: list[Row], plan: BatchPlan) -> dict[str, float]:
    shown = sum((_tokens(rows, batch) for batch in plan.batches), Counter[str]())
    return {kind: count / shown.total() for kind, count in shown.items()}


def _count(rows: list[Row], wanted: dict[str, float]) -> list[tuple[str, float, int]]:
    counts = Counter(row.kind for row in rows)
    return [(kind, share, counts[kind]) for kind, share in wanted.items()]


# Training in the same process sets subnormal numbers to zero.
_NAMED = st.dictionaries(
    st.sampled_from(("task", "repair", "raw")), st.floats(0, 0.33, allow_subnormal=False), max_size=3
)


@pytest.mark.nightly
@given(st.tuples(*[st.integers(150, 900)] * 4), _NAMED, st.integers(0, 99), st.booleans())
@_CHECKED
def test_every_beginning_of_a_run_has_the_shares(
    counts: tuple[int, ...],
    named: dict[str, float],
    seed: int,
    curriculum: bool,  # noqa: FBT001 - drawn
) -> None:
    """Up to the tokens of a window, and unless a kind was shown as often as it may be."""
    rows = _rows(seed, **dict(zip(("vox_codegen", "task", "repair", "raw"), counts, strict=True)))
    kinds = sorted({row.kind for row in rows})
    named = named or {"task": 0.3}
    recipe = Recipe(
        **_SIZES,
        token_shares=named,
        seed=seed,
        curriculum=curriculum,
        curriculum_max_difficulty=(9,),
        category_alpha=0.6,
    )
    plan = plan_of(rows, recipe)
    num_tokens = {kind: sum(len(row) for row in rows if row.kind == kind) for kind in kinds}
    wanted = compute_shares(num_tokens, named)
    whole = sum(num_tokens.values())
    is_bounded = any(share * whole > MOST_PASSES * num_tokens[kind] for kind, share in wanted.items())
    mean = 1 / sum(share / (num_tokens[kind] / number) for kind, share, number in _count(rows, wanted) if share)
    window = 400 * mean
    beginnings = list(accumulate((_tokens(rows, batch) for batch in plan.batches), lambda done, more: done + more))

    if not is_bounded:
        for beginning in beginnings:
            for kind in kinds:
                expected = wanted[kind] * beginning.total()
                assert abs(beginning[kind] - expected) <= wanted[kind] * window + 2 * max(map(len, rows))
        for kind in kinds:
            assert beginnings[-1][kind] == pytest.approx(wanted[kind] * whole, abs=max(map(len, rows)))


@pytest.mark.parametrize("num_steps", [20, 50, 80, 118, 150])
def test_a_short_run_has_the_shares_of_a_long_one(num_steps: int) -> None:
    """In the sizes of `cpu_demo`: within three points of every share from 50 steps on, five before."""
    rows = _rows(vox_codegen=1500, task=600, template=200, repair=150, raw=60)
    named = {"task": 0.45, "raw": 0.1, "repair": 0.05}
    plan = plan_of(rows, Recipe(**_SIZES, token_shares=named, max_steps=num_steps))
    found = _shares(rows, plan)

    assert plan.num_steps == num_steps
    for kind, share in named.items():
        assert found[kind] == pytest.approx(share, abs=0.03 if num_steps >= 50 else 0.05)
    assert sum(found.values()) - sum(found[kind] for kind in named) == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("at_once", [1024, 2048, 8192])
def test_micro_batches_have_little_padding(at_once: int) -> None:
    """Windows hold enough rows of similar length for micro-batches of any size, which are nearly full."""
    rows = _rows(vox_codegen=1500, task=600, repair=150)
    sizes = _SIZES | {"max_tokens_per_batch": at_once, "per_device_train_batch_size": 256}
    plan = plan_of(rows, Recipe(**sizes, token_shares={"task": 0.45}))
    shown = sum(len(rows[row]) for batch in plan.batches for row in batch)
    padded = sum(len(batch) * max(len(rows[row]) for row in batch) for batch in plan.batches)

    assert shown / padded > 0.95
    assert padded / len(plan.batches) > 0.9 * at_once * 0.95


def test_a_small_kind_repeats_up_to_a_limit() -> None:
    """Each row comes as often as the others of its kind, at most four times in an epoch."""
    rows = _rows(vox_codegen=800, task=40, raw=4)
    plan = plan_of(rows, Recipe(**_SIZES, token_shares={"task": 0.25, "raw": 0.3}))
    counts = Counter(row for batch in plan.batches for row in batch)
    task = [counts[row] for row, example in enumerate(rows) if example.kind == "task"]
    raw = [counts[row] for row, example in enumerate(rows) if example.kind == "raw"]

    assert max(task) - min(task) <= 1 < min(task)
    assert set(raw) == {MOST_PASSES}


def test_the_next_epoch_shows_rows_that_were_left_out() -> None:
    rows = _rows(vox_codegen=300, task=300)
    num_tokens = {kind: sum(len(row) for row in rows if row.kind == kind) for kind in ("task", "vox_codegen")}
    half = num_tokens["vox_codegen"] / sum(num_tokens.values()) / 2
    plan = plan_of(rows, Recipe(**{**_SIZES, "num_train_epochs": 2}, token_shares={"vox_codegen": half}))
    counts = Counter(row for batch in plan.batches for row in batch if rows[row].kind == "vox_codegen")

    assert len(counts) >= 298
    assert max(counts.values()) <= 2
    assert sum(counts.values()) == pytest.approx(300, abs=2)


def test_easy_rows_of_every_kind_come_first_in_a_curriculum() -> None:
    rows = _rows(vox_codegen=1500, task=600)
    recipe = Recipe(**_SIZES, token_shares={"task": 0.5}, curriculum=True, curriculum_max_difficulty=(9,))
    plan = plan_of(rows, recipe)
    for kind in ("vox_codegen", "task"):
        shown = [rows[row].difficulty for batch in plan.batches for row in batch if rows[row].kind == kind]
        quarters = [sum(shown[n * len(shown) // 4 :][: len(shown) // 4]) for n in range(4)]
        assert all(before < after for before, after in pairwise(quarters))


@pytest.mark.parametrize("seed", range(20))
def test_shows_the_only_easy_row_of_a_kind_with_a_weight_below_one(seed: int) -> None:
    hard = [Row(50, 9, "function", "task") for _ in range(400)]
    rows = [*hard, Row(50, 1, "function", "task"), Row(50, 9, "actor", "task")]
    rows += [Row(50, 1, "table", "vox_codegen") for _ in range(100)]
    options = {"token_shares": {"task": 0.5}, "curriculum": True, "curriculum_max_difficulty": (3,)}
    plan = plan_of(rows, Recipe(**_SIZES, **options, category_alpha=0.5, seed=seed))

    assert 400 in {row for batch in plan.batches for row in batch}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, {"a": 0.3, "b": 0.1, "c": 0.6}),
        ({"a": 0.5}, {"a": 0.5, "b": 0.5 / 7, "c": 0.5 * 6 / 7}),
        ({"a": 0.5, "missing": 0.2}, {"a": 0.625, "b": 0.375 / 7, "c": 0.375 * 6 / 7}),
        ({"a": 0.5, "b": 0.5}, {"a": 0.2, "b": 0.2, "c": 0.6}),
        ({"a": 0.7, "b": 0.1, "missing": 0.2}, {"a": 0.35, "b": 0.05, "c": 0.6}),
        ({"missing": 1.0}, {"a": 0.3, "b": 0.1, "c": 0.6}),
        ({"a": 0.5, "b": 0.5, "c": 0}, {"a": 0.5, "b": 0.5, "c": 0}),
        ({"c": 0}, {"a": 0.75, "b": 0.25, "c": 0}),
        ({"a": 0.2, "b": 0.2, "c": 0.1}, {"a": 0.4, "b": 0.4, "c": 0.2}),
        ({"a": 0, "b": 0, "c": 0}, {"a": 0, "b": 0, "c": 0}),
    ],
)
def test_kinds_without_a_share_divide_the_rest_by_size(named: dict[str, float], expected: dict[str, float]) -> None:
    """The shares of missing kinds go to all others in proportion.

    If there is no rest, these kinds have the share of their tokens among all.
    """
    assert compute_shares({"a": 300, "b": 100, "c": 600}, named) == pytest.approx(expected)


@pytest.mark.parametrize("kind", sorted(FROM_USERS))
@pytest.mark.parametrize(
    ("tokens", "share"),
    [(2, 4 * 0.002), (100, 4 * 0.1), (400, 0.5), (900, 0.9)],
    ids=["few", "more", "as many as programs", "most"],
)
def test_rows_from_users_have_four_times_their_share(kind: str, tokens: int, share: float) -> None:
    """Up to the share of programs of the workspace; the named kinds get the rest."""
    named = {"vox_codegen": 0.5, "task": 0.5}
    found = compute_shares({kind: tokens, "vox_codegen": 500 - tokens // 2, "task": 500 - tokens // 2}, named)

    assert found[kind] == pytest.approx(share / (share + 1 - tokens / 1000))


@pytest.mark.parametrize("num_steps", [162, 400])
@pytest.mark.parametrize("kind", sorted(FROM_USERS))
def test_a_short_run_shows_a_single_row_from_a_user(kind: str, num_steps: int) -> None:
    """Among the rows of the seed data, with the shares of `cpu_demo`, on a slow machine as well."""
    named = load_named(PRESETS)["cpu_demo"].values
    recipe = Recipe(**{**_SIZES, **named, "max_steps": num_steps})
    rows = [*_rows(task=1170, observed=700, vox_codegen=1200, template=600, infill=1600), Row(60, kind=kind)]
    counts = Counter(row for batch in plan_of(rows, recipe).batches for row in batch)

    assert sum(len(row) for row in rows) > 1.7 * 400 * 1024
    assert 0 < counts[len(rows) - 1] <= MOST_PASSES


@pytest.mark.seed_row(11, 52, 60)
@pytest.mark.slow
def test_the_default_shares_show_a_row_of_every_kind(tiny_base: Path, tmp_path: Path) -> None:
    """Of each source of rows, beside programs of the workspace; no note names a kind without rows."""
    recipe = load_named(PRESETS)["cpu_demo"].values["token_shares"]
    extra = [
        TrainingPair(prompt=f"Do {family}.", response="fn f() { }", lane=lane, task_family=family, tests=tests)
        for family, lane, tests in (
            *((family, "vox_codegen", None) for family in ("task", "template", "combination", "evolved", "telemetry")),
            *((family, "vox_codegen", None) for family in ("feedback", "docs_code", "error_correction")),
            *((family, "vox_tooling", None) for family in ("tool_trace", "workflow_trace")),
            *((family, "vox_speech", None) for family in ("asr_refine", "speech_to_code")),
            ("docs_qa", "vox_docs_qa", None),
            ("vox_codegen", "vox_codegen", "@test fn t() { f() }"),
        )
    ]
    hole = InfillContext(kind=HoleKind.LINE, suffix="\n")
    at_cursor: dict[str, Any] = {"prompt": "let x = ", "response": "1", "infill": hole}
    extra += [TrainingPair(**at_cursor, task_family=family) for family in ("infill", "accepted")]
    run = prepare_fast(tiny_base, tmp_path, rows=[*pairs(60), *extra], token_shares=recipe, infill_share=0.2)
    shown = {kind: counts["rows_shown"] for kind, counts in train_here(run)["kinds"].items()}

    assert shown.keys() == {*(row.task_family for row in extra), "observed"}
    assert [kind for kind, count in shown.items() if not count] == []
    assert [note for note in run.preflight["notes"] if "no row" in note] == []


def test_the_account_by_kind_adds_up() -> None:
    """The kind with the most tokens comes first in the line for people."""
    columns = build_columns(Row(length, kind=kind) for kind, length in (("a", 10), ("a", 30), ("b", 20)))
    none: Any = ()
    examples = Examples(train=none, columns=columns, too_long={"a": (1, 60), "c": (2, 900)}, seen=6)
    kinds = examples.kinds(batches_of((0, 2), (2,)))

    figures = ("rows", "tokens", "rows_too_long", "tokens_too_long", "rows_shown", "tokens_shown", "share", "epochs")
    expected = {
        "b": (1, 20, 0, 0, 2, 40, 0.8, 2.0),
        "a": (2, 40, 1, 60, 1, 10, 0.2, 0.25),
        "c": (0, 0, 2, 900, 0, 0, 0.0, 0.0),
    }

    assert kinds == {name: dict(zip(figures, row, strict=True)) for name, row in expected.items()}
    assert format_kinds({name: ShownKind.model_validate(kind) for name, kind in kinds.items()}) == (
        "b 80 % (40 tokens, 2.0 epochs), a 20 % (10 tokens, 0.2 epochs), c 0 % (0 tokens, 0.0 epochs)"
    )
    assert format_too_long(kinds) == "a 1 rows (60 % of its tokens), c 2 rows (100 % of its tokens)"
