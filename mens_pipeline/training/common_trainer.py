"""Common parts of both trainers: they follow a planned schedule and check every gradient."""

import math
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.step_plan import StepPlan


class CommonTrainer:
    """To stand before a Trainer among the bases of a class."""

    state: Any
    optimizer: Any
    steps: StepPlan
    may_stand_still = False
    """Whether a step may have nothing to learn from."""

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        """Follow the schedule of the step plan, which may change on the way.

        Args:
            num_training_steps: The plan knows it.
            optimizer: None for the trainer's own.
        """

        def factor(step: int) -> float:
            return self.steps.schedule.factor(step)  # of the schedule as it is then

        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factor)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _clip_grad_norm(self, model: Any) -> Any:
        """Clip as the library does.

        Raises:
            RefusedError: The norm is zero, infinite or not a number.
        """
        norm = super()._clip_grad_norm(model)  # type: ignore[misc]
        value = float(norm)
        if not math.isfinite(value) or (value == 0.0 and not self.may_stand_still):
            advice = "Lower learning_rate, and look at the rows of this step."
            raise RefusedError(f"step {self.state.global_step + 1}: the gradient norm is {value}. {advice}")
        return norm
