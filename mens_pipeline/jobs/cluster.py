"""Build the corpus on the nodes of a Ray cluster instead of in processes of this machine.

Batches of files and of synthetic tasks become Ray tasks. Workers that run programs are confined processes, as on this
machine; a Ray actor on the same node starts each of them. Ray replaces a lost node and repeats its work. Results come
in order and depend only on their inputs, as in a single process. Every node needs the workspace at the same path.
"""

import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, NamedTuple

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.jobs.environment import worker_environment
from mens_pipeline.language.interpreter import LimitKind, Limits, WorkerProcess, WorkerStoppedError

_RESTARTS: Final = 3
"""Number of nodes that one actor or task may lose."""
_PATIENCE_SECONDS: Final = 10.0


class CorpusPools(NamedTuple):
    """Pools of the corpus: one for batches of files and tasks, one for observing functions."""

    batches: Pool
    observers: Callable[[], BehaviourWorkers]


def join_cluster(address: str) -> CorpusPools:
    """Join a Ray cluster, and return pools with one process for each of its CPUs.

    Raise a `ConfigurationError` if there is no cluster at the address, or this machine is not one of its nodes.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdecimal():  # Ray would retry for minutes, and it reads its token only at import
            socket.create_connection((host, int(port)), _PATIENCE_SECONDS).close()
        import ray

        if not ray.is_initialized():
            _join(address)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        advice = 'Install the extra "cluster", start Ray with `ray start --head`, and join with `ray start --address`.'
        raise ConfigurationError(f"RAY_ADDRESS={address}: cannot join a Ray cluster ({error}). {advice}") from error
    num_processes = max(1, int(ray.cluster_resources().get("CPU", 1)))
    observers = partial(BehaviourWorkers, num_processes, launch=ClusterWorker)
    return CorpusPools(Pool(num_processes, ClusterExecutor), observers)


@cache
def ask_cluster(address: str, choice: DeviceChoice, *, force_cpu: bool) -> Device:
    """Return the device of a Ray worker, with the number of GPUs in the cluster; wait for a GPU to be free.

    Raise a `RefusedError` if `resolve_device` fails on the worker, or a `ConfigurationError` like `join_cluster`.
    """
    join_cluster(address)
    import ray

    number = int(ray.cluster_resources().get("GPU", 0))
    is_gpu = number > 0 and choice is not DeviceChoice.CPU and not force_cpu
    try:
        device: Device = ray.get(ray.remote(num_gpus=int(is_gpu))(resolve_device).remote(choice, force_cpu=force_cpu))
    except ray.exceptions.RayTaskError as error:
        raise RefusedError(f"Ray cluster {address}: {error.cause}") from error
    return replace(device, name=f"{device.name}, of the Ray cluster {address}", number=number)


def _join(address: str) -> None:
    """Connect to a cluster, and restore the SIGTERM handler that Ray replaces."""
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address, runtime_env={"env_vars": worker_environment()}, log_to_driver=False, configure_logging=False)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


class ClusterExecutor(Executor):
    """Executor that runs functions as Ray tasks, spread over the nodes."""

    def __init__(self, _: int) -> None:
        import ray

        options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", "max_retries": _RESTARTS}
        self._call = ray.remote(**options)(_call)
        self._running: list[tuple[Any, Future[Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function as a Ray task, and return its future; the nodes must be able to import the function."""
        self._running = [(ref, future) for ref, future in self._running if not future.done()]
        ref = self._call.remote(work, args, kwargs)
        future: Future[Any] = ref.future()
        self._running.append((ref, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - its name
        """Cancel unfinished tasks if `cancel_futures` is set, and wait for tasks if `wait` is set."""
        import ray

        for ref, future in self._running:
            if cancel_futures and not future.done():
                ray.cancel(ref)
            if wait:
                future.exception()


def _call(work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return work(*args, **kwargs)


class ClusterWorker(WorkerProcess):
    """A worker process on a node of the cluster."""

    def __init__(self, command: Sequence[str], limits: Limits) -> None:
        import ray

        # No CPU is reserved: the two pools of a stage, with one process per CPU each, would wait for each other.
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        options |= {"max_restarts": _RESTARTS, "max_task_retries": _RESTARTS}
        self._actor: Any = ray.remote(**options)(_Host).remote(command[1:], limits)

    def exchange(self, request: object, seconds: float) -> Any:
        """Send a request and return the reply; raise a `RefusedError` if more nodes are lost than Ray replaces."""
        import ray

        try:
            reply, stopped = ray.get(self._actor.exchange.remote(request, seconds))
        except ray.exceptions.RayActorError as error:
            found = f"a node that ran programs was lost {_RESTARTS + 1} times ({str(error).splitlines()[0]})"
            raise RefusedError(f"Ray: {found}. Check `ray status`, and run the command again.") from error
        if stopped is not None:
            raise WorkerStoppedError(*stopped)
        return reply

    def end(self) -> None:
        """End the worker and its actor."""
        import ray

        ray.kill(self._actor)


class _Host:
    def __init__(self, words: Sequence[str], limits: Limits) -> None:
        self._worker = WorkerProcess((sys.executable, *words), limits)

    def exchange(self, request: object, seconds: float) -> tuple[Any, tuple[LimitKind, str] | None]:
        try:
            return self._worker.exchange(request, seconds), None
        except WorkerStoppedError as error:
            return None, (error.limit, error.message)
