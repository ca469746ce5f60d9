"""The training process on rewards: `python -m mens_pipeline.feedback.grpo.child JOB PARENT`."""

import sys
from pathlib import Path

from mens_pipeline.feedback.grpo.job import GrpoJob
from mens_pipeline.training.child_process import Listener, leave, run_job
from mens_pipeline.training.job import ExitCode


def main(job_path: Path, parent: int) -> ExitCode:
    """Run a job.

    Args:
        job_path: The job as JSON.
        parent: The process that started this one.
    """
    job = GrpoJob.model_validate_json(job_path.read_text(encoding="utf-8"))

    def work(listen: Listener) -> bool:
        from mens_pipeline.feedback.grpo.train import (  # noqa: PLC0415 - the deep learning stack, once all is clear
            train_on_rewards,
        )

        return train_on_rewards(job, listen)

    return run_job(job, parent, work)


if __name__ == "__main__":
    leave(main(Path(sys.argv[1]), int(sys.argv[2])))
