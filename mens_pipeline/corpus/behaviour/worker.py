"""The process in which functions of strangers are observed and tried; it can reach nothing, as that of the sandbox."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, BinaryIO

from mens_pipeline.corpus.behaviour.observe import Behaviour, NoBehaviour, Observation, behaviour_of, passes
from mens_pipeline.corpus.behaviour.outputs import outputs_of
from mens_pipeline.corpus.behaviour.screening import Screening, TaskFunction
from mens_pipeline.language.interpreter.hidden_tests import with_given
from mens_pipeline.language.interpreter.worker import confine, serve

_WARM_UP = "fn f(n: int, s: str) to str { if n > 3 { return s } return str(1.5dec) + s.to_upper() }"


class Responder:
    """Answers the requests of one worker."""

    def __init__(self) -> None:
        """Begin without any task."""
        self._screening = Screening()

    def respond(self, request: dict[str, Any]) -> Any:
        """Answer a request.

        Args:
            request: Its `kind`, and what that takes: `observe` a function, `outputs` of a function of several
                programs, `status` of a tested function, `try` a function on tests.

        Returns:
            The answer in JSON types.
        """
        if request["kind"] == "observe":
            return _observed(request)
        if request["kind"] == "outputs":
            return outputs_of(request["programs"], request["number"], request["function"], request["seed"])
        tasks = [TaskFunction(*task) for task in request["tasks"]]
        if request["kind"] == "status":
            return [self._screening.status(task) for task in tasks]
        return self._screening.first_passed(request["program"], request["function"], tasks)


def behaviour_from(record: dict[str, Any]) -> Behaviour | NoBehaviour:
    """Convert the reply of a worker to the behaviour it observed, or to the reason why there is none.

    Args:
        record: The answer.
    """
    if "reason" in record:
        return NoBehaviour(record["reason"])
    examples, hidden = (tuple(Observation(**seen) for seen in record[name]) for name in ("examples", "hidden"))
    return Behaviour(examples, hidden, record["tests"], record["num_mutants"], record["num_killed"])


def main(memory_bytes: int, requests: BinaryIO, answers: BinaryIO, give_up: Callable[[int], object] = confine) -> None:
    """Warm up, give everything up, answer.

    Args:
        memory_bytes: Address space that remains.
        requests: A request a line.
        answers: Takes an answer a line.
        give_up: Confines this process, and says what is kept from it.
    """
    responder = Responder()
    warm = responder.respond({"kind": "observe", "source": _WARM_UP, "function": "f", "given": "", "seed": ""})
    responder.respond({"kind": "status", "tasks": [[_WARM_UP, warm["tests"], "f"]]})
    kept = give_up(memory_bytes)
    serve(requests, answers, responder.respond, kept)


def _observed(request: dict[str, Any]) -> dict[str, Any]:
    """Observe a function; its tests hold the declarations that it needs and a completion need not repeat."""
    given, alone = request["given"], request["source"]
    behaviour = behaviour_of(f"{given}\n\n{alone}", request["function"], seed=request["seed"])
    if isinstance(behaviour, NoBehaviour):
        return {"reason": behaviour}
    tests = with_given(given, behaviour.tests)
    if given and not passes(alone, tests):
        return {"reason": NoBehaviour.ENTANGLED}
    return {**asdict(behaviour), "tests": tests}
