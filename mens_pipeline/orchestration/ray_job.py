"""A training as a job of a Ray cluster: submitted by the client of dagster-ray, watched, ended with its run."""

import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg
from dagster_ray.core.pipes import PipesRayJobClient, SubmitJobParams

from mens_pipeline.jobs.environment import ray_environment
from mens_pipeline.jobs.progress import FILE, Follower, polled
from mens_pipeline.jobs.protocol import LOG, STOP, ended
from mens_pipeline.orchestration.failures import stop_if_canceled

_POLL_SECONDS: Final = 0.5


def run_on_ray(
    context: dg.AssetExecutionContext,
    job_path: Path,
    watch: Callable[[dict[str, Any]], None],
    cluster: Literal["ray", "kuberay"],
) -> int:
    """Run a training on Ray, from a folder that all nodes see at the same path; whatever ends the run, ends the job.

    Returns:
        What the job came to; see `ExitCode`.
    """
    run_dir, events = job_path.parent, Follower(job_path.with_name(FILE), watch)

    def hand_over() -> None:
        events.poll()
        try:
            stop_if_canceled(context)
        except dg.DagsterExecutionInterruptedError:  # in a thread of its own, where it would end nothing
            (run_dir / STOP).touch()

    variables = {name: value for name, value in ray_environment().items() if name.startswith(("HF_", "OMP_"))}
    submitted: SubmitJobParams = {
        "entrypoint": shlex.join(["python", "-P", "-m", "mens_pipeline.jobs", str(job_path), "--ray"]),
        "runtime_env": {"env_vars": variables},
    }
    (run_dir / STOP).unlink(missing_ok=True)
    try:
        with polled(hand_over, _POLL_SECONDS), warnings.catch_warnings():
            # Dagster 1.13.27 warns of a parameter of its own in every session.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            _client(cluster).run(context=context, submit_job_params=submitted)
    except RuntimeError as error:  # in these words, that the job did not end well; its files say how
        (run_dir / LOG).write_text(f"{error}\n", encoding="utf-8")
    except BaseException:
        (run_dir / STOP).touch()  # for workers that outlive their job
        raise
    stop_if_canceled(context)
    return ended(run_dir)


def _client(cluster: str) -> Any:
    if cluster == "kuberay":
        from dagster_ray.kuberay import PipesKubeRayJobClient  # noqa: PLC0415 - asks for a Kubernetes cluster

        return PipesKubeRayJobClient()
    return PipesRayJobClient(poll_interval=_POLL_SECONDS)
