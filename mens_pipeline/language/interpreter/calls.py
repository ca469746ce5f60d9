"""Single functions of a program called with values, in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mens_pipeline.language.ast.declarations import Declaration, Module
from mens_pipeline.language.front_end import DEEP_STACK
from mens_pipeline.language.interpreter.case import error_of
from mens_pipeline.language.interpreter.compiler.calls import CALLABLE
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.limits import Features, Limits
from mens_pipeline.language.interpreter.machine import Machine, time_limit
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.results import ErrorKind, LimitKind, Outcome, Reason, TextName
from mens_pipeline.language.interpreter.values import Native, Refused, Value, kind_name


@dataclass(frozen=True, slots=True)
class CallResult:
    """Outcome of one call.

    `value` is None unless it returned, and no value of the language is None; `reason` is None when it returned or an
    assertion failed; `num_steps` counts the statements and expressions charged.
    """

    outcome: Outcome
    value: Value = None
    reason: Reason | None = None
    message: str = ""
    num_steps: int = 0

    @property
    def returned(self) -> bool:
        """Whether it came to its end."""
        return self.outcome is Outcome.PASSED


class CallableProgram:
    """A parsed program whose functions can be called one by one, each call as good as the first.

    Memory is bounded by counting, time by counting and, in the main thread, by a signal; for programs of strangers do
    this in a process of its own.
    """

    def __init__(self, module: Module, limits: Limits, features: Features) -> None:
        """Make it ready."""
        self.machine = Machine(limits)
        self._program = Program(module, TextName.PROGRAM, self.machine, features)
        self._is_ready = False

    def redefine(self, declaration: Declaration) -> None:
        """Declare a function anew for the calls to come."""
        self._program.redefine(declaration)
        self._is_ready = False

    def define(self, native: Native) -> None:
        """Add a function that is written in Python."""
        self._program.define(native.name, native)
        self._is_ready = False

    @contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        """Allow calls in the body.

        All of them together may take so many seconds; calls after that have run out of time.
        """
        self.machine.begin()
        with DEEP_STACK.parse(), time_limit(self.machine, seconds):
            DEEP_STACK.deepen()
            yield

    def call(self, function: str, arguments: Sequence[Value], max_steps: int | None = None) -> CallResult:
        """Call a function; nothing of earlier calls is left.

        It may take `max_steps`, if those are fewer than the limits say.
        """
        machine = self.machine
        if machine.seconds_over is not None:
            message = f"the calls took more than {machine.seconds_over:g} s"
            return CallResult(Outcome.LIMIT, reason=LimitKind.TIME, message=message)
        machine.begin()
        if max_steps is not None:
            machine.max_steps = max_steps
        found: list[Value] = []
        error = error_of(lambda: found.append(self._invoke(function, arguments)))
        if error is not None:
            return CallResult(error.outcome, None, error.reason, error.message, machine.steps)
        return CallResult(Outcome.PASSED, found[0], num_steps=machine.steps)

    def _invoke(self, function: str, arguments: Sequence[Value]) -> Value:
        names = self._program.names
        if not self._is_ready:
            self._program.begin()
            self._is_ready = True
            self.machine.steps = 0
        callee: Value = names.get(function)
        if type(callee) is Refused:
            raise callee.fault()
        if type(callee) not in CALLABLE:
            found = f"{kind_name(callee)} cannot be called" if callee is not None else f"`{function}` is not defined"
            raise VoxError(ErrorKind.NOT_CALLABLE, found)
        return callee.invoke(self.machine, list(arguments))
