"""Estimates of the time of a run, and how its minutes are spent."""

import re
from dataclasses import replace
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.probe import Rates
from mens_pipeline.models.find_base import base_by_name
from mens_pipeline.orchestration.forecast import (
    GATE_SECONDS,
    GPUS,
    Dial,
    Rows,
    SuiteCounts,
    _note_size,
    estimate_presets,
    evaluation_seconds,
    turn_dial,
)
from mens_pipeline.settings import PRESETS, load_settings
from mens_pipeline.training.plan import MOST_PASSES
from mens_pipeline.training.presets import load_named
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.evaluation.scored import task
from mens_pipeline_tests.every import every

_RATES = Rates(train_token=1 / 500, train_start=15, generate_start=15, read_token=1 / 900, write_token=0.006)
_ROWS = Rows(400, 360_000)
_SUITE = SuiteCounts((100, 149), 86, 0.43, EvaluationConfig())
_RECIPE = Recipe(max_minutes=18, max_steps=400, num_train_epochs=1)


def _turn(minutes: float, spent: float = 60.0, **changes: Any) -> Dial:
    given: dict[str, Any] = {"rates": _RATES, "rows": _ROWS, "recipe": _RECIPE, "suite": _SUITE}
    return turn_dial(minutes, spent, **{**given, **changes})


def _seconds(dial: Dial, rates: Rates = _RATES) -> float:
    rows = Rows(dial.max_steps, dial.max_steps * _ROWS.step)
    training, evaluation = rows.seconds(rates, dial.max_minutes), evaluation_seconds(rates, _SUITE, dial.suite)
    return 60 + training + evaluation + GATE_SECONDS


@pytest.mark.parametrize("minutes", [5, 20, 60, 480])
def test_minutes_are_used_and_not_exceeded(minutes: float) -> None:
    assert _seconds(_turn(minutes)) == pytest.approx(60 * minutes, rel=0.02)


def test_more_minutes_train_and_evaluate_more() -> None:
    short, middle, long = (_turn(minutes) for minutes in (5, 20, 480))

    assert short.suite.heldout_tasks < 100
    assert short.suite.infill_holes == short.suite.family_tasks == short.suite.few_shot_tasks == 0
    assert middle.suite.heldout_tasks == 100
    assert 0 < middle.suite.infill_holes <= 500
    assert (long.suite.heldout_tasks, long.suite.benchmark_tasks, long.suite.infill_holes) == (149, 86, 500)
    assert short.max_minutes < middle.max_minutes < long.max_minutes
    assert short.max_steps < middle.max_steps < long.max_steps
    assert (short.num_train_epochs, long.num_train_epochs) == (1, MOST_PASSES)


def test_evaluation_takes_at_most_half_of_the_rest() -> None:
    dial = _turn(10)

    assert evaluation_seconds(_RATES, _SUITE, dial.suite) <= 60 * dial.max_minutes * 1.02


def test_a_slow_machine_trains_and_evaluates_less_in_the_same_time() -> None:
    """A machine of half the speed; to a probe, a busy machine is the same."""
    slow = Rates(**{name: 2 * value for name, value in _RATES.model_dump().items()})
    dial = _turn(20, rates=slow)

    assert dial.max_steps < _turn(20).max_steps
    assert _seconds(dial, slow) == pytest.approx(1200, rel=0.02)


@every(
    "case",
    [
        (60, 12, 60, r"^$"),
        (60, 12, 20, r"will refuse \(policy ci\): 20 held-out prompts from 4 files, required 50 from 10; use more"),
        (60, 3, 60, r"60 held-out prompts from 3 files, required 50 from 10; .*, or add programs$"),
        (60, 3, None, r"60 held-out prompts from 3 files"),
        (40, 20, 10, r"40 held-out prompts from 20 files.* add programs$"),
    ],
)
def test_a_plan_warns_of_a_suite_that_the_gate_will_refuse(case: tuple[int, int, int | None, str]) -> None:
    num_tasks, num_files, asked, said = case
    tasks = [task(n, file=f"{n % num_files}.vox") for n in range(num_tasks)]
    suite = SuiteCounts((num_tasks, num_tasks), 0, 0.0, EvaluationConfig(), tasks=tuple(tasks))
    size = suite.take_share(1.0).model_copy(update={"heldout_tasks": asked})
    dial = None if asked is None else Dial(max_minutes=1, max_steps=1, num_train_epochs=1, suite=size)

    assert re.search(said, _note_size(suite, dial, load_settings()))


def test_too_few_minutes_are_refused_with_the_minimum() -> None:
    with pytest.raises(RefusedError, match=r"--minutes 1: .* need (\d+) min\. Use --minutes \1\.") as refused:
        _turn(1)
    least = int(str(refused.value).rsplit(" ", 1)[1].rstrip("."))

    assert _turn(least).max_steps >= 3


def test_a_champion_is_evaluated_as_well() -> None:
    size = _SUITE.take_share(2.0)
    alone, beside = (evaluation_seconds(_RATES, _SUITE._replace(has_champion=there), size) for there in (False, True))

    assert beside > alone + _RATES.generate_start


def test_a_budget_limits_the_announced_steps() -> None:
    assert _ROWS.steps_within(_RATES, 6) == 200
    assert _ROWS.seconds(_RATES, 6) == pytest.approx(15 + 360)
    assert _ROWS.steps_within(_RATES, None) == 400


def test_every_preset_for_a_gpu_is_estimated() -> None:
    base, known = base_by_name("Qwen/Qwen3.5-4B"), load_named(PRESETS)
    presets = {**known, "larger": replace(known["h200"], min_vram_gb=142)}  # more than any GPU has
    found, slow = (
        {one.preset: one for one in estimate_presets(presets, base, 850_000, _SUITE, has_kernels=has_kernels)}
        for has_kernels in (True, False)
    )
    seconds = {name: one.training + one.evaluation for name, one in found.items()}
    memory = {gpu.name: 1024 * gpu.memory_gb for gpu in GPUS}

    assert [*found] == [name for name, preset in known.items() if preset.min_vram_gb is not None]
    assert {found[name].rows for name in ("safe", "h200")} == {Rows(311, 311 * 8192)}
    assert 0 < seconds["h100"] < seconds["qwen_a100_80g"] < seconds["qwen_4080_16g"]
    for one in found.values():
        assert seconds[one.preset] > 0
        assert one.memory_mb < memory[one.gpu]
    for name in ("qwen_4080_16g", "h200"):
        assert 1.4 < slow[name].training / found[name].training < 2
        assert found[name].memory_mb < slow[name].memory_mb < memory[slow[name].gpu or ""]
