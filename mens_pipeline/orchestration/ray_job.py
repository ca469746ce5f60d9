"""A training as a job of a Ray cluster, through Dagster Pipes: submitted, watched, ended with its run."""

import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg
from dagster_ray.core.pipes import PipesRayJobClient, PipesRayJobMessageReader, SubmitJobParams

from mens_pipeline.training.environment import ray_environment
from mens_pipeline.training.job import RAY_DRIVER, STOP, ended
from mens_pipeline.training.launch import polled

_POLL_SECONDS: Final = 0.5


def run_on_ray(
    context: dg.AssetExecutionContext,
    job_path: Path,
    watch: Callable[[list[dict[str, Any]]], None],
    cluster: Literal["ray", "kuberay"],
) -> int:
    """Run a training on Ray, from a folder that all nodes see at the same path; whatever ends the run, ends the job.

    Returns:
        What the job came to; see `ExitCode`.
    """
    run_dir, reader, seen = job_path.parent, _Reader(), 0

    def hand_over() -> None:
        nonlocal seen
        events = reader.events(seen)
        seen += len(events)
        watch(events)

    variables = {name: value for name, value in ray_environment().items() if name.startswith(("HF_", "OMP_"))}
    submitted: SubmitJobParams = {
        "entrypoint": shlex.join(["python", "-P", "-m", RAY_DRIVER, str(job_path)]),
        "runtime_env": {"env_vars": variables},
    }
    (run_dir / STOP).unlink(missing_ok=True)
    try:
        with polled(hand_over, _POLL_SECONDS), warnings.catch_warnings():
            # Dagster 1.13.27 warns of a parameter of its own in every session.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            _client(cluster, reader).run(context=context, submit_job_params=submitted)
    except RuntimeError as error:  # in these words, that the job did not end well; its files say how
        (run_dir / "child.log").write_text(f"{error}\n", encoding="utf-8")
    except BaseException:
        (run_dir / STOP).touch()  # for workers that outlive their job
        raise
    return ended(run_dir)


def _client(cluster: str, reader: "_Reader") -> Any:
    if cluster == "kuberay":
        from dagster_ray.kuberay import PipesKubeRayJobClient  # noqa: PLC0415 - asks for a Kubernetes cluster

        return PipesKubeRayJobClient(message_reader=reader)
    return PipesRayJobClient(message_reader=reader, poll_interval=_POLL_SECONDS)


class _Reader(PipesRayJobMessageReader):
    """A reader of the job's messages that shows them while they come."""

    handler: Any = None

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        self.handler = handler
        with super().read_messages(handler) as params:
            yield params

    def events(self, seen: int) -> list[dict[str, Any]]:
        return [] if self.handler is None else list(self.handler.get_custom_messages()[seen:])
