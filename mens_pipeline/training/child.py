"""The training process: `python -m mens_pipeline.training.child JOB PARENT`.

It dies with its parent, holds its device alone, writes a checkpoint when it is asked to stop, and says how it ended by
its exit code. Started through Dagster Pipes, it reports each line of telemetry there as well.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster_pipes import PipesEnvVarParamsLoader, open_dagster_pipes

from mens_pipeline.errors import MensError
from mens_pipeline.training.guards import die_with_parent, exclusive
from mens_pipeline.training.job import FAILURE, ExitCode, TrainingJob, as_document


def main(job_path: Path, parent: int) -> ExitCode:
    """Run a job.

    Args:
        job_path: The job as JSON.
        parent: The process that started this one.
    """
    die_with_parent(parent)
    job = TrainingJob.model_validate_json(job_path.read_text(encoding="utf-8"))
    failure = job.run_dir / FAILURE
    failure.unlink(missing_ok=True)
    try:
        with _listener() as listen, exclusive(job.lock_path, job.lock_seconds):
            from mens_pipeline.training.train import train  # noqa: PLC0415 - the deep learning stack, once all is clear

            return ExitCode.DONE if train(job, listen) else ExitCode.INTERRUPTED
    except MensError as error:
        failure.write_text(as_document({"reason": str(error)}), encoding="utf-8")
        return ExitCode.REFUSED


@contextmanager
def _listener() -> Iterator[Callable[[dict[str, Any]], None]]:
    """What takes the lines of telemetry: Pipes, if the process was started through it."""
    if not PipesEnvVarParamsLoader().is_dagster_pipes_process():  # type: ignore[no-untyped-call]
        yield lambda _line: None
        return
    with open_dagster_pipes() as pipes:
        yield pipes.report_custom_message


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the libraries must not keep a finished process alive.
    os._exit(code)
