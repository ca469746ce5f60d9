"""Train with workers of a Ray cluster: the driver, `python -m mens_pipeline.jobs JOB [PARENT] --ray`.

It runs on any node, requests a Ray worker for each device of the recipe, and waits for them. When a worker is lost, all
restart from the newest checkpoint. Every node needs the folders of the job at the same paths. Ray assigns the GPUs, so
no lock is held.
"""

import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from dagster_pipes import PipesEnvVarParamsLoader, open_dagster_pipes

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.agent import ON_RAY
from mens_pipeline.jobs.environment import worker_environment
from mens_pipeline.jobs.protocol import FAILURE, STOP, ExitCode, fail, find_exit_code
from mens_pipeline.jobs.run import find_reason, load_function, read_job

_RAY: Final = "ray"
"""Folder of Ray's files in the folder of a run."""

_MOST_FAILURES: Final = 3


def run_workers(job: Any, job_path: Path) -> ExitCode:
    """Train on the cluster at `RAY_ADDRESS` or on a new local one, and return the exit code of the job."""
    for name in (FAILURE, STOP):
        (job.run_dir / name).unlink(missing_ok=True)
    # Dagster's client warns about a job that does not connect.
    with open_dagster_pipes() if PipesEnvVarParamsLoader().is_dagster_pipes_process() else nullcontext():  # type: ignore[no-untyped-call]
        _fit(job, job_path)
    return find_exit_code(job.run_dir)


def _fit(job: Any, job_path: Path) -> None:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    # This starts a cluster if there is none. Its dashboard would answer requests from any web page in a browser.
    ray.init(include_dashboard=False)
    # Replaces Ray's handlers. Workers check for the file at each step: no signal reaches their training thread.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: (job.run_dir / STOP).touch())
    is_cuda = job.device == "cuda"
    trainer = TorchTrainer(
        _work,
        train_loop_config={"job": str(job_path)},
        torch_config=TorchConfig(backend="nccl" if is_cuda else "gloo"),
        scaling_config=ScalingConfig(num_workers=job.recipe.devices, use_gpu=is_cuda),
        run_config=RunConfig(
            name=_RAY,
            storage_path=str(job.run_dir),
            failure_config=FailureConfig(max_failures=_MOST_FAILURES),
            worker_runtime_env={"env_vars": worker_environment() | {ON_RAY: "1"}},
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError:
        if not (job.run_dir / FAILURE).exists():
            raise


def _work(config: dict[str, str]) -> None:
    """Train as one of the workers, in a thread of a process that Ray started."""
    job_path = Path(config["job"])
    _refuse_missing(job_path)
    job: Any = read_job(job_path)
    if (job.run_dir / FAILURE).exists():  # every worker would fail in the same way
        raise RefusedError((job.run_dir / FAILURE).read_text(encoding="utf-8"))
    try:
        for path in (job.base_path, job.train_path, job.rows_path):
            _refuse_missing(path)
        load_function(job)(job)
    except Exception as error:
        if reason := find_reason(job, error):
            fail(job, reason)
        raise


def _refuse_missing(path: Path) -> None:
    if not path.exists():
        advice = "Mount the folders of MENS_STORE_ROOT and MENS_CACHE_ROOT at the same paths on all nodes."
        raise RefusedError(f"{path}: not found on this node of the Ray cluster. {advice}")
