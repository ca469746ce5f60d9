"""The number of optimizer steps within a time budget: measured, decided, recorded, and restored on resume."""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import newest_checkpoint, write_document
from mens_pipeline.models.base import read_object

_WARMUP_SHARE: Final = 10
"""The warmup takes up to a tenth of the steps that are left when their number is decided."""


@dataclass(frozen=True, slots=True)
class StepDecision:
    """A new number of steps of the whole run, which applies from the step after `step`.

    `seconds_per_step` is measured on the latest steps, `seconds` is the training time so far; `reason` is for people.
    """

    step: int
    num_steps: int
    seconds_per_step: float
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate as a share of its peak: up in the warmup, then down to 0 at the end of the last step.

    Without a decision this is the schedule of the same name in transformers, except that the first step of the warmup
    has a rate above 0. A decision keeps the current rate and stretches the rest of the decline to the new end of the
    run. So the rate is continuous, never rises after the warmup, and a linear one is linear between decisions.

    Attributes:
        target_steps: Steps without any decision.
        warmup_steps: Steps until the peak, limited to a tenth of all.
        kind: `linear`, `cosine` or `constant_with_warmup`, which does not decline.
        decisions: Decisions in order.
    """

    target_steps: int
    warmup_steps: int
    kind: str
    decisions: tuple[StepDecision, ...] = ()

    @property
    def num_steps(self) -> int:
        """Steps of the whole run by the last decision."""
        return self.decisions[-1].num_steps if self.decisions else self.target_steps

    def factor(self, step: int) -> float:
        """Return the rate after `step` steps as a share of the peak, 0 to 1; 0 after the last step."""
        full = min(self.warmup_steps, self.target_steps // _WARMUP_SHARE) + 1
        warmup = begin = full - 1
        left, end = 1.0, self.target_steps
        for decision in self.decisions:
            if decision.step > step:
                break
            if decision.step < warmup:
                rest = decision.num_steps - decision.step
                warmup = begin = min(warmup, decision.step + rest // _WARMUP_SHARE)
            else:
                left *= (end - decision.step) / (end - begin)
                begin = decision.step
            end = decision.num_steps
        if step < warmup:
            return (step + 1) / full
        return (warmup + 1) / full * self._decline(left * max(0, end - step) / (end - begin))

    def _decline(self, left: float) -> float:
        if self.kind == "cosine":
            return 0.5 * (1 - math.cos(math.pi * left))
        return left if self.kind == "linear" else 1.0


FILE: Final = "steps.json"
"""File of a run with the decisions on its number of steps."""

_STATE: Final = "trainer_state.json"
"""File of transformers in a checkpoint."""

_LONGEST: Final = 100_000_000  # bytes of one of these files
_START_OVER: Final = "Restore the file, or start over with --force-restart."

_MEASURED: Final = 5
"""Steps to measure before the first decision, fewer once a tenth of the budget is used."""

_EARLY: Final = 0.1
_LATEST: Final = 12
"""Number of latest steps; their mean without the slowest and the fastest predicts the next steps."""

_TOLERANCE: Final = 0.03
"""Allowed distance of the end from the budget without a new decision, as a share of the budget."""

_LANDING: Final = 0.02
"""Steps to add when the budget is used up, so that the rate declines to its end, as a share of the steps done."""


class Pace:
    """Time of an optimizer step, measured on the latest steps and proportional to its tokens."""

    def __init__(self, tokens: ArrayLike) -> None:
        """Start without measurements; `tokens` are the padded tokens of each step in order, at least 1 each."""
        self._before = np.concatenate(([0], np.cumsum(tokens, dtype=np.int64)))
        self._latest: deque[float] = deque(maxlen=_LATEST)
        self.num_measured = 0

    def add(self, step: int, seconds: float) -> None:
        """Add the time of a step, from 1. The first one includes one-time costs and counts until there is a second."""
        if self.num_measured == 1:
            self._latest.clear()
        self.num_measured += 1
        self._latest.append(float(seconds / (self._before[step] - self._before[step - 1])))

    def seconds(self, first: int, last: int) -> float:
        """Predict the seconds of the steps after `first` up to and including `last`."""
        return float(self._rate() * (self._before[last] - self._before[first]))

    def find_last(self, first: int, most: int, seconds: float) -> int:
        """Return the last step, up to `most`, that ends within `seconds` after `first`."""
        until = float(self._before[first] + seconds / self._rate())
        return max(first, min(most, bisect_right(self._before, until) - 1))

    def _rate(self) -> float:
        rates = sorted(self._latest)
        return fmean(rates[1:-1] or rates)


class StepPlan:
    """The number of optimizer steps of a run, with its schedule, within the time budget.

    The budget lowers the number of steps instead of cutting the run off; without a budget, nothing depends on time.
    Each decision is written to the file before it takes effect.
    """

    def __init__(  # noqa: PLR0913 - all that a plan rests on
        self,
        path: Path,
        schedule: Schedule,
        tokens: ArrayLike,
        max_seconds: float | None,
        resumed_at: int = 0,
        *,
        is_recorded: bool = True,
    ) -> None:
        """Restore the decisions made up to `resumed_at`, and discard later ones.

        `tokens` are the padded tokens of each step of the target, in order. `max_seconds` is a budget of training time
        over all processes of the run; None: no budget. Of several processes that make the same decisions, one writes
        them (`is_recorded`).
        """
        self._path = path
        self._is_recorded = is_recorded
        self._max_seconds = max_seconds
        self._pace = Pace(tokens)
        self._is_announced = False
        self._resumed_at = resumed_at
        self.schedule = schedule
        if path.is_file():
            try:
                found = [StepDecision(**values) for values in read_object(path, _LONGEST, _START_OVER)["decisions"]]
            except (LookupError, TypeError) as error:
                raise RefusedError(f"{path}: not the decisions of a run ({error}). {_START_OVER}") from error
            self._record(tuple(decision for decision in found if decision.step <= resumed_at))

    @property
    def num_steps(self) -> int:
        """Steps of the whole run by the last decision."""
        return self.schedule.num_steps

    @property
    def is_over(self) -> bool:
        """Whether it resumes after its last step, because the result was not written."""
        return self._resumed_at >= self.num_steps

    def seconds_left(self, seconds: float) -> float:
        """Return the part of the budget that is left after `seconds` of training; infinite without a budget."""
        return math.inf if self._max_seconds is None else max(0.0, self._max_seconds - seconds)

    def measure(self, step: int, lap: float, seconds: float) -> dict[str, Any] | None:
        """Measure a step of `lap` seconds, and decide whether the number of steps has to change.

        `seconds` is the training time so far, of all processes of the run. Returns an event to log for a decision, or
        for the first estimate of this process; None otherwise.
        """
        self._pace.add(step, lap)
        if step >= self.num_steps or not self._is_measured(seconds):
            return None
        decision = self._decide(step, seconds)
        if decision is not None:
            self._record((*self.schedule.decisions, decision))
        elif self._is_announced:
            return None
        self._is_announced = True
        rest = self._pace.seconds(step, self.num_steps)
        return {
            "step": step,
            "num_steps": self.num_steps,
            "target_steps": self.schedule.target_steps,
            "seconds_per_step": rest / (self.num_steps - step),
            "seconds": seconds,
            "end_seconds": seconds + rest,
            "budget_seconds": self._max_seconds,
            "reason": None if decision is None else decision.reason,
        }

    def account(self) -> dict[str, Any]:
        """Return target, budget and decisions in JSON types."""
        return {
            "target_steps": self.schedule.target_steps,
            "budget_seconds": self._max_seconds,
            "decisions": [*map(asdict, self.schedule.decisions)],
        }

    def _is_measured(self, seconds: float) -> bool:
        is_early = self._max_seconds is not None and seconds >= _EARLY * self._max_seconds
        return is_early or self._pace.num_measured >= _MEASURED

    def _decide(self, step: int, seconds: float) -> StepDecision | None:
        """Choose a number of steps that ends within the budget, if the current one misses it beyond the tolerance."""
        if self._max_seconds is None:
            return None
        planned, target = self.num_steps, self.schedule.target_steps
        slack = _TOLERANCE * self._max_seconds
        end = seconds + self._pace.seconds(step, planned)
        is_late = end > self._max_seconds + (slack if self.schedule.decisions else 0)
        has_room = planned < target and end < self._max_seconds - slack
        if not (is_late or has_room):
            return None
        landing = max(1, int(_LANDING * step))
        last = self._pace.find_last(step, target, self._max_seconds - seconds)
        num_steps = min(target, max(step + landing, last))
        if num_steps == planned or (is_late and num_steps > planned):
            return None
        each = (end - seconds) / (planned - step)
        reason = f"{planned} steps would take {end / 60:.1f} min, at {each:.2f} s a step"
        return StepDecision(step, num_steps, each, seconds, reason)

    def _record(self, decisions: tuple[StepDecision, ...]) -> None:
        document = {
            "target_steps": self.schedule.target_steps,
            "decisions": [asdict(decision) for decision in decisions],
        }
        if self._is_recorded:
            write_document(self._path, document)
        self.schedule = replace(self.schedule, decisions=decisions)


def take_up(
    run_dir: Path, schedule: Schedule, tokens: ArrayLike, max_minutes: float | None, *, is_recorded: bool = True
) -> StepPlan:
    """Restore the step plan of a run at its newest checkpoint; refuse decisions that differ from the checkpoint's."""
    checkpoint = newest_checkpoint(run_dir)
    seconds = None if max_minutes is None else 60 * max_minutes
    state = {} if checkpoint is None else read_object(checkpoint / _STATE, _LONGEST, _START_OVER)
    plan = StepPlan(run_dir / FILE, schedule, tokens, seconds, state.get("global_step", 0), is_recorded=is_recorded)
    if checkpoint is not None and (num_steps := state.get("max_steps")) != plan.num_steps:
        found = f"the run has {plan.num_steps} steps, but {checkpoint.name} is from a run of {num_steps}"
        raise RefusedError(f"{run_dir / FILE}: {found}. {_START_OVER}")
    return plan
