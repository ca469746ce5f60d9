"""The process in which functions of strangers are observed and tried; it can reach nothing, as that of the sandbox."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from math import ceil
from typing import Any, BinaryIO, Final

from mens_pipeline.corpus.behaviour.arguments import Drawing, UndrawableError
from mens_pipeline.corpus.behaviour.observe import (
    FEATURES,
    LIMITS,
    Behaviour,
    NoBehaviour,
    Observation,
    behaviour_of,
    function_in,
    passes,
)
from mens_pipeline.corpus.behaviour.screening import Screening, TaskFunction
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.interpreter.calls import CallableProgram
from mens_pipeline.language.interpreter.hidden_tests import with_given
from mens_pipeline.language.interpreter.literals import MOST_LEVELS, literal_of
from mens_pipeline.language.interpreter.values import Value, Variant
from mens_pipeline.language.interpreter.worker import confine, serve

_NUM_CALLS: Final = 24
_SECONDS: Final = 2.0
"""Of all calls of one program; steps end nearly everything far sooner."""
_LONGEST: Final = 1_000
"""Characters of a result that is compared."""


def outputs_of(programs: Sequence[str], number: int, function: str, seed: str) -> list[str | None]:
    """Call the function of one of several programs.

    The arguments are drawn from all of them, about as many from each, by the types of the parameters and with the
    literals of the program; they are the same whichever program is called.

    The one at the place `number` is called; programs that are rejected count for nothing.

    Returns:
        What each call returned, as Vox text; None where it did not, or where that cannot be written. Nothing where
        nothing can be drawn.
    """
    modules = [analyze(program).module for program in programs]
    arguments: dict[str, tuple[Value, ...]] = {}
    each = ceil(_NUM_CALLS / len(programs))
    for place, module in enumerate(modules):
        drawn = _drawn(module, function, f"{seed}:{place}") if module is not None else ()
        for values in islice(drawn, each):
            arguments.setdefault(str([literal_of(value) for value in values]), values)
    called = modules[number]
    if called is None:
        return [None] * len(arguments)
    program = CallableProgram(called, LIMITS, FEATURES)
    with program.running(_SECONDS):
        results = [program.call(function, values) for values in arguments.values()]
        return [_text_of(result.value) if result.returned else None for result in results]


def _drawn(module: Module, function: str, seed: str) -> Iterator[tuple[Value, ...]]:
    """Draw argument lists for a function; none where there is no such function, or nothing to draw."""
    with suppress(RefusedError, UndrawableError):
        declaration = function_in(module, function)
        syntax: Any = getattr(declaration, "function", declaration)
        yield from Drawing(module).lists(syntax.params, getattr(syntax, "generics", ()), f"{seed}:{function}")


def _text_of(value: Value) -> str | None:
    """Return a value as text that is equal for equal records, in whatever order their fields were written."""
    text = literal_of(_ordered(value))
    return text if text is not None and len(text) <= _LONGEST else None


def _ordered(value: Value, level: int = 0) -> Value:
    """Return a value whose records have their fields in order, as deep as values are written."""
    kind = type(value)
    if level > MOST_LEVELS:
        return value
    if kind is dict:
        return {key: _ordered(value[key], level + 1) for key in sorted(value)}
    if kind is list or kind is tuple:
        return kind(_ordered(part, level + 1) for part in value)
    if kind is Variant:
        return Variant(value.name, tuple(_ordered(part, level + 1) for part in value.fields))
    return value


_WARM_UP = "fn f(n: int, s: str) to str { if n > 3 { return s } return str(1.5dec) + s.to_upper() }"


class Responder:
    """Answers the requests of one worker."""

    def __init__(self) -> None:
        """Begin without any task."""
        self._screening = Screening()

    def respond(self, request: dict[str, Any]) -> Any:
        """Answer a request in JSON types.

        Its `kind` decides what it takes: `observe` a function, `outputs` of a function of several programs, `status` of
        a tested function, `try` a function on tests.
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
    """Convert the reply of a worker to the behaviour it observed, or to the reason why there is none."""
    if "reason" in record:
        return NoBehaviour(record["reason"])
    examples, hidden = (tuple(Observation(**seen) for seen in record[name]) for name in ("examples", "hidden"))
    return Behaviour(examples, hidden, record["tests"], record["num_mutants"], record["num_killed"])


def main(memory_bytes: int, requests: BinaryIO, answers: BinaryIO, give_up: Callable[[int], object] = confine) -> None:
    """Warm up, give everything up, answer.

    Of the address space, `memory_bytes` remain; `give_up` confines this process and says what is kept from it.
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
