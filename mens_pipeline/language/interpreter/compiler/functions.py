"""Functions, lambdas and what happens when they are called (3.2 of the run-time rules)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mens_pipeline.language.ast.expressions import Lambda, SideEffect
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.interpreter.compiler.blocks import block
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.faults import ReturnSignal, VoxError
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import LimitKind
from mens_pipeline.language.interpreter.values import Value, arity_error

_SLOTS_A_STEP = 64
"""Captured locals for the price of one step."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled function.

    `defaults` are one a parameter, None where it must be given; `blank` is the rest of the frame, behind captured
    values and parameters.
    """

    body: Code
    defaults: tuple[Code | None, ...]
    blank: list[Value]


class Function:
    """A function value: a module-level function or a lambda with the values it captured (C5, C6)."""

    __slots__ = ("_captured", "_make", "_plan", "name", "parameter_names")

    def __init__(self, name: str, params: Sequence[Param], make: Callable[[], Plan], captured: list[Value]) -> None:
        """Compile when it is first called: most functions of a program are not reached by most tests.

        `captured` are the locals around it, copied when it was created.
        """
        self.name = name
        self.parameter_names = tuple(param.name for param in params)
        self._make = make
        self._plan: Plan | None = None
        self._captured = captured

    def invoke(self, machine: Machine, arguments: list[Value]) -> Value:
        """Call it, and return what it returns, or the value of its last statement.

        Raises:
            VoxError: The number of arguments is wrong, too many calls are open, or its body fails.
        """
        plan = self._plan
        if plan is None:
            plan = self._plan = self._make()
        num_missing = len(self.parameter_names) - len(arguments)
        frame = self._captured + arguments + ([None] * num_missing if num_missing > 0 else []) + plan.blank
        machine.depth += 1
        if machine.depth > machine.max_depth:
            raise VoxError(
                LimitKind.DEPTH, f"more than {machine.max_depth:,} calls of `{self.name}` and others are open"
            )
        if num_missing:
            self._fill(plan, len(arguments), frame)
        try:
            value = plan.body(frame)
        except ReturnSignal as signal:
            value = signal.value
        machine.depth -= 1
        return value

    def _fill(self, plan: Plan, num_given: int, frame: Frame) -> None:
        """Defaults from left to right in the scope of the function (C3)."""
        num_params = len(self.parameter_names)
        for index in range(num_given, num_params):
            default = plan.defaults[index]
            if default is None:
                break
            frame[len(self._captured) + index] = default(frame)
        else:
            if num_given <= num_params:
                return
        fewest = sum(default is None for default in plan.defaults)
        expected = str(num_params) if fewest == num_params else f"{fewest} to {num_params}"
        raise arity_error(self.name, expected, num_given)


def plan_of(params: Sequence[Param], scope: Scope, compile_body: Callable[[Scope], Code]) -> Plan:
    """Compile a function.

    `scope` is its own outermost one; `compile_body` compiles its body there, parameters declared.
    """
    defaults: list[Code | None] = []
    first = scope.layout.size
    scope.layout.size += len(params)
    for index, param in enumerate(params):
        defaults.append(scope.code(param.default) if param.default is not None else None)
        scope.bind_parameter(param.name, first + index)
    body = compile_body(scope)
    return Plan(body, tuple(defaults), [None] * (scope.layout.size - first - len(params)))


def lambda_(node: Lambda, scope: Scope) -> Code:
    """Compile a lambda, which copies the locals it can see when it is created (C6)."""

    def compile_body(inner: Scope) -> Code:
        body, cost = inner.stretch(node.body)
        machine = inner.module.machine

        def run(frame: Frame) -> Value:
            machine.charge(cost)
            return body(frame)

        return run

    return _closure("lambda", node.params, scope, compile_body)


def side_effect(node: SideEffect, scope: Scope) -> Code:
    """`side_effect`: a lambda without parameters, called at once (U2)."""
    create = _closure("side_effect", (), scope, lambda inner: block(node.statements, inner, is_function_body=True))
    machine = scope.module.machine
    return lambda frame: create(frame).invoke(machine, [])


def _closure(name: str, params: Sequence[Param], scope: Scope, compile_body: Callable[[Scope], Code]) -> Code:
    visible = scope.layout.size
    scope.layout.cost += visible // _SLOTS_A_STEP
    # At once, not at the first call: later declarations around it must not become visible inside.
    plan = plan_of(params, scope.inner_function(), compile_body)
    return lambda frame: Function(name, params, lambda: plan, frame[:visible])
