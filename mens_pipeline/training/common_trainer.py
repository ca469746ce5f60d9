"""Common parts of all trainers: they follow a planned schedule, count tokens and check every gradient."""

import math
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.job import Continued
from mens_pipeline.training.progress import Progress
from mens_pipeline.training.qlora import keep_adapter_in_float32, take_over
from mens_pipeline.training.step_plan import StepPlan


class CommonTrainer:
    """To stand before a Trainer among the bases of a class."""

    state: Any
    optimizer: Any
    model: Any
    steps: StepPlan
    num_tokens = 0
    num_supervised = 0

    def begin(self, progress: Progress, continues: Continued | None) -> None:
        """Take up a step plan, with an adapter in float32, which perhaps goes on from another one."""
        progress.trainer, self.steps = self, progress.steps
        keep_adapter_in_float32(self.model)
        if continues is not None:
            take_over(self.model, continues)

    def create_optimizer(self, *arguments: Any) -> Any:
        """Make the optimizer, unless there is one; copies of the adapter notice its steps."""
        optimizer = super().create_optimizer(*arguments)  # type: ignore[misc]
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        # The fused AdamW of a CPU writes without telling autograd, whose versions such copies go by.
        optimizer.register_step_post_hook(lambda *_: torch.autograd.graph.increment_version(trained))
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        """Follow the schedule of the step plan, which may change on the way."""

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
        if not math.isfinite(value) or value == 0.0:
            advice = "Lower learning_rate, and look at the rows of this step."
            raise RefusedError(f"step {self.state.global_step + 1}: the gradient norm is {value}. {advice}")
        return norm
