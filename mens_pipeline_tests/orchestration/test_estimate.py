"""What a run will take, and what its minutes come to."""

from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.probe import Rates, estimated_rates
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.find_base import base_by_name
from mens_pipeline.orchestration.estimate import (
    CORPUS,
    EVALUATION,
    GATE,
    TRAINING,
    Dial,
    Rows,
    Suite,
    corpus_seconds,
    evaluation_seconds,
    price_presets,
    stages_of,
    turn_dial,
)
from mens_pipeline.settings import PRESETS
from mens_pipeline.training.plan import MOST_PASSES
from mens_pipeline.training.presets import load_named
from mens_pipeline.training.recipe import Recipe

_RATES = Rates(train_token=1 / 500, train_start=15, generate_start=15, read_token=1 / 900, write_token=0.006)
_ROWS = Rows(400, 360_000)
_SUITE = Suite((100, 149), 86, 0.43, EvaluationConfig())
_RECIPE = Recipe(max_minutes=18, max_steps=400, num_train_epochs=1)
_CPU = Device("cpu", "x86_64, 2 threads", None, has_bfloat16=True)
_BASE = base_by_name("HuggingFaceTB/SmolLM2-135M-Instruct")


def _turn(minutes: float, spent: float = 60.0, **changes: Any) -> Dial:
    given: dict[str, Any] = {"rates": _RATES, "rows": _ROWS, "recipe": _RECIPE, "suite": _SUITE}
    return turn_dial(minutes, spent, **{**given, **changes})


def _seconds(dial: Dial, rates: Rates = _RATES) -> float:
    """What a dial comes to, as `stages_of` adds it up, with sixty seconds that are gone."""
    recipe = Recipe(**dial.model_dump(exclude={"suite"}))
    rows = Rows(dial.max_steps, dial.max_steps * _ROWS.step)
    stages = stages_of(60.0, rates, rows, (recipe, _BASE, _CPU), (_SUITE, dial.suite), "measured")
    assert [stage.name for stage in stages] == [CORPUS, TRAINING, EVALUATION, GATE]
    return sum(stage.seconds for stage in stages)


@pytest.mark.parametrize("minutes", [5, 20, 60, 480])
def test_minutes_are_used_and_not_exceeded(minutes: float) -> None:
    """The parts of a plan add up to them, on a machine that is fast enough for all."""
    assert _seconds(_turn(minutes)) == pytest.approx(60 * minutes, rel=0.02)


def test_more_minutes_train_and_ask_more() -> None:
    """First what the gates judge by, then what stands beside it, last the reserve; never more than there is."""
    short, middle, long = (_turn(minutes) for minutes in (5, 20, 480))

    assert short.suite.heldout_tasks < 100
    assert short.suite.infill_holes == short.suite.family_tasks == short.suite.few_shot_tasks == 0
    assert middle.suite.heldout_tasks == 100
    assert 0 < middle.suite.infill_holes <= 500
    assert (long.suite.heldout_tasks, long.suite.benchmark_tasks, long.suite.infill_holes) == (149, 86, 500)
    assert short.max_minutes < middle.max_minutes < long.max_minutes
    assert short.max_steps < middle.max_steps < long.max_steps
    assert (short.num_train_epochs, long.num_train_epochs) == (1, MOST_PASSES)


def test_evaluation_takes_half_of_what_is_left_at_most() -> None:
    """Training gets the other half, where not all can be asked."""
    dial = _turn(10)

    assert evaluation_seconds(_RATES, _SUITE, dial.suite) <= 60 * dial.max_minutes * 1.02


def test_a_slow_machine_trains_and_asks_less_in_the_same_time() -> None:
    """A machine of half the speed, and one beside a busy loop, which is the same to a probe."""
    slow = Rates(**{name: 2 * value for name, value in _RATES.model_dump(exclude={"memory_mb"}).items()})
    dial = _turn(20, rates=slow)

    assert dial.max_steps < _turn(20).max_steps
    assert _seconds(dial, slow) == pytest.approx(1200, rel=0.02)


