"""Resources that start jobs, here or on a Ray cluster, and log their progress in the run."""

import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg
from pydantic import Field

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import progress_of
from mens_pipeline.jobs.environment import ray_environment
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.progress import Follower, poll_in_thread
from mens_pipeline.jobs.protocol import FAILURE, LOG, STOP, find_exit_code
from mens_pipeline.language import visible_text
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.orchestration.asset import GPU, stop_if_canceled
from mens_pipeline.scratch.run import PreparedScratch
from mens_pipeline.settings import KUBERAY, load_settings
from mens_pipeline.storage.yaml_file import load_yaml
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.recipe import TrainingJob
from mens_pipeline.training.telemetry_log import format_plan, step_of

JOB_TAG: Final = "mens/job"
HEADLESS: Final = "headless"
"""Value of the job tag in runs from a terminal, which shows progress but no output of libraries."""

_STATUS_SECONDS: Final = 2.0  # between two checks whether the run was canceled
_IMAGE_TAG: Final = "dagster/image"
_POLL_SECONDS: Final = 0.5  # between two polls of a Ray job


class JobLauncher(dg.ConfigurableResource[None]):
    """Runs jobs that generate completions or merge models, each in separate processes on this machine."""

    grace_seconds: int = Field(default=20, description="Seconds that a cancelled job may take to end.")
    report_seconds: float = Field(default=10.0, description="Seconds between two lines of progress.")

    def run(self, context: dg.AssetExecutionContext, job_path: Path, num_ranks: int = 1) -> int:
        """Run a job in `num_ranks` processes, log its progress, and return its exit code."""
        last = 0.0

        def watch(event: dict[str, Any]) -> None:
            nonlocal last
            if time.monotonic() - last >= self.report_seconds:
                last = time.monotonic()
                completion = event["payload"]
                context.log.info("%s: %s", completion["model"], progress_of(completion))

        return run_in_child(context, job_path, self.grace_seconds, watch, num_ranks)


class Trainer(dg.ConfigurableResource[None]):
    """Trains in separate processes of the launcher in `MENS_LAUNCHER`; the scratch lane always trains locally.

    A cancelled training has `grace_seconds` to write its checkpoint. Progress is logged every `report_seconds`.
    """

    grace_seconds: int = 120
    report_seconds: float = 5.0

    def run(self, context: dg.AssetExecutionContext, prepared: PreparedRun | PreparedScratch) -> int:
        """Train, report progress as observations of the asset, and return the exit code."""
        watch = watch_training(context, self.report_seconds)
        launcher, job = load_settings().launcher, prepared.job
        if launcher == "local" or not isinstance(job, TrainingJob):
            devices = job.recipe.devices if isinstance(job, TrainingJob) else 1
            return run_in_child(context, job.path, self.grace_seconds, watch, devices)
        ray_job = None
        if launcher == "kuberay":
            image = context.run.tags.get(_IMAGE_TAG)
            ray_job = read_ray_job(KUBERAY, job.recipe.devices, image, is_cuda=job.device == "cuda")
        return run_on_ray(context, job.path, watch, ray_job)


