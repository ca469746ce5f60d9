"""The process of delivery: `python -m mens_pipeline.delivery.merge_child JOB PARENT` merges, or writes GGUF."""

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from mens_pipeline.delivery.merge_job import GgufJob, MergeJob
from mens_pipeline.training.child_process import Listener, leave, run_job
from mens_pipeline.training.job import ExitCode

_JOBS: TypeAdapter[MergeJob | GgufJob] = TypeAdapter(Annotated[MergeJob | GgufJob, Field(discriminator="what")])


def main(job_path: Path, parent: int) -> ExitCode:
    """Run a job.

    Args:
        job_path: The job as JSON.
        parent: The process that started this one.
    """
    job = _JOBS.validate_json(job_path.read_text(encoding="utf-8"))

    def work(listen: Listener) -> bool:
        if isinstance(job, MergeJob):
            from mens_pipeline.delivery.merge import merge  # noqa: PLC0415 - the deep learning stack, once all is clear

            merge(job, listen)
        else:
            from mens_pipeline.delivery.gguf_file import export  # noqa: PLC0415 - likewise

            export(job, listen)
        return True

    return run_job(job, parent, work)


if __name__ == "__main__":
    leave(main(Path(sys.argv[1]), int(sys.argv[2])))
