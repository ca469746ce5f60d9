"""Observe and test untrusted functions in worker processes.

Programs of the workspace and rows that models wrote are untrusted. The interpreter has no access to the outside, but a
regular expression can take forever and a value can still be large. A worker has limited memory, and is killed and
replaced if it does not reply in time. So no program can stop or harm a stage.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from itertools import islice
from math import ceil
from typing import Any, BinaryIO, Final

from pydantic import TypeAdapter

from mens_pipeline.corpus.behaviour.arguments import Drawing, UndrawableError
from mens_pipeline.corpus.behaviour.observe import FEATURES, LIMITS, Behaviour, function_in, observe_behaviour, passes
from mens_pipeline.corpus.behaviour.screening import Screening, TaskFunction, TaskStatus
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze
from mens_pipeline.language.interpreter import (
    MOST_LEVELS,
    CallableProgram,
    Limits,
    Value,
    VariantValue,
    WorkerPool,
    WorkerProcess,
    WorkerStoppedError,
    confine,
    literal_of,
    serve,
    with_given,
    worker_command,
)

WORKER_COMMAND: Final = worker_command("mens_pipeline.corpus.behaviour.workers")

_LIMITS: Final = Limits()  # only the memory limit is used
_AT_ONCE: Final = 64  # requests in memory at once, so that sources of any length can be streamed


@dataclass(frozen=True, slots=True)
class ObservationJob:
    """A function to observe, in `source`; `given` holds declarations that it needs but a completion need not repeat."""

    source: str
    function: str
    given: str
    seed: str


_REPLIES: Final[TypeAdapter[Behaviour | NoBehaviour]] = TypeAdapter(Behaviour | NoBehaviour)


class BehaviourWorkers(WorkerPool):
    """Worker processes that observe and test functions."""

    def __init__(
        self,
        num_workers: int = 2,
        *,
        command: Sequence[str] = WORKER_COMMAND,
        seconds: float = 60.0,
        launch: type[WorkerProcess] = WorkerProcess,
    ) -> None:
        """Configure the pool; workers start on demand. `seconds` is the time limit of one request."""
        super().__init__(num_workers, command, _LIMITS, launch)
        self._seconds = seconds

    def observe(self, jobs: Iterable[ObservationJob]) -> Iterator[Behaviour | NoBehaviour]:
        """Yield the behaviour of functions, in order; `STOPPED` if the worker had to be replaced."""
        requests = ({"kind": "observe", **asdict(job)} for job in jobs)
        for reply in self._replies(requests):
            yield NoBehaviour.STOPPED if reply is None else _REPLIES.validate_python(reply)

    def statuses(self, tasks: Iterable[TaskFunction]) -> Iterator[TaskStatus]:
        """Yield whether the tests of each task are evidence; `FAILS` if the task stopped its worker."""
        for reply in self._replies({"kind": "status", "tasks": [astuple(task)]} for task in tasks):
            yield TaskStatus.FAILS if reply is None else TaskStatus(reply[0])

    def first_passed(self, tried: Iterable[tuple[str, str, Sequence[TaskFunction]]]) -> Iterator[int | None]:
        """Yield the index of the first task that a function solves; None if there is none or its worker stopped."""
        requests = (
            {"kind": "try", "program": program, "function": function, "tasks": [astuple(task) for task in tasks]}
            for program, function, tasks in tried
        )
        yield from self._replies(requests)

    def outputs(self, programs: Sequence[str], function: str, seed: str) -> Iterator[list[str | None] | None]:
        """Yield `compute_outputs` for each program; None if the program stops its worker."""
        common = {"kind": "outputs", "programs": list(programs), "function": function, "seed": seed}
        yield from self._replies({**common, "number": number} for number in range(len(programs)))

    def _replies(self, requests: Iterable[dict[str, Any]]) -> Iterator[Any]:
        waiting = iter(requests)
        with ThreadPoolExecutor(self.num_workers) as threads:
            while batch := list(islice(waiting, _AT_ONCE)):
                yield from threads.map(self._exchange, batch)

    def _exchange(self, request: dict[str, Any]) -> Any:
        with self.worker() as worker, suppress(WorkerStoppedError):
            return worker.exchange(request, self._seconds)


_NUM_CALLS: Final = 24
_SECONDS_OF_CALLS: Final = 2.0
"""Time limit for all calls of one program; the step limit almost always applies earlier."""
_LONGEST: Final = 1_000  # characters of a compared result


def compute_outputs(programs: Sequence[str], number: int, function: str, seed: str) -> list[str | None]:
    """Call the function of the program at index `number`, and return its results.

    The arguments are drawn from all accepted programs, about as many from each, and equal for every `number`. A result
    is Vox text; None if the call did not return or has no such text. Empty if nothing can be drawn.
    """
    modules = [analyze(program).module for program in programs]
    arguments: dict[str, tuple[Value, ...]] = {}
    each = ceil(_NUM_CALLS / len(programs))
    for place, module in enumerate(modules):
        if module is None:
            continue
        with suppress(RefusedError, UndrawableError):  # there is no such function, or nothing to draw
            declaration = function_in(module, function)
            syntax: Any = getattr(declaration, "function", declaration)
            generics = getattr(syntax, "generics", ())
            drawn = Drawing(module).lists(syntax.params, generics, f"{seed}:{place}:{function}")
            for values in islice(drawn, each):
                arguments.setdefault(str([literal_of(value) for value in values]), values)
    called = modules[number]
    if called is None:
        return [None] * len(arguments)
    program = CallableProgram(called, LIMITS, FEATURES)
    with program.running(_SECONDS_OF_CALLS):
        results = [program.call(function, values) for values in arguments.values()]
        # Equal records give equal texts, whatever the order of their fields.
        texts = [literal_of(_order_fields(result.value)) if result.returned else None for result in results]
        return [text if text is not None and len(text) <= _LONGEST else None for text in texts]


def _order_fields(value: Value, level: int = 0) -> Value:
    kind = type(value)
    if level > MOST_LEVELS:
        return value
    if kind is dict:
        return {key: _order_fields(value[key], level + 1) for key in sorted(value)}
    if kind is list or kind is tuple:
        return kind(_order_fields(part, level + 1) for part in value)
    if kind is VariantValue:
        return VariantValue(value.name, tuple(_order_fields(part, level + 1) for part in value.fields))
    return value


_WARM_UP = "fn f(n: int, s: str) to str { if n > 3 { return s } return str(1.5dec) + s.to_upper() }"


class Responder:
    """Replies to the requests of one worker."""

    def __init__(self) -> None:
        self._screening = Screening()

    def respond(self, request: dict[str, Any]) -> Any:
        """Reply to a request in JSON types.

        Its `kind` is `observe` (a function), `outputs` (of a function of several programs), `status` (of a tested
        function) or `try` (a function on tests).
        """
        if request["kind"] == "observe":
            return _observe(request)
        if request["kind"] == "outputs":
            return compute_outputs(request["programs"], request["number"], request["function"], request["seed"])
        tasks = [TaskFunction(*task) for task in request["tasks"]]
        if request["kind"] == "status":
            return [self._screening.status(task) for task in tasks]
        return self._screening.first_passed(request["program"], request["function"], tasks)


def main(memory_bytes: int, requests: BinaryIO, replies: BinaryIO, give_up: Callable[[int], object] = confine) -> None:
    """Warm up, confine this process to `memory_bytes` by `give_up`, and reply to requests."""
    responder = Responder()
    warm = responder.respond({"kind": "observe", "source": _WARM_UP, "function": "f", "given": "", "seed": ""})
    responder.respond({"kind": "status", "tasks": [[_WARM_UP, warm["tests"], "f"]]})
    kept = give_up(memory_bytes)
    serve(requests, replies, responder.respond, kept)


def _observe(request: dict[str, Any]) -> Any:
    """Observe a function; its tests include the `given` declarations, which a completion need not repeat."""
    given, alone = request["given"], request["source"]
    behaviour = observe_behaviour(f"{given}\n\n{alone}", request["function"], seed=request["seed"])
    if isinstance(behaviour, NoBehaviour):
        return behaviour
    tests = with_given(given, behaviour.tests)
    if given and not passes(alone, tests):
        return NoBehaviour.ENTANGLED
    return {**asdict(behaviour), "tests": tests}
