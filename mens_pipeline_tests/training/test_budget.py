"""Runs with a time budget on machines of simulated speed: the real trainer on the tiny base."""

import json
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import RESULT
from mens_pipeline.models.adapter import ADAPTER, TELEMETRY
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.step_plan import StepDecision, StepPlan
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.training.runs import prepare_fast, result_of, weights_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn about their own future changes
_TARGET = 24
_MINUTES = 0.6
_RECIPE: dict[str, Any] = {
    "per_device_train_batch_size": 1,
    "number": _TARGET,
    "lora_dropout": 0.1,
    "warmup_steps": 2,
    "lr_scheduler_type": "linear",
    "save_steps": 5,
}


class _Machine:
    """A clock that advances with each step of the trainer, by seconds that a test chooses."""

    def __init__(self, seconds_of: Callable[[int], float]) -> None:
        self.seconds_of = seconds_of
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _KilledError(Exception):
    """The process ends here."""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> _Machine:
    """A machine that takes a second for each step."""
    from mens_pipeline.training.sft import PlannedTrainer  # noqa: PLC0415 - loads the deep learning stack

    clock = _Machine(lambda _step: 1.0)
    step_of = PlannedTrainer.training_step

    def advance_clock(trainer: Any, *arguments: Any, **named: Any) -> Any:
        clock.now += clock.seconds_of(trainer.state.global_step + 1)
        return step_of(trainer, *arguments, **named)

    monkeypatch.setattr(PlannedTrainer, "training_step", advance_clock)
    return clock


def _train(run: PreparedRun, machine: _Machine, at: int | None = None, do: Callable[[], None] | None = None) -> bool:
    """Train; call `do` when the log reports the step `at`."""
    from mens_pipeline.training import train  # noqa: PLC0415 - loads the deep learning stack

    class Log(TelemetryLog):
        def write(self, event: str, payload: dict[str, Any]) -> None:
            super().write(event, payload)
            if do is not None and event == "step" and payload["step"] == at:
                do()

    with patch.object(train, "TelemetryLog", Log):
        return train.train(run.job, machine)


def _kill() -> None:
    raise _KilledError


def _rates(run: PreparedRun) -> list[float]:
    return [step["learning_rate"] for step in steps_of(run.job.run_dir / TELEMETRY)]


