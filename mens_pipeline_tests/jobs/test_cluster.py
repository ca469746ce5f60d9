"""Extraction and behaviour on the nodes of a Ray cluster, as in one process."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from mens_pipeline.corpus.behaviour.observe import observe_behaviour
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers, ObservationJob
from mens_pipeline.corpus.extract.batches import in_batches
from mens_pipeline.corpus.extract.workspace import FileOutcome, extract_workspace
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.jobs import cluster as jobs_cluster
from mens_pipeline.jobs.cluster import ClusterWorker, CorpusPools, ask_cluster, join_cluster
from mens_pipeline.jobs.device import Device, DeviceChoice
from mens_pipeline.language.interpreter import WorkerProcess
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.jobs.ray_head import RayHead, ray_head

_GOLDEN: Final = PROJECT_ROOT / "data" / "golden"
_RIGHT = "fn twice(n: int) to int { return n + n }"
_DIES = (sys.executable, "-c", "raise SystemExit(3)")
_JOB = ObservationJob(_RIGHT, "twice", "", "1")


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    """Two nodes of two CPUs each, with a simulated GPU."""
    yield from ray_head(num_others=1, num_gpus=1)


@pytest.fixture(scope="module")
def extracted_alone() -> list[FileOutcome]:
    """Outcomes of the golden programs, extracted by one process."""
    return list(extract_workspace(_GOLDEN))


@pytest.fixture
def cluster(head: RayHead, monkeypatch: pytest.MonkeyPatch) -> Iterator[CorpusPools]:
    """Pools of the cluster, which is left after the test."""
    for name, value in head.variables.items():
        monkeypatch.setenv(name, value)
    yield join_cluster(head.variables["RAY_ADDRESS"])
    import ray  # noqa: PLC0415 - not before: it reads its token once

    ray.shutdown()


def _find_nodes(jobs: list[int]) -> list[str]:
    import ray  # noqa: PLC0415 - likewise

    return [f"{job} on {ray.get_runtime_context().get_node_id()}" for job in jobs]


def _refuse(jobs: list[int]) -> list[str]:
    raise ValueError(f"cannot work on {jobs}")


@pytest.mark.slow
def test_all_nodes_work_on_batches(cluster: CorpusPools) -> None:
    """In order, on all CPUs of the nodes; an error of a function is raised here."""
    items = [(n, None, 10) for n in range(16)]
    found = [line.split(" on ") for line in in_batches(items, _find_nodes, cluster.batches, 10)]

    assert cluster.batches.size == 4
    assert [int(number) for number, _ in found] == list(range(16))
    assert len({node for _, node in found}) == 2
    with pytest.raises(ValueError, match="cannot work on"):
        list(in_batches(items, _refuse, cluster.batches, 10))


def _resolve_played_device(_choice: DeviceChoice, *, force_cpu: bool) -> Device:
    import ray  # noqa: PLC0415 - likewise

    assert not force_cpu
    return Device("cuda", f"GPU {ray.get_gpu_ids()}", 80.0, has_bfloat16=True)


@pytest.mark.nightly
def test_a_cluster_reports_the_devices_of_its_workers(
    head: RayHead, cluster: CorpusPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks a worker with a GPU, and counts the GPUs of all nodes; a refusal there is raised here."""
    assert cluster.batches.size == 4
    address = head.variables["RAY_ADDRESS"]
    assert ask_cluster(address, DeviceChoice.CPU, force_cpu=False).kind == "cpu"
    with pytest.raises(RefusedError, match=rf"^Ray cluster {address}: device cuda: torch finds no such device"):
        ask_cluster(address, DeviceChoice.CUDA, force_cpu=False)
    monkeypatch.setattr(jobs_cluster, "resolve_device", _resolve_played_device)
    device = ask_cluster(address, DeviceChoice.BEST, force_cpu=False)

    name = f"GPU [0], of the Ray cluster {address}"
    assert device == Device("cuda", name, 80.0, has_bfloat16=True, number=2)


@pytest.mark.nightly
def test_extracts_a_workspace_like_one_process(extracted_alone: list[FileOutcome], cluster: CorpusPools) -> None:
    assert list(extract_workspace(_GOLDEN, pool=cluster.batches)) == extracted_alone


@pytest.mark.nightly
def test_functions_are_observed_and_stopped_on_a_node(cluster: CorpusPools) -> None:
    with cluster.observers() as workers:
        assert workers.num_workers == cluster.batches.size
        assert list(workers.observe([_JOB])) == [observe_behaviour(_RIGHT, "twice", seed="1")]
    with BehaviourWorkers(command=_DIES, launch=ClusterWorker) as workers:
        assert list(workers.observe([_JOB])) == [NoBehaviour.STOPPED]


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_other_pools_of_the_process_stay_here() -> None:
    with BehaviourWorkers() as workers:
        assert (workers.num_workers, workers.launch) == (2, WorkerProcess)


@pytest.mark.nightly
def test_work_of_a_lost_node_is_repeated(head: RayHead, cluster: CorpusPools) -> None:
    with cluster.observers() as workers:
        observed = workers.observe([_JOB] * 400)
        first = next(observed)
        killed = head.find(b"ray::_Host")
        for number in killed:
            os.kill(number, signal.SIGKILL)
        assert [*observed] == [first] * 399
    assert killed


class _LostHost:
    """Ends its process at each request, like a lost node."""

    def __init__(self, *_: object) -> None:
        """Start no worker."""

    def exchange(self, _request: object, _seconds: float) -> None:
        os._exit(1)


@pytest.mark.nightly
def test_a_worker_that_is_lost_each_time_is_refused(monkeypatch: pytest.MonkeyPatch, cluster: CorpusPools) -> None:
    monkeypatch.setattr(jobs_cluster, "_Host", _LostHost)
    with cluster.observers() as workers, pytest.raises(RefusedError, match=r"^Ray: .* was lost 4 times .*`ray status`"):
        list(workers.observe([_JOB]))


def test_a_missing_cluster_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match=r"^RAY_ADDRESS=127.0.0.1:1: cannot .*refused.*`ray start --head`"):
        join_cluster("127.0.0.1:1")
