"""Functions of strangers observed and tried in worker processes.

The workspace's programs, and rows that models wrote, are strangers' code. The interpreter cannot reach out, but a
regular expression can take for ever and a counted value can still be large: a worker has bounded memory, is killed when
it says nothing in time, and is replaced. So no program can stop or harm the stage that looks at it.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from typing import Any, Final

from mens_pipeline.corpus.behaviour.observe import Behaviour, NoBehaviour
from mens_pipeline.corpus.behaviour.screening import TaskFunction, TaskStatus
from mens_pipeline.corpus.behaviour.worker import behaviour_from
from mens_pipeline.language.interpreter import Limits
from mens_pipeline.language.interpreter.worker_process import WorkerPool, WorkerStoppedError, worker_command

WORKER_COMMAND: Final = worker_command("mens_pipeline.corpus.behaviour.worker")

_LIMITS: Final = Limits()
"""Of which the memory counts."""

_SECONDS: Final = 60.0
"""Of one request, unless told otherwise."""
_AT_ONCE: Final = 64
"""Requests taken up at once, so that sources of any length are read as they are used."""


@dataclass(frozen=True, slots=True)
class Job:
    """A function to observe.

    `source` is its declaration, as an answer would be; `given` holds declarations that it needs and an answer need not
    repeat, empty for none.
    """

    source: str
    function: str
    given: str
    seed: str


class BehaviourWorkers(WorkerPool):
    """Worker processes that observe and try functions."""

    def __init__(
        self, num_workers: int = 2, *, command: Sequence[str] = WORKER_COMMAND, seconds: float = _SECONDS
    ) -> None:
        """Set the number of processes; nothing is started yet.

        A worker may take so many seconds for one request.
        """
        super().__init__(num_workers, command, _LIMITS)
        self._seconds = seconds

    def observe(self, jobs: Iterable[Job]) -> Iterator[Behaviour | NoBehaviour]:
        """Observe functions.

        Yields:
            What was observed, in the same order; `STOPPED` where the worker had to be replaced.
        """
        requests = ({"kind": "observe", **asdict(job)} for job in jobs)
        for answer in self._answers(requests):
            yield NoBehaviour.STOPPED if answer is None else behaviour_from(answer)

    def statuses(self, tasks: Iterable[TaskFunction]) -> Iterator[TaskStatus]:
        """Return whether the tests of tasks say something about functions that pass them.

        Yields:
            The status of each; that of a task that stops its worker is that its reference fails.
        """
        for answer in self._answers({"kind": "status", "tasks": [astuple(task)]} for task in tasks):
            yield TaskStatus.FAILS if answer is None else TaskStatus(answer[0])

    def first_passed(self, tried: Iterable[tuple[str, str, Sequence[TaskFunction]]]) -> Iterator[int | None]:
        """Try functions, each by its program and its name, on the tests of tasks.

        Yields:
            The place of the first task whose tests it passes; None where it passes none, or stops its worker.
        """
        requests = (
            {"kind": "try", "program": program, "function": function, "tasks": [astuple(task) for task in tasks]}
            for program, function, tasks in tried
        )
        yield from self._answers(requests)

    def outputs(self, programs: Sequence[str], function: str, seed: str) -> Iterator[list[str | None] | None]:
        """Call a function of several programs with the same arguments.

        Yields:
            For each program what `outputs_of` says; None where the program stops its worker.
        """
        common = {"kind": "outputs", "programs": list(programs), "function": function, "seed": seed}
        yield from self._answers({**common, "number": number} for number in range(len(programs)))

    def _answers(self, requests: Iterable[dict[str, Any]]) -> Iterator[Any]:
        """Yield the replies in order; None where a worker had to be replaced."""
        waiting = iter(requests)
        with ThreadPoolExecutor(self.num_workers) as threads:
            while batch := list(islice(waiting, _AT_ONCE)):
                yield from threads.map(self._answer, batch)

    def _answer(self, request: dict[str, Any]) -> Any:
        with self.worker() as worker:
            try:
                return worker.exchange(request, self._seconds)
            except WorkerStoppedError:
                return None
