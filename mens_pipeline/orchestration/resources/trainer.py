"""How a training process is started and watched: the seam for other launchers."""

import time
import warnings

import dagster as dg

from mens_pipeline.settings import training_environment
from mens_pipeline.training.launch import run_child
from mens_pipeline.training.prepare import PreparedRun


class Trainer(dg.ConfigurableResource[None]):
    """Trains in a process of its own on this machine, through Dagster Pipes.

    Attributes:
        grace_seconds: How long a run that is cancelled may take to write its checkpoint.
        report_seconds: Seconds between two observations of a run in the UI.
    """

    grace_seconds: int = 120
    report_seconds: float = 5.0

    def run(self, context: dg.AssetExecutionContext, prepared: PreparedRun) -> int:
        """Train, showing progress as observations of the asset.

        Args:
            context: Of the asset.
            prepared: What to train.

        Returns:
            The exit code of the process.
        """
        injector, reader = dg.PipesTempFileContextInjector(), dg.PipesTempFileMessageReader()
        with warnings.catch_warnings():
            # Dagster 1.13.27 warns of a parameter of its own in every session.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            with dg.open_pipes_session(context, injector, reader) as session:
                watcher = _Watcher(context, session, self.report_seconds)
                environment = {**training_environment(), **session.get_bootstrap_env_vars()}
                log = prepared.job.run_dir / "child.log"
                code = run_child(prepared.job_path, environment, watcher.poll, self.grace_seconds, log)
        return code


class _Watcher:
    """Passes lines of telemetry on to the event log."""

    def __init__(self, context: dg.AssetExecutionContext, session: dg.PipesSession, seconds: float) -> None:
        self._context = context
        self._session = session
        self._seconds = seconds
        self._seen = 0
        self._last = 0.0

    def poll(self) -> None:
        lines = self._session.get_custom_messages()[self._seen :]
        self._seen += len(lines)
        steps = [line["payload"] for line in lines if line["event"] == "step"]
        if not steps or time.monotonic() - self._last < self._seconds:
            return
        self._last = time.monotonic()
        step = steps[-1]
        progress = f"update {step['step']}/{step['max_steps']}, loss {step['loss']:.3f}"
        self._context.log.info(
            "%s, %.0f tokens/s, %.1f min to go", progress, step["tokens_per_second"], step["eta_seconds"] / 60
        )
        self._context.log_event(
            dg.AssetObservation(
                self._context.asset_key,
                metadata={
                    "train/step": step["step"],
                    "train/loss": step["loss"],
                    "train/grad_norm": step["grad_norm"],
                    "train/tokens_per_second": step["tokens_per_second"],
                },
            )
        )
