"""Training on a Ray cluster of this machine gives the adapter of one process, even if workers are lost.

The adapter of one worker in a run of Dagster is compared in `e2e/test_whole_graph_on_cluster.py`.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.jobs import ray as jobs_ray
from mens_pipeline.jobs.environment import ray_environment
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import (
    FAILURE,
    RESULT,
    STOP,
    ExitCode,
    find_exit_code,
    newest_checkpoint,
    write_document,
)
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.orchestration.defs.training import qlora_adapter
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.launchers import Trainer
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.training.common_trainer import StopRequest
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.jobs.processes import do_alone
from mens_pipeline_tests.jobs.ray_head import RayHead, ray_head
from mens_pipeline_tests.orchestration.stores import artifact_in, build_resources, hand_over
from mens_pipeline_tests.training.runs import FAST, pairs, prepare_fast, weights_of, words_of
from mens_pipeline_tests.waits import wait_until

_RECIPE: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "number": 54}
_PATIENCE_SECONDS = 300
"""Workers import the deep learning stack, on a busy machine."""


_OF_DAGSTER_RAY = pytest.mark.filterwarnings(
    "ignore:AssetExecutionContext.dagster_run is deprecated",
    "ignore:ssl=None is deprecated",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""dagster-ray 0.4.8 and Ray read deprecated attributes, and leave sockets and an event loop open."""


@pytest.fixture(scope="module")
def head(request: pytest.FixtureRequest) -> Iterator[RayHead]:
    """Nodes for all tests of this module, each with a simulated GPU: two for nightly tests, else one."""
    is_night = any(item.get_closest_marker("nightly") for item in request.session.items)
    yield from ray_head(num_others=int(is_night), num_gpus=1)


