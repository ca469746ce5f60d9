"""Code that both trainers share: they follow a planned schedule, count tokens and check every gradient.

A callback writes telemetry, keeps the time budget, handles requests to stop, and marks complete checkpoints.
"""

import math
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.agent import ALONE, Team
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import CHECKPOINTS, RESULT, mark_complete, write_document
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.chat import Encoded
from mens_pipeline.training.plan import EVALUATIONS
from mens_pipeline.training.qlora import begin_evaluation, keep_adapter_in_float32, take_over
from mens_pipeline.training.recipe import Continued
from mens_pipeline.training.step_plan import StepPlan
from mens_pipeline.training.telemetry_log import compute_totals

IGNORED: Final = -100
"""The label of prompts and padding."""

_SMOOTHING: Final = 0.2


class StopRequest:
    """A request to stop, by SIGTERM or SIGINT; a second signal ends the process at once.

    Ray trains in a thread, which gets no signals; there, the file `mark` requests the stop.
    """

    def __init__(self, mark: Path | None = None) -> None:
        self._mark = mark
        self._is_signalled = False
        for number in () if mark is not None else (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    @property
    def is_asked(self) -> bool:
        """Whether a signal arrived, or the file exists."""
        return self._is_signalled or (self._mark is not None and self._mark.exists())

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self._is_signalled = True
        signal.signal(number, signal.SIG_DFL)


class RunMonitor(TrainerCallback):  # type: ignore[misc]
    """Writes telemetry of each step, measures it for the step plan, and ends the run on request."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a run is watched with
        self,
        log: TelemetryLog,
        stop: StopRequest,
        steps: StepPlan,
        seconds_before: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        team: Team = ALONE,
    ) -> None:
        """Watch a run that earlier processes trained for `seconds_before` seconds."""
        self.trainer: Any = None
        self.steps = steps
        self.is_stopped = False
        self._team = team
        self.log = log
        self._stop = stop
        self._clock = clock
        self._lap = 0.0
        self.seconds = seconds_before
        self._since = 0.0
        self._unlogged = 0.0
        self._num_steps = 0
        self._rate = 0.0
        self._seen = (0, 0)
        self._counts = (0, 0)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Set the number of steps that earlier processes of this run decided, and how often to measure its loss."""
        state.max_steps = self.steps.num_steps
        state.eval_steps = math.ceil(self.steps.schedule.target_steps / EVALUATIONS)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock; the time between two steps, for example to write a checkpoint, does not count."""
        self._since = self._clock()
        self._lap = 0.0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Replan the rest of the run if its pace requires it; end the run with a checkpoint on request."""
        self._take_time()
        self._num_steps += 1
        self._agree(args.device.type)
        event = self.steps.measure(state.global_step, self._lap, self.seconds)
        if event is not None:
            state.max_steps = self.steps.num_steps
            self.log.write("plan", event)
        control.should_save |= control.should_evaluate or self.is_stopped
        if self.is_stopped:
            control.should_training_stop = True
        # A resumed run never logs steps before its checkpoint.
        if control.should_save or control.should_training_stop or state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        """Write a telemetry line for the steps since the last line, usually `logging_steps` of them."""
        if "grad_norm" not in logs:
            return
        self._take_time()
        lap, self._unlogged = self._unlogged, 0.0
        tokens, supervised = (now - before for now, before in zip(self._seen, self._counts, strict=True))
        self._counts = self._seen
        rate = self._num_steps / lap
        self._rate = rate if self._rate == 0 else _SMOOTHING * rate + (1 - _SMOOTHING) * self._rate
        self.log.write(
            "step",
            {
                "step": state.global_step,
                "num_updates": self._num_steps,
                "max_steps": state.max_steps,
                "epoch": state.epoch,
                "loss": float(logs["loss"]),
                "grad_norm": float(logs["grad_norm"]),
                "learning_rate": float(logs["learning_rate"]),
                "num_tokens": tokens,
                "num_supervised_tokens": supervised,
                "supervised_ratio": supervised / tokens,
                "tokens_per_second": tokens / lap,
                "steps_per_second_ema": self._rate,
                "eta_seconds": min(
                    (state.max_steps - state.global_step) / self._rate, self.steps.seconds_left(self.seconds)
                ),
                "seconds": self.seconds,
                "peak_memory_mb": _peak_memory_mb(args.device.type),
            },
        )
        self._num_steps = 0

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Mark the checkpoint as complete, once every process has written its part."""
        self._team.wait()
        if self._team.is_first:
            mark_complete(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")

    def _agree(self, device: str) -> None:
        """Share requests to stop, counts, and the clock of the first process among all processes."""
        timed = (self._lap, self.seconds) if self._team.is_first else (0.0, 0.0)
        own = (self._stop.is_asked, self.trainer.num_tokens, self.trainer.num_supervised, *timed)
        asked, tokens, supervised, self._lap, self.seconds = self._team.sum_over_all(own, device)
        self.is_stopped = asked > 0
        self._seen = (int(tokens), int(supervised))

    def _take_time(self) -> None:
        now = self._clock()
        self._lap += now - self._since
        self.seconds += now - self._since
        self._unlogged += now - self._since
        self._since = now


def _peak_memory_mb(device: str) -> float:
    if device == "cuda":
        return float(torch.cuda.max_memory_allocated() / 2**20)
    # The system counts in kilobytes, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def common_arguments(job: Any, num_steps: int) -> dict[str, Any]:
    """Return the transformers arguments that both trainers share, from a job with device, precision and recipe."""
    recipe = job.recipe
    return {
        "output_dir": str(job.run_dir / CHECKPOINTS),
        "use_cpu": job.device == "cpu",
        "bf16": job.compute_dtype == "bfloat16",
        "remove_unused_columns": False,
        "per_device_train_batch_size": 1,  # the plan decides
        "num_train_epochs": 1,  # the plan holds all epochs
        "max_steps": num_steps,
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.max_grad_norm,
        "save_strategy": "steps",
        "save_steps": recipe.save_steps,
        "logging_strategy": "steps",
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "report_to": "none",
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": job.device == "cuda",
    }


class CommonTrainer:
    """A mixin, to list before a Trainer in the bases of a class."""

    state: Any
    optimizer: Any
    model: Any
    train: Any
    steps: StepPlan
    monitor: RunMonitor
    num_tokens = 0
    num_supervised = 0

    def follow(self, monitor: RunMonitor) -> None:
        """Follow the step plan of a monitor, and let it watch this trainer."""
        self.monitor, self.steps, monitor.trainer = monitor, monitor.steps, self

    def run(self, about: Mapping[str, Any], checkpoint: Path | None) -> bool:
        """Train from a checkpoint, or from the start; return False if a request to stop ended it early."""
        log = self.monitor.log
        log.write("train_start", {**about, "resumed_from": checkpoint and checkpoint.name})
        self.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        if self.monitor.is_stopped and self.state.global_step < self.steps.num_steps:
            log.write("train_interrupted", {"step": self.state.global_step})
            return False
        return True

    def write_result(self, run_dir: Path, values: Mapping[str, Any]) -> None:
        """Write `result.json`: some values, with steps, seconds, loss and tokens of the whole run."""
        result = {
            **values,
            "num_steps": self.state.global_step,
            "plan": self.steps.account(),
            "seconds": self.monitor.seconds,
            **compute_totals(run_dir / TELEMETRY),
        }
        write_document(run_dir / RESULT, result)
        self.monitor.log.write("train_complete", result)

    def begin(self, monitor: RunMonitor, continues: Continued | None) -> None:
        """Follow the step plan of a monitor, with the adapter in float32; `continues` loads an earlier adapter."""
        self.follow(monitor)
        keep_adapter_in_float32(self.model)
        if continues is not None:
            take_over(self.model, continues)

    def create_optimizer(self, *arguments: Any) -> Any:
        """Create the optimizer, whose steps invalidate copies of the adapter."""
        optimizer = super().create_optimizer(*arguments)  # type: ignore[misc]
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        # The fused AdamW of a CPU does not increment the autograd versions that copies of the adapter check.
        optimizer.register_step_post_hook(lambda *_: torch.autograd.graph.increment_version(trained))
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        """Follow the schedule of the step plan, which may change during the run."""

        def factor(step: int) -> float:
            return self.steps.schedule.factor(step)  # the schedule at that time

        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, factor)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _clip_grad_norm(self, model: Any) -> Any:
        """Clip as the library does; raise RefusedError for a norm that is zero or not finite."""
        norm = super()._clip_grad_norm(model)  # type: ignore[misc]
        value = float(norm)
        if not math.isfinite(value) or value == 0.0:
            advice = "Lower learning_rate, and check the rows of this step."
            raise RefusedError(f"step {self.state.global_step + 1}: the gradient norm is {value}. {advice}")
        return norm


def pad_rows(rows: Sequence[Encoded], pad_token_id: int) -> dict[str, Any]:
    """Build a micro-batch of rows, padded on the right to the longest.

    Returns `input_ids`, `attention_mask` and `labels`, (rows, length), int64; labels of prompt and padding are -100.
    """
    ids = [torch.tensor(row.prompt + row.completion) for row in rows]
    labels = [torch.tensor([IGNORED] * len(row.prompt) + list(row.completion)) for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_token_id),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


def mean_loss(
    trainer: Any,
    batches: Iterable[tuple[Mapping[str, Any], int]],
    team: Team = ALONE,
) -> float | None:
    """Compute the mean loss per labelled token over the batches of all processes; None without a batch.

    A batch is the input of `compute_loss`, on any device, with its number of labelled tokens. The model stays in
    evaluation mode.
    """
    begin_evaluation(trainer.model)
    device = trainer.model.device
    total = count = 0.0
    with torch.no_grad():
        for batch, num_labels in batches:
            inputs = {name: value.to(device) if torch.is_tensor(value) else value for name, value in batch.items()}
            total += float(trainer.compute_loss(trainer.model, inputs)) * num_labels
            count += num_labels
    total, count = team.sum_over_all((total, count), str(device))
    return total / count if count else None