@pytest.mark.slow
def test_a_budget_changes_nothing_on_a_fast_machine(tiny_base: Path, tmp_path: Path, machine: _Machine) -> None:
    free, fast = (prepare_fast(tiny_base, tmp_path / str(m), max_minutes=m, **_RECIPE) for m in (None, _MINUTES))
    for run in (free, fast):
        assert _train(run, machine)

    assert weights_of(free) == weights_of(fast)
    assert result_of(fast)["plan"] == {"target_steps": 24, "budget_seconds": 36, "decisions": []}
    assert result_of(fast)["num_steps"] == _TARGET


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds_of", "num_steps"),
    [(lambda _step: 3.0, 12), (lambda step: 1.5 if step <= 12 else 3.0, 18), (lambda step: 3.0 if step < 6 else 1, 24)],
    ids=["slow", "slower in mid-run", "faster in mid-run"],
)
def test_the_rate_reaches_zero_at_the_end_of_the_budget(
    tiny_base: Path, tmp_path: Path, machine: _Machine, seconds_of: Callable[[int], float], num_steps: int
) -> None:
    """As many steps as fit into 36 s, within the tolerance; the log and the result contain every decision."""
    machine.seconds_of = seconds_of
    run = prepare_fast(tiny_base, tmp_path, max_minutes=_MINUTES, **_RECIPE)
    assert _train(run, machine)
    result, rates = result_of(run), _rates(run)
    lines = [json.loads(line) for line in (run.job.run_dir / TELEMETRY).read_text().splitlines()]
    decisions = result["plan"]["decisions"]
    last = decisions[-1]
    details = [line["payload"] for line in lines if line["event"] == "plan" and line["payload"]["reason"]]

    assert result["num_steps"] == len(rates) == last["num_steps"]
    assert abs(result["num_steps"] - num_steps) <= 1
    assert result["seconds"] <= 1.03 * 36 + 3
    assert all(step["seconds"] + step["eta_seconds"] <= 1.03 * 36 + 3 for step in steps_of(run.job.run_dir / TELEMETRY))
    assert 0 < rates[0] < rates[1] < max(rates)
    assert all(before >= after > 0 for before, after in pairwise(rates[3:]))
    assert rates[-1] == pytest.approx(rates[last["step"]] / (last["num_steps"] - last["step"]))
    assert [(event["step"], event["num_steps"], event["reason"]) for event in details] == [
        (decision["step"], decision["num_steps"], decision["reason"]) for decision in decisions
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "end"),
    [
        (11, "killed"),
        (9, "stopped"),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((3, "killed"), (15, "killed"), (14, "stopped"))),
    ],
)
def test_an_interrupted_run_ends_as_if_it_had_never_stopped(  # noqa: PLR0913, PLR0917 - what is varied
    tiny_base: Path, tmp_path: Path, machine: _Machine, monkeypatch: pytest.MonkeyPatch, at: int, end: str
) -> None:
    """Before, between and after its decisions; with the same decisions the adapter is the same, bit for bit."""
    machine.seconds_of = lambda step: 1.5 if step <= 7 else 3.0 if step <= 13 else 1.2
    run = prepare_fast(tiny_base, tmp_path / "stopped", max_minutes=_MINUTES, **_RECIPE)
    if end == "killed":
        with pytest.raises(_KilledError):
            _train(run, machine, at, _kill)
    else:
        assert not _train(run, machine, at - 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert _train(run, machine)
    decisions = {decision["step"]: StepDecision(**decision) for decision in result_of(run)["plan"]["decisions"]}
    assert len(decisions) >= 2

    monkeypatch.setattr(StepPlan, "_is_measured", lambda _plan, _seconds: True)
    monkeypatch.setattr(StepPlan, "_decide", lambda _plan, step, _seconds: decisions.get(step))
    whole = prepare_fast(tiny_base, tmp_path / "whole", max_minutes=_MINUTES, **_RECIPE)
    assert _train(whole, machine)
    assert _rates(whole) == _rates(run)
    assert weights_of(whole) == weights_of(run)


def test_a_run_killed_after_its_last_step_trains_no_more_steps(
    tiny_base: Path, tmp_path: Path, machine: _Machine
) -> None:
    machine.seconds_of = lambda _step: 3.0
    run = prepare_fast(tiny_base, tmp_path, max_minutes=_MINUTES, **_RECIPE)
    assert _train(run, machine)
    weights, result = weights_of(run), result_of(run)
    (run.job.run_dir / RESULT).unlink()
    (run.job.run_dir / ADAPTER / "adapter_model.safetensors").unlink()
    assert _train(run, machine)

    assert weights_of(run) == weights
    assert result_of(run)["num_steps"] == result["num_steps"] == 12
    assert result_of(run)["train_loss"] == result["train_loss"]


def test_a_tiny_budget_still_gives_an_adapter(tiny_base: Path, tmp_path: Path, machine: _Machine) -> None:
    run = prepare_fast(tiny_base, tmp_path, max_minutes=1e-6, logging_steps=100, save_steps=100, num_train_epochs=5)
    assert _train(run, machine)

    assert result_of(run)["num_steps"] == 2
    assert [(step["step"], step["num_updates"]) for step in steps_of(run.job.run_dir / TELEMETRY)] == [(2, 2)]
    one = prepare_fast(tiny_base, tmp_path / "one", max_steps=1, warmup_steps=10)
    assert _train(one, machine)
    assert _rates(one) == [pytest.approx(1e-2)], "whatever warmup the recipe sets"
    assert result_of(one)["num_changed_matrices"] > 0