def test_what_evaluations_took_before_corrects_the_next_plan() -> None:
    """Here half as long again as was modelled: less is asked."""
    assert _turn(10, correction=1.5).suite.heldout_tasks < _turn(10).suite.heldout_tasks


def test_too_few_minutes_are_refused_with_how_many_it_takes() -> None:
    """Which then suffice."""
    with pytest.raises(RefusedError, match=r"--minutes 1: .* take (\d+) min here\. Ask for \1\.") as refused:
        _turn(1)
    least = int(str(refused.value).rsplit(" ", 1)[1].rstrip("."))

    assert _turn(least).max_steps >= 3


def test_a_champion_is_asked_as_well() -> None:
    """It costs a process and its completions."""
    size = _SUITE.take_share(2.0)
    alone, beside = (evaluation_seconds(_RATES, _SUITE._replace(has_champion=there), size) for there in (False, True))

    assert beside > alone + _RATES.generate_start


def test_a_budget_bounds_the_steps_that_are_announced() -> None:
    """As training itself will decide."""
    (_, training, _, _) = stages_of(
        60.0,
        _RATES,
        _ROWS,
        (Recipe(max_minutes=6), _BASE, _CPU),
        (_SUITE, _SUITE.take_share(2.0)),
        "measured",
    )

    assert training.does.startswith("200 of 400 steps, 180,000 tokens")
    assert training.seconds == pytest.approx(15 + 360)
    assert training.basis == "measured"


def test_every_preset_for_a_gpu_has_a_price() -> None:
    """A larger GPU is faster, with as many steps; what is needed fits its memory. Others have their steps alone."""
    base = base_by_name("Qwen/Qwen3.5-4B")
    found = {one.preset: one for one in price_presets(load_named(PRESETS), base, 850_000, _SUITE, 60)}
    seconds = {name: sum(stage.seconds for stage in one.stages) for name, one in found.items()}

    assert [*found] == [*load_named(PRESETS)]
    assert (found["smol"].rows, found["smol"].gpu) == (Rows(400, 409_600), None)
    assert {found[name].rows for name in ("safe", "h200", "distributed")} == {Rows(311, 311 * 8192)}
    assert 0 < seconds["h100"] < seconds["qwen_a100_80g"] < seconds["qwen_4080_16g"]
    for one in found.values():
        assert (one.gpu is None) == (one.stages == ())
        assert all(stage.basis == "estimated" for stage in one.stages)
        assert one.gpu is None or max(stage.memory_mb for stage in one.stages) < 1024 * one.gpu.memory_gb


def test_memory_of_a_cpu_is_what_runs_were_measured_to_take() -> None:
    """400 steps of `smol`: 3.6 to 5.4 GB, whether a probe of a few steps says 2.1 GB or nothing was measured."""
    recipe = Recipe.model_validate(load_named(PRESETS)["smol"].values)
    parts = (_SUITE, _SUITE.take_share(2.0))
    for rates in (_RATES, _RATES.model_copy(update={"memory_mb": 2100.0})):
        (_, training, *_) = stages_of(60.0, rates, _ROWS, (recipe, _BASE, _CPU), parts, "measured")
        assert 3600 <= training.memory_mb <= 5400


def test_arithmetic_is_near_what_was_measured_here() -> None:
    """SmolLM2 on two cores of an AMD EPYC: 799 GFLOP/s, 696 tokens/s of training (docs/results.md)."""
    assert 1 / estimated_rates(_BASE, 799).train_token == pytest.approx(696, rel=0.3)


def test_a_larger_workspace_takes_longer_and_cores_help() -> None:
    """The part that synthesis takes stays."""
    assert corpus_seconds(960_000, 1e6, 2) == pytest.approx(1.4 * corpus_seconds(480_000, 1e6, 2))
    assert corpus_seconds(480_000, 1e6, 8) == corpus_seconds(480_000, 1e6, 2) == corpus_seconds(480_000, 1e6, 1) / 2
