"""Run functions against the hidden tests of tasks: a function that passes solves the task, however it is written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from mens_pipeline.language import DEEP_STACK, SourceText, analyze
from mens_pipeline.language.interpreter import (
    CALLABLE,
    CaseRunner,
    Features,
    Limits,
    Machine,
    Native,
    Program,
    TextName,
    Value,
    catch_error,
    literal_of,
    put_below,
    without_tests,
)

FEATURES: Final = Features(check_contracts=True, database=True, views=True)
"""The same features as in evaluations."""

LIMITS: Final = Limits(max_steps=200_000, max_depth=300, max_size=100_000, max_allocation=1_000_000, test_seconds=10.0)
"""Limits of one hidden test. The step limit almost always applies before the time limit, so load changes nothing."""

_MOST_CONSTANTS: Final = 50  # results of the reference to try as constant functions


@dataclass(frozen=True, slots=True)
class TaskFunction:
    """A function that hidden tests call, and a program that declares it and passes them."""

    reference: str
    tests: str
    function: str


class TaskStatus(StrEnum):
    """Whether passing the tests of a function is evidence."""

    COMPARED = "compared"
    TRIVIAL = "trivial"  # a function that returns a constant or an argument passes them
    FAILS = "reference_fails"  # the reference itself does not pass them within `LIMITS`


class Screening:
    """Runs functions against hidden tests in this process, and caches the compiled tests of each task."""

    def __init__(self) -> None:
        self._machine = Machine(LIMITS)
        self._tasks: dict[TaskFunction, _Task] = {}

    def status(self, task: TaskFunction) -> TaskStatus:
        """Return whether passing the tests of a function is evidence."""
        with DEEP_STACK.parse():
            DEEP_STACK.deepen()
            return self._task(task).status

    def first_passed(self, program: str, function: str, tasks: Sequence[TaskFunction]) -> int | None:
        """Return the index of the first task whose tests a function passes, or None."""
        module = analyze(program).module
        if module is None:
            return None
        with DEEP_STACK.parse():
            DEEP_STACK.deepen()
            self._machine.limits = LIMITS
            self._machine.begin()
            candidate = Program(without_tests(module), TextName.PROGRAM, self._machine, FEATURES)
            if catch_error(candidate.begin) is not None:
                return None
            value = candidate.names.get(function)
            if type(value) not in CALLABLE:
                return None
            return next((n for n, task in enumerate(tasks) if self._task(task).is_passed_by(value)), None)

    def _task(self, task: TaskFunction) -> "_Task":
        if task not in self._tasks:
            self._tasks[task] = _Task(task, self._machine)
        return self._tasks[task]


class _Task:
    def __init__(self, task: TaskFunction, machine: Machine) -> None:
        self._name = task.function
        self._machine = machine
        reference = analyze(task.reference).module
        assert reference is not None, "a reference is accepted before it becomes a task"  # noqa: S101 - our own mistake
        self._program, self._reference = put_below(task.tests, reference, machine, FEATURES)
        texts = {TextName.PROGRAM: SourceText(task.reference), TextName.TESTS: SourceText(task.tests)}
        self._runner = CaseRunner(self._program, machine, TextName.TESTS, texts, task.tests)
        self._limits = LIMITS

    def is_passed_by(self, value: Value) -> bool:
        self._program.define(self._name, value)
        self._machine.limits = self._limits
        tests = self._program.tests.values()
        return all(self._runner.run_case(test, LIMITS.test_seconds).passed for test in tests)

    @cached_property
    def status(self) -> TaskStatus:
        results: dict[str | None, Value] = {}
        most_arguments = most_steps = 0
        self._machine.limits = LIMITS
        self._machine.begin()
        if catch_error(self._reference.begin) is not None:
            return TaskStatus.FAILS
        reference = self._reference.names[self._name]

        def record(machine: Machine, *arguments: Value) -> Value:
            nonlocal most_arguments
            most_arguments = max(most_arguments, len(arguments))
            value = reference.invoke(machine, list(arguments))
            if len(results) < _MOST_CONSTANTS:
                results.setdefault(literal_of(value), value)
            return value

        self._program.define(self._name, Native(self._name, record, 0, 100))
        for test in self._program.tests.values():
            result = self._runner.run_case(test, LIMITS.test_seconds)
            if not result.passed:
                return TaskStatus.FAILS
            most_steps = max(most_steps, result.num_steps)
        # A correct function may take longer than the reference, but an endless one should be stopped soon.
        self._limits = replace(LIMITS, max_steps=min(LIMITS.max_steps, 20 * most_steps + 5_000))
        trivial = [_constant(self._name, value) for value in results.values()]
        trivial += [_argument(self._name, index) for index in range(most_arguments)]
        is_trivial = any(self.is_passed_by(native) for native in trivial)
        return TaskStatus.TRIVIAL if is_trivial else TaskStatus.COMPARED


def _constant(name: str, value: Value) -> Native:
    return Native(name, lambda _machine, *_arguments: value, 0, 100)


def _argument(name: str, index: int) -> Native:
    return Native(name, lambda _machine, *arguments: arguments[min(index, len(arguments) - 1)], 1, 100)