@pytest.fixture
def _on_ray(head: RayHead, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MENS_LAUNCHER", "ray")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # bits depend on threads
    for name, value in head.variables.items():
        monkeypatch.setenv(name, value)
    yield
    import ray  # noqa: PLC0415 - not before: it reads its token once

    ray.shutdown()


@pytest.fixture(scope="module")
def alone(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights that one process trains."""
    run = prepare_fast(tiny_base, tmp_path_factory.mktemp("alone"), num_train_epochs=1, **_RECIPE)
    assert do_alone(run.job.path) == ExitCode.DONE
    return weights_of(run)


def _launch(run: PreparedRun, poll: Callable[[], None] = lambda: None) -> int:
    return run_job(run.job.path, poll, grace_seconds=60, on_ray=True)


def _count_steps(run_dir: Path) -> int:
    log = run_dir / TELEMETRY
    return len(list(steps_of(log))) if log.is_file() else 0


@pytest.mark.slow
@pytest.mark.usefixtures("_on_ray")
def test_a_worker_trains_the_adapter_of_one_process(tiny_base: Path, tmp_path: Path, alone: bytes) -> None:
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=1, **_RECIPE)
    assert _launch(run) == ExitCode.DONE, words_of(run)
    assert weights_of(run) == alone


@pytest.mark.nightly
@pytest.mark.usefixtures("_on_ray")
def test_a_killed_worker_is_replaced(tiny_base: Path, tmp_path: Path, alone: bytes, head: RayHead) -> None:
    """All resume from the newest checkpoint, and the adapter is the same as without the loss."""
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=1, devices=2, **_RECIPE)
    killed: list[int] = []

    def poll() -> None:
        if not killed and _count_steps(run.job.run_dir) >= 4:
            killed.append(head.workers()[-1])
            os.kill(killed[0], signal.SIGKILL)

    assert _launch(run, poll) == ExitCode.DONE, words_of(run)
    assert killed
    assert _count_steps(run.job.run_dir) == 14
    assert '"resumed_from":"checkpoint-' in (run.job.run_dir / TELEMETRY).read_text().replace(" ", "")
    assert weights_of(run) == alone


@pytest.mark.nightly
@pytest.mark.usefixtures("_on_ray")
def test_an_interrupt_of_the_wait_ends_the_workers(tiny_base: Path, tmp_path: Path, head: RayHead) -> None:
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=500, devices=2, save_steps=100_000, **_RECIPE)

    def poll() -> None:
        if _count_steps(run.job.run_dir) >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _launch(run, poll)
    wait_until(lambda: not head.workers(), _PATIENCE_SECONDS)

    assert newest_checkpoint(run.job.run_dir) is not None
    assert find_exit_code(run.job.run_dir) == ExitCode.INTERRUPTED


def _record_place(config: dict[str, str]) -> None:
    """Write the node and the GPU of a worker, which trains nothing, as there is no GPU."""
    import ray.train  # noqa: PLC0415 - of an extra

    rank, node = ray.train.get_context().get_world_rank(), ray.get_runtime_context().get_node_id()
    Path(config["job"]).with_name(f"worker-{rank}").write_text(f"{node} {ray.get_gpu_ids()}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")  # Ray sets what it deprecates
@pytest.mark.nightly
@pytest.mark.usefixtures("_on_ray")
def test_each_worker_has_one_gpu_of_any_node(tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.train.torch  # noqa: PLC0415 - of an extra

    config = ray.train.torch.TorchConfig
    monkeypatch.setattr(ray.train.torch, "TorchConfig", lambda backend: config(backend=backend.replace("nccl", "gloo")))
    monkeypatch.setattr(jobs_ray, "_work", _record_place)
    job = prepare_fast(tiny_base, tmp_path, devices=2, **_RECIPE).job.model_copy(update={"device": "cuda"})
    jobs_ray._fit(job, job.path)  # noqa: SLF001 - the function under test
    found = [path.read_text().split(" ", 1) for path in job.run_dir.glob("worker-*")]

    assert len({node for node, _ in found}) == 2
    assert [gpus for _, gpus in found] == ["[0]", "[0]"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried")])
def test_a_worker_reports_missing_memory(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_job: object) -> None:
        raise error

    job = prepare_fast(tiny_base, tmp_path, **_RECIPE).job
    monkeypatch.setattr(jobs_ray, "load_function", lambda _job: fail)
    with pytest.raises(type(error)):
        jobs_ray._work({"job": str(job.path)})  # noqa: SLF001 - the function under test

    assert "out of memory" in (job.run_dir / FAILURE).read_text()


@pytest.mark.nightly
@pytest.mark.usefixtures("_on_ray")
def test_a_node_without_the_folders_is_refused(tiny_base: Path, tmp_path: Path) -> None:
    run = prepare_fast(tiny_base, tmp_path, **_RECIPE)
    run.job.train_path.rename(tmp_path / "elsewhere")

    assert _launch(run) == ExitCode.REFUSED, words_of(run)
    assert "train.jsonl: not found on this node of the Ray cluster. Mount" in (run.job.run_dir / FAILURE).read_text()


def _materialise(folder: Path, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    made = artifact_in(folder / "store", Kind.MIXED_TRAIN_SET, {}, lambda path: write_jsonl(path / TRAIN, pairs(54)))
    split = artifact_in(folder / "store", Kind.HELDOUT_SPLIT, {}, lambda path: write_jsonl(path / HELDOUT, pairs(1)))
    hand_over(instance, made.ref(split.ref()))
    fields = {**FAST, **_RECIPE, "num_train_epochs": 1000, "devices": 2}
    overrides = {name: value for name, value in fields.items() if name != "number"}
    return dg.materialize(
        [dg.AssetSpec("mixed_train_set"), qlora_adapter],
        instance=instance,
        resources=build_resources(folder / "store", trainer=Trainer(report_seconds=0.0)),
        run_config=dg.RunConfig(ops={"qlora_adapter": {"config": {"preset": "tiny", "overrides": overrides}}}),
        raise_on_error=False,
    )


@_OF_DAGSTER_RAY
@pytest.mark.nightly
@pytest.mark.usefixtures("_on_ray")
def test_a_cancelled_run_ends_its_job(
    tiny_base: Path, tmp_path: Path, head: RayHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415 - of an extra

    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    monkeypatch.setenv("MENS_TRAIN_MODEL_NAME_OR_PATH", str(tiny_base))
    adapters = tmp_path / "store" / "qlora_adapter"

    def cancel() -> None:
        try:
            wait_until(lambda: any(_count_steps(folder) >= 2 for folder in adapters.glob(".work-*")), _PATIENCE_SECONDS)
        finally:  # or the run would go on for an hour
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=cancel)
    thread.start()
    with open_instance(tmp_path / "home") as instance:
        assert not _materialise(tmp_path, instance).success
    thread.join()
    wait_until(lambda: not head.workers(), _PATIENCE_SECONDS)
    (work,) = adapters.glob(".work-*")

    assert newest_checkpoint(work) is not None
    (ours,) = (job for job in JobSubmissionClient().list_jobs() if job.submission_id)  # this process is a driver itself
    wait_until(
        lambda: JobSubmissionClient().get_job_status(ours.submission_id).name in {"STOPPED", "SUCCEEDED"},
        _PATIENCE_SECONDS,
    )


def test_a_file_requests_a_stop_in_place_of_a_signal(tmp_path: Path) -> None:
    found: list[bool] = []

    def work() -> None:
        stop = StopRequest(tmp_path / STOP)
        found.append(stop.is_asked)
        (tmp_path / STOP).touch()
        found.append(stop.is_asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found == [False, True]


def test_the_files_of_a_training_give_its_exit_code(tmp_path: Path) -> None:
    assert find_exit_code(tmp_path) is ExitCode.CRASHED
    (tmp_path / STOP).touch()
    assert find_exit_code(tmp_path) is ExitCode.INTERRUPTED
    (tmp_path / FAILURE).touch()
    assert find_exit_code(tmp_path) is ExitCode.REFUSED
    write_document(tmp_path / RESULT, {})
    assert find_exit_code(tmp_path) is ExitCode.DONE


def test_the_environment_of_a_cluster_has_only_the_token_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-ray")
    monkeypatch.setenv("HF_TOKEN", "of-the-hub")
    environment = ray_environment()

    assert environment["RAY_AUTH_TOKEN"] == "of-ray"  # noqa: S105 - no secret
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_TOKEN" not in environment
    assert "CUDA_VISIBLE_DEVICES" not in environment
