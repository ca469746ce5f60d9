"""The process of delivery: `python -m mens_pipeline.delivery.merge_child JOB PARENT` merges, or writes GGUF."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from mens_pipeline.delivery.merge_job import GgufJob, MergeJob
from mens_pipeline.training.child_process import Listener, run_as_child

_JOBS: TypeAdapter[MergeJob | GgufJob] = TypeAdapter(Annotated[MergeJob | GgufJob, Field(discriminator="what")])


def _work(job: MergeJob | GgufJob, listen: Listener) -> None:
    if isinstance(job, MergeJob):
        from mens_pipeline.delivery.merge import merge  # noqa: PLC0415 - the deep learning stack, once all is clear

        merge(job, listen)
    else:
        from mens_pipeline.delivery.gguf_file import export  # noqa: PLC0415 - likewise

        export(job, listen)


if __name__ == "__main__":
    run_as_child(_JOBS.validate_json, _work)
