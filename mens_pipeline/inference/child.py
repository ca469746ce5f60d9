"""The generation process: `python -m mens_pipeline.inference.child JOB PARENT`."""

from mens_pipeline.inference.generation import GenerationJob
from mens_pipeline.training.child_process import Listener, run_as_child


def _work(job: GenerationJob, listen: Listener) -> None:
    from mens_pipeline.inference.generate import generate  # noqa: PLC0415 - the deep learning stack

    generate(job, listen)


if __name__ == "__main__":
    run_as_child(GenerationJob.model_validate_json, _work)
