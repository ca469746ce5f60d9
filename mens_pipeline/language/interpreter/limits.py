"""Limits on the resources and features of a program (section 7 of the run-time rules, T7, U5)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one program; the counted ones hold in every process, the last two where signals and rlimits exist.

    Attributes:
        max_steps: Statements and expressions a test may run, copying included (R1).
        max_depth: Calls that may be open at once (R2).
        max_size: Bytes of one string, elements of one list (R3).
        max_allocation: Bytes and elements made by one test, in use or not.
        max_nesting: Levels of a value that is compared or printed (R4).
        max_output: Characters of output kept of one test (R5).
        max_source: Bytes of a program's text (R8).
        max_tests: Tests run of one program (R8).
        test_seconds: Wall time of one test (R6).
        program_seconds: Wall time of a whole program (R6).
        memory_bytes: Address space of the process that runs it (R7).
    """

    max_steps: int = 1_000_000
    max_depth: int = 1_000
    max_size: int = 1_000_000
    max_allocation: int = 10_000_000
    max_nesting: int = 100
    max_output: int = 65_536
    max_source: int = 262_144
    max_tests: int = 200
    test_seconds: float = 5.0
    program_seconds: float = 20.0
    memory_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Features:
    """Features that are off unless a task asks for them.

    Attributes:
        check_contracts: Check `@require`, `@ensure` and `@invariant` (T7); never for scores.
        database: Simulate `db` by lists of records (U5).
    """

    check_contracts: bool = False
    database: bool = False
