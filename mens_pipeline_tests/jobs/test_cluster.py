"""Extraction, behaviour and hidden tests on the nodes of a Ray cluster: what one process makes."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from mens_pipeline.corpus.behaviour.observe import behaviour_of
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers, Job
from mens_pipeline.corpus.extract.batches import Pools, in_batches
from mens_pipeline.corpus.extract.workspace import FileOutcome, extract_workspace
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.judge import run_hidden_tests
from mens_pipeline.jobs import cluster as jobs_cluster
from mens_pipeline.jobs.cluster import work_on_cluster
from mens_pipeline.language.interpreter import WorkerPool
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.jobs.ray_head import RayHead, ray_head

_GOLDEN: Final = PROJECT_ROOT / "data" / "golden"
_RIGHT = "fn twice(n: int) to int { return n + n }"
_WRONG = "fn twice(n: int) to int { return n }"
_DIES = (sys.executable, "-c", "raise SystemExit(3)")
_JOB = Job(_RIGHT, "twice", "", "1")
_TESTS = "@test fn two() { assert(twice(1) is 2) }"


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    """Two nodes of two CPUs each."""
    yield from ray_head(num_others=1)


@pytest.fixture(scope="module")
def extracted_alone() -> list[FileOutcome]:
    """Outcomes of the golden programs, extracted by one process."""
    return list(extract_workspace(_GOLDEN))


@pytest.fixture
def cluster(head: RayHead, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Work on the cluster for the time of a test; its number of CPUs."""
    for name, value in head.variables.items():
        monkeypatch.setenv(name, value)
    for owner, name in ((Pools, "new"), (Pools, "at_once"), (WorkerPool, "launch"), (WorkerPool, "at_once")):
        monkeypatch.setattr(owner, name, vars(owner)[name])
    work_on_cluster(head.variables["RAY_ADDRESS"])
    import ray  # noqa: PLC0415 - not before: it reads its token once

    yield Pools.at_once or 0
    ray.shutdown()


def _node_of(jobs: list[int]) -> list[str]:
    import ray  # noqa: PLC0415 - likewise

    return [f"{job} on {ray.get_runtime_context().get_node_id()}" for job in jobs]


def _refuse(jobs: list[int]) -> list[str]:
    raise ValueError(f"cannot work on {jobs}")


@pytest.mark.slow
def test_batches_are_worked_on_by_all_nodes(cluster: int) -> None:
    """In order, on as many CPUs as the nodes have; what a function raises is raised here."""
    found = [line.split(" on ") for line in in_batches([(n, None, 10) for n in range(16)], _node_of, 1, 10)]

    assert cluster == 4
    assert [int(number) for number, _ in found] == list(range(16))
    assert len({node for _, node in found}) == 2
    with pytest.raises(ValueError, match="cannot work on"):
        list(in_batches([(n, None, 10) for n in range(16)], _refuse, 1, 10))


@pytest.mark.nightly
def test_a_workspace_is_extracted_as_by_one_process(extracted_alone: list[FileOutcome], cluster: int) -> None:
    """Every record of the golden programs; batches are small here, so that every node has some."""
    assert list(extract_workspace(_GOLDEN, workers=cluster)) == extracted_alone


@pytest.mark.nightly
def test_programs_are_run_and_stopped_on_a_node(cluster: int) -> None:
    """As here; a worker that dies says nothing of the function."""
    assert [one.num_passed for one in run_hidden_tests([(_RIGHT, _TESTS), (_WRONG, _TESTS)])] == [1, 0]
    with BehaviourWorkers() as workers:
        assert workers.num_workers == cluster
        assert list(workers.observe([_JOB])) == [behaviour_of(_RIGHT, "twice", seed="1")]
    with BehaviourWorkers(command=_DIES) as workers:
        assert list(workers.observe([_JOB])) == [NoBehaviour.STOPPED]


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_what_a_lost_node_did_is_done_again(head: RayHead) -> None:
    """The processes that start workers are killed under way: the same is observed."""
    with BehaviourWorkers() as workers:
        observed = workers.observe([_JOB] * 400)
        first = next(observed)
        killed = head.find(b"ray::_Host")
        for number in killed:
            os.kill(number, signal.SIGKILL)
        assert [*observed] == [first] * 399
    assert killed


class _LostHost:
    """Ends its process at each request, as a node does that is lost."""

    def __init__(self, *_: object) -> None:
        """Start no worker."""

    def exchange(self, _request: object, _seconds: float) -> None:
        os._exit(1)


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_lost_each_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line; the same request ends the process on every node."""
    monkeypatch.setattr(jobs_cluster, "_Host", _LostHost)
    with BehaviourWorkers() as workers, pytest.raises(RefusedError, match=r"^Ray: .* was lost 4 times .*`ray status`"):
        list(workers.observe([_JOB]))


def test_a_machine_without_a_cluster_is_told_how_to_join() -> None:
    """In one line, and soon."""
    with pytest.raises(ConfigurationError, match=r"^RAY_ADDRESS=127.0.0.1:1: no cluster .*refused.*`ray start --head`"):
        work_on_cluster("127.0.0.1:1")
