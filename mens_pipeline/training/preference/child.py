"""The training process for pairs: `python -m mens_pipeline.training.preference.child JOB PARENT`."""

from mens_pipeline.training.child_process import Listener, run_as_child
from mens_pipeline.training.preference.job import PreferenceJob


def _work(job: PreferenceJob, listen: Listener) -> bool:
    from mens_pipeline.training.preference.train import train_on_pairs  # noqa: PLC0415 - likewise

    return train_on_pairs(job, listen)


if __name__ == "__main__":
    run_as_child(PreferenceJob.model_validate_json, _work)