def watch_training(context: dg.AssetExecutionContext, seconds: float) -> Callable[[dict[str, Any]], None]:
    """Return a telemetry callback that logs a step every `seconds`, and observes the first in each tenth of a run."""
    last, tenth = 0.0, -1

    def watch(event: dict[str, Any]) -> None:
        nonlocal last, tenth
        payload = event["payload"]
        if event["event"] == "train_start":
            if done := step_of(payload["resumed_from"]):
                context.log.info("training resumed at step %d of %d", done, payload["planned_steps"])
            if "computed_by" in payload:
                context.log.info("training: %s", payload["computed_by"])
        elif event["event"] == "plan":
            context.log.info("training: %s", format_plan(payload))
        elif event["event"] == "step" and time.monotonic() - last >= seconds:
            last = time.monotonic()
            progress = f"step {payload['step']}/{payload['max_steps']}, loss {payload['loss']:.3f}"
            rate, minutes = payload["tokens_per_second"], payload["eta_seconds"] / 60
            context.log.info("%s, %.0f tokens/s, %.1f min to go", progress, rate, minutes)
            if tenth == (tenth := 10 * payload["step"] // payload["max_steps"]):
                return
            figures = {
                "train/step": payload["step"],
                "train/loss": round(payload["loss"], 4),
                "train/grad_norm": round(payload["grad_norm"], 4),
                "train/tokens_per_second": round(rate, 1),
            }
            context.log_event(dg.AssetObservation(context.asset_key, metadata=figures))

    return watch


def run_in_child(
    context: dg.AssetExecutionContext,
    job_path: Path,
    grace_seconds: float,
    watch: Callable[[dict[str, Any]], None],
    num_ranks: int = 1,
) -> int:
    """Run a job in separate processes, which end with the run, and return its exit code.

    `watch` receives each event of the job. Output of the process goes to the log of the step, except in a terminal.
    """
    log, events = job_path.with_name(LOG), Follower(job_path.with_name(TELEMETRY), watch)
    is_headless = context.run.tags.get(JOB_TAG) == HEADLESS
    said, next_look = log.stat().st_size if log.is_file() else 0, 0.0

    def poll() -> None:
        nonlocal said, next_look
        if time.monotonic() >= next_look:
            stop_if_canceled(context)
            next_look = time.monotonic() + _STATUS_SECONDS
        if not is_headless:
            said = _pass_on(log, said)
        events.poll()

    return run_job(job_path, poll, grace_seconds=grace_seconds, num_ranks=num_ranks)


def _pass_on(log: Path, said: int) -> int:
    if not log.is_file():
        return said
    with log.open("rb") as content:
        content.seek(said)
        new = content.read()
    sys.stderr.write(visible_text(new.decode("utf-8", "replace")))
    return said + len(new)


def run_on_ray(
    context: dg.AssetExecutionContext,
    job_path: Path,
    watch: Callable[[dict[str, Any]], None],
    ray_job: Mapping[str, Any] | None = None,
) -> int:
    """Train as a job of a Ray cluster, which ends with the run; return an `ExitCode`.

    All nodes must see the folder of the job at the same path. With `ray_job`, KubeRay starts a cluster for the job;
    otherwise `RAY_API_SERVER_ADDRESS` names one.
    """
    run_dir, events = job_path.parent, Follower(job_path.with_name(TELEMETRY), watch)

    def poll() -> None:
        events.poll()
        try:
            stop_if_canceled(context)
        except dg.DagsterExecutionInterruptedError:  # in this thread it would have no effect
            (run_dir / STOP).touch()

    variables = {name: value for name, value in ray_environment().items() if name.startswith(("HF_", "OMP_"))}
    submitted: dict[str, Any] = {
        "entrypoint": shlex.join(["python", "-P", "-m", "mens_pipeline.jobs", str(job_path), "--ray"]),
        "runtime_env": {"env_vars": variables},
    }
    for said_before in (STOP, FAILURE):
        (run_dir / said_before).unlink(missing_ok=True)
    try:
        with poll_in_thread(poll, _POLL_SECONDS), warnings.catch_warnings():
            # Dagster 1.13.27 warns about one of its own parameters in every session.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            if ray_job is None:
                from dagster_ray.core.pipes import PipesRayJobClient as Client  # noqa: PLC0415 - optional dependency
            else:
                from dagster_ray.kuberay import PipesKubeRayJobClient as Client  # type: ignore[assignment]  # noqa: PLC0415
            manifest = {} if ray_job is None else {"ray_job": dict(ray_job)}
            client: Any = Client(poll_interval=_POLL_SECONDS)
            client.run(context=context, submit_job_params=submitted, **manifest)
    except RuntimeError as error:  # dagster-ray says that the job failed; the files of the job say why
        (run_dir / LOG).write_text(f"{error}\n", encoding="utf-8")
    except BaseException:
        (run_dir / STOP).touch()  # some workers outlive their job
        raise
    stop_if_canceled(context)
    return find_exit_code(run_dir)


def read_ray_job(path: Path, num_workers: int, image: str | None, *, is_cuda: bool) -> dict[str, Any]:
    """Read the RayJob that KubeRay starts, and fill in workers, images and GPUs.

    The file is YAML with a head and one group of workers. `image` is the default of containers without an image; with
    `is_cuda` each worker gets a GPU. `ConfigurationError` if the file has another form, or a container no image.
    """
    content = load_yaml(path)
    try:
        ray_job: dict[str, Any] = json.loads(json.dumps(content))  # YAML anchors share objects; these must not
        cluster = ray_job["spec"]["rayClusterSpec"]
        (workers,) = cluster["workerGroupSpecs"]
        head, worker = (group["template"]["spec"]["containers"][0] for group in (cluster["headGroupSpec"], workers))
        namespace = str(ray_job["metadata"]["namespace"])
        limits = worker.setdefault("resources", {}).setdefault("limits", {})
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        wanted = "a RayJob with metadata.namespace, a head and one group of workers"
        raise ConfigurationError(f"{path}: expected {wanted} ({error!r}). Correct the file.") from error
    if namespace.isupper():
        raise ConfigurationError(f"{path}: metadata.namespace is the placeholder {namespace}. Set the runs' namespace.")
    if image is None and not (head.get("image") and worker.get("image")):
        raise ConfigurationError(f"{path}: a container has no image, and the run has no tag {_IMAGE_TAG}. Set one.")
    for container in (head, worker):
        container["image"] = container.get("image") or image
    workers.update(dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), num_workers))
    limits.pop(GPU, None)
    if is_cuda:
        limits[GPU] = "1"
    return ray_job
