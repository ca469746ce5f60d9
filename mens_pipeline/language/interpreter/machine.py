"""The state of a running test: its use of resources, output, assertions and records."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import current_thread, main_thread
from types import FrameType

from mens_pipeline.language.interpreter.results import LimitKind, Limits, VoxError
from mens_pipeline.language.interpreter.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class TableValue:
    """A table as a value; its records are in the `Database` of the running test."""

    name: str


@dataclass(slots=True)
class Database:
    """The records of one test: table -> id -> record."""

    records: dict[str, dict[int, dict[str, Value]]] = field(default_factory=dict)
    num_inserted: dict[str, int] = field(default_factory=dict)

    def of(self, table: TableValue) -> dict[int, dict[str, Value]]:
        """Return the records of a table by their ids, oldest first."""
        return self.records.setdefault(table.name, {})

    def next_id(self, table: TableValue) -> int:
        """Return the id of a new record; ids count from 1 and are never reused."""
        self.num_inserted[table.name] = self.num_inserted.get(table.name, 0) + 1
        return self.num_inserted[table.name]


_COPIED_A_STEP = 64
"""Bytes or elements whose copy costs one step, so that a quadratic loop of pushes is not free (R9)."""


class Machine:
    """Counters that compiled code shares; `begin` resets them (T4)."""

    __slots__ = (
        "allocated",
        "database",
        "depth",
        "is_interruptible",
        "limits",
        "max_depth",
        "max_steps",
        "notes",
        "num_assertions",
        "num_written",
        "output",
        "seconds_over",
        "steps",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.max_depth = limits.max_depth
        self.begin()

    def begin(self) -> None:
        self.steps = 0
        self.max_steps = self.limits.max_steps
        self.seconds_over: float | None = None
        self.is_interruptible = False
        self.depth = 0
        self.allocated = 0
        self.num_assertions = 0
        self.num_written = 0
        self.output: list[str] = []
        self.notes: dict[str, None] = {}
        self.database = Database()

    def charge(self, cost: int) -> None:
        """Count steps; end the test if none are left."""
        self.steps += cost
        if self.steps > self.max_steps:
            self.out_of_steps()

    def out_of_steps(self) -> None:
        """End the test at its step or time limit; compiled code checks the limit before it calls this."""
        if self.seconds_over is not None:
            raise VoxError(LimitKind.TIME, f"more than {self.seconds_over:g} s")
        raise VoxError(LimitKind.STEPS, f"more than {self.limits.max_steps:,} steps")

    def expire(self, seconds: float) -> None:
        """End the test at its time limit by leaving it no steps.

        This runs in a signal handler, where an exception could leave locks of the process held. It raises only during a
        regular expression search, which counts no steps.
        """
        self.seconds_over = seconds
        self.max_steps = -1
        if self.is_interruptible:
            self.out_of_steps()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the time limit interrupt the body anywhere."""
        self.is_interruptible = True
        try:
            yield
        finally:
            self.is_interruptible = False

    def allocate(self, size: int) -> None:
        """Account for the bytes of a new string or elements of a new list; end the test if it is too large."""
        if size > self.limits.max_size:
            most = self.limits.max_size
            raise VoxError(LimitKind.SIZE, f"a value of {size:,} bytes or elements; the most is {most:,}")
        self.charge(size // _COPIED_A_STEP)
        self.allocated += size
        if self.allocated > self.limits.max_allocation:
            most = self.limits.max_allocation
            raise VoxError(LimitKind.SIZE, f"more than {most:,} bytes and elements made by one test")

    def descend(self, level: int) -> None:
        """Count a step into a nested value; end the test if `level` is too deep (R4)."""
        self.charge(1)
        if level > self.limits.max_nesting:
            raise VoxError(LimitKind.SIZE, f"a value nested more than {self.limits.max_nesting} levels deep")

    def write(self, text: str) -> None:
        """Add a line, given without its newline, to the output, up to the limit (R5)."""
        room = self.limits.max_output - self.num_written
        line = f"{text}\n"[:room]
        self.output.append(line)
        self.num_written += len(line)
        if len(line) <= len(text):
            self.notes[f"output cut at {self.limits.max_output:,} characters"] = None


@contextmanager
def time_limit(machine: Machine, seconds: float) -> Iterator[None]:
    """Limit the CPU time of a test by a signal, even while it counts no steps; main thread only (R6)."""
    if current_thread() is not main_thread():
        yield
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        machine.expire(seconds)

    before = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
