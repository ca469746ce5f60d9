"""The training process: `python -m mens_pipeline.training.child JOB PARENT`.

It writes a checkpoint when it is asked to stop.
"""

from mens_pipeline.training.child_process import Listener, run_as_child
from mens_pipeline.training.job import TrainingJob


def _work(job: TrainingJob, listen: Listener) -> bool:
    from mens_pipeline.training.train import train  # noqa: PLC0415 - the deep learning stack, once all is clear

    return train(job, listen)


if __name__ == "__main__":
    run_as_child(TrainingJob.model_validate_json, _work)
