"""The training process on rewards: `python -m mens_pipeline.feedback.grpo.child JOB PARENT`."""

from mens_pipeline.feedback.grpo.job import GrpoJob
from mens_pipeline.training.child_process import Listener, run_as_child


def _work(job: GrpoJob, listen: Listener) -> bool:
    from mens_pipeline.feedback.grpo.train import train_on_rewards  # noqa: PLC0415 - the deep learning stack

    return train_on_rewards(job, listen)


if __name__ == "__main__":
    run_as_child(GrpoJob.model_validate_json, _work)
