"""The training process of the scratch lane: `python -m mens_pipeline.training.scratch.child JOB PARENT`."""

from mens_pipeline.training.child_process import Listener, run_as_child
from mens_pipeline.training.scratch.job import ScratchJob


def _work(job: ScratchJob, listen: Listener) -> bool:
    from mens_pipeline.training.scratch.train import train  # noqa: PLC0415 - the deep learning stack

    return train(job, listen)


if __name__ == "__main__":
    run_as_child(ScratchJob.model_validate_json, _work)
