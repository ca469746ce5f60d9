"""Telemetry, time budget, requests to stop and marks of whole checkpoints, as a callback of the trainer."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mens_pipeline.jobs.agent import Team
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import mark_complete
from mens_pipeline.training.step_plan import StepPlan

_SMOOTHING = 0.2


class StopRequest:
    """Whether this process was asked to stop: SIGTERM or SIGINT, once; a second one ends it at once.

    Ray trains in a thread, which gets no signals: there, a file asks.
    """

    def __init__(self, mark: Path | None = None) -> None:
        self._mark = mark
        self._is_signalled = False
        for number in () if mark is not None else (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    @property
    def is_asked(self) -> bool:
        """Whether it was."""
        return self._is_signalled or (self._mark is not None and self._mark.exists())

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self._is_signalled = True
        signal.signal(number, signal.SIG_DFL)


class Progress(TrainerCallback):  # type: ignore[misc]
    """Writes a line for each step, measures it for the plan of steps, and ends the run when someone asks."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a run is watched with
        self,
        log: TelemetryLog,
        stop: StopRequest,
        steps: StepPlan,
        seconds_before: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        team: Team = Team(),  # noqa: B008 - it cannot change
    ) -> None:
        """Watch a run of which earlier processes trained `seconds_before`."""
        self.trainer: Any = None
        self.steps = steps
        self.is_stopped = False
        self._team = team
        self._log = log
        self._stop = stop
        self._clock = clock
        self._lap = 0.0
        self._seconds = seconds_before
        self._since = 0.0
        self._untold = 0.0
        self._updates = 0
        self._rate = 0.0
        self._seen = (0, 0)
        self._counts = (0, 0)

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self._seconds

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Set the number of steps to what earlier processes of this run decided."""
        state.max_steps = self.steps.num_steps

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take the time; what lies between two steps, such as writing a checkpoint, is not training."""
        self._since = self._clock()
        self._lap = 0.0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Plan the rest of the run anew where its pace asks for it; end it with a checkpoint when someone asked."""
        self._take_time()
        self._updates += 1
        self._agree(args.device.type)
        told = self.steps.measure(state.global_step, self._lap, self._seconds)
        if told is not None:
            state.max_steps = self.steps.num_steps
            self._log.write("plan", told)
        if self.is_stopped:
            control.should_save = True
            control.should_training_stop = True
        # What is not told before a checkpoint, a resumed run would never tell.
        if control.should_save or control.should_training_stop or state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        """Write the line of all steps since the last one: one, unless `logging_steps` says more."""
        if "grad_norm" not in logs:
            return
        self._take_time()
        lap, self._untold = self._untold, 0.0
        tokens, supervised = (now - before for now, before in zip(self._seen, self._counts, strict=True))
        self._counts = self._seen
        rate = self._updates / lap
        self._rate = rate if self._rate == 0 else _SMOOTHING * rate + (1 - _SMOOTHING) * self._rate
        self._log.write(
            "step",
            {
                "step": state.global_step,
                "num_updates": self._updates,
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
                "eta_seconds": (state.max_steps - state.global_step) / self._rate,
                "seconds": self._seconds,
                "peak_memory_mb": _peak_memory_mb(args.device.type),
            },
        )
        self._updates = 0

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Mark the checkpoint as whole, once every process has written its part."""
        self._team.wait()
        if self._team.is_first:
            mark_complete(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")

    def _agree(self, device: str) -> None:
        """Let all processes stop together, count together, and go by the clock of the first one."""
        timed = (self._lap, self._seconds) if self._team.is_first else (0.0, 0.0)
        own = (self._stop.is_asked, self.trainer.num_tokens, self.trainer.num_supervised, *timed)
        asked, tokens, supervised, self._lap, self._seconds = self._team.summed(own, device)
        self.is_stopped = asked > 0
        self._seen = (int(tokens), int(supervised))

    def _take_time(self) -> None:
        """Count the time since it was taken last."""
        now = self._clock()
        self._lap += now - self._since
        self._seconds += now - self._since
        self._untold += now - self._since
        self._since = now


def _peak_memory_mb(device: str) -> float:
    """Return megabytes that this run took at most: of the GPU if it trains on one, else of the process."""
    import resource  # noqa: PLC0415 - only this needs it

    import torch  # noqa: PLC0415 - likewise

    if device == "cuda":
        return float(torch.cuda.max_memory_allocated() / 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
