"""The learning rate of each optimizer step, when the number of steps may change while a run is on its way."""

import math
from dataclasses import dataclass
from typing import Final

_WARMUP_SHARE: Final = 10
"""The warmup takes at most this part of the steps that are left when their number is decided."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A new number of steps.

    Attributes:
        step: Optimizer steps that were done when it was made; it holds from the next one on.
        num_steps: Steps of the whole run.
        seconds_per_step: As measured on the latest steps.
        seconds: Of training until then.
        reason: For people.
    """

    step: int
    num_steps: int
    seconds_per_step: float
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate as a share of its highest value: up in the warmup, then down to 0 at the end of the last step.

    Without a decision this is the schedule of the same name in transformers, but for its warmup, whose first step has a
    rate above 0. A decision keeps the rate that is reached and lets what is left of the decline end where the run now
    ends; so the rate is continuous, never rises after the warmup, and a linear one is linear between decisions.

    Attributes:
        target_steps: Steps without any decision.
        warmup_steps: Steps until the highest rate, if they are not more than a tenth of all.
        kind: `linear`, `cosine` or `constant_with_warmup`, which does not decline.
        decisions: In order.
    """

    target_steps: int
    warmup_steps: int
    kind: str
    decisions: tuple[Decision, ...] = ()

    @property
    def num_steps(self) -> int:
        """Steps of the whole run as decided last."""
        return self.decisions[-1].num_steps if self.decisions else self.target_steps

    def factor(self, step: int) -> float:
        """Return the rate of the step that comes after `step` others, as a share of the highest one, 0 to 1.

        Args:
            step: From 0; 0 is also what it is after the last step.
        """
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
        return (warmup + 1) / full * self._declined(left * max(0, end - step) / (end - begin))

    def _declined(self, left: float) -> float:
        """Return the rate when this share of the decline is still to come."""
        if self.kind == "cosine":
            return 0.5 * (1 - math.cos(math.pi * left))
        return left if self.kind == "linear" else 1.0
