"""Results of the tests of a program (J7, T10), its limits (R1-R8), and the exceptions that end a test."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mens_pipeline.language.diagnostics import Diagnostic


class Outcome(StrEnum):
    """Outcome of one test."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    LIMIT = "limit"


class ErrorKind(StrEnum):
    """Error that ends a test: a mistake of the program, or for `internal` a bug of the interpreter."""

    TYPE_ERROR = "TypeError"
    DIVISION_BY_ZERO = "DivisionByZero"
    INTEGER_OVERFLOW = "IntegerOverflow"
    DECIMAL_OVERFLOW = "DecimalOverflow"
    INDEX_OUT_OF_RANGE = "IndexOutOfRange"
    MISSING_FIELD = "MissingField"
    DUPLICATE_FIELD = "DuplicateField"
    UNDEFINED_NAME = "UndefinedName"
    UNKNOWN_METHOD = "UnknownMethod"
    ASSIGN_TO_IMMUTABLE = "AssignToImmutable"
    INVALID_ASSIGN_TARGET = "InvalidAssignTarget"
    NOT_CALLABLE = "NotCallable"
    ARITY_ERROR = "ArityError"
    NAMED_ARGUMENT = "NamedArgument"
    NON_EXHAUSTIVE_MATCH = "NonExhaustiveMatch"
    PATTERN_MISMATCH = "PatternMismatch"
    PATTERN_ARITY = "PatternArity"
    UNKNOWN_VARIANT = "UnknownVariant"
    UNWRAP_NONE = "UnwrapNone"
    UNWRAP_ERROR = "UnwrapError"
    PANIC = "Panic"
    LOOP_CONTROL = "LoopControl"
    CONTRACT_VIOLATION = "ContractViolation"
    INTERNAL = "internal"


class LimitKind(StrEnum):
    """Limit that a program exceeded."""

    STEPS = "StepLimit"
    DEPTH = "DepthLimit"
    SIZE = "LimitExceeded"
    TIME = "Timeout"


class Refusal(StrEnum):
    """Access to the outside that the interpreter refuses (U1)."""

    FILES = "fs"
    NETWORK = "net"
    DATABASE = "db"
    ENVIRONMENT = "env"
    PROCESS = "process"
    CLOCK = "clock"
    RANDOM = "random"
    SECRETS = "secrets"
    SPEECH = "speech"
    OPENCLAW = "openclaw"
    BROWSER = "browser"
    MOBILE = "mobile"
    AGENTOS = "agentos"
    CRYPTO = "crypto"
    FORMAT = "format"
    MODEL = "llm"
    EXTERN = "extern"
    IMPORT = "import"
    INTERFACE = "ui"
    SPAWN = "spawn"
    PROPERTY_TYPE = "forall-type"


Reason = ErrorKind | LimitKind | Refusal
"""Reason of an outcome; a failed assertion has no reason."""


class ErrorClass(StrEnum):
    """Coarse class of a failure, for reports of scores."""

    PARSE = "parse"
    UNSUPPORTED = "unsupported"
    RUNTIME = "runtime"
    WRONG_ANSWER = "wrong_answer"
    TIMEOUT = "timeout"


_CLASSES = {
    Outcome.PASSED: None,
    Outcome.FAILED: ErrorClass.WRONG_ANSWER,
    Outcome.ERROR: ErrorClass.RUNTIME,
    Outcome.UNSUPPORTED: ErrorClass.UNSUPPORTED,
    Outcome.LIMIT: ErrorClass.TIMEOUT,
}


class TextName(StrEnum):
    """Text that a line number refers to."""

    PROGRAM = "program"
    TESTS = "tests"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case, a test or a property.

    `reason` is an error, limit or refusal; None if it passed or an assertion failed. `line` (from 1) and `column` (from
    0) in `text` mark where it ended, or the start of the test if it passed. `output` is cut at the limit. `num_steps`
    counts statements and expressions. `notes` are remarks, such as `vacuous` for a pass without an assertion (T6).
    """

    name: str
    outcome: Outcome
    reason: Reason | None
    message: str
    text: TextName
    line: int
    column: int
    output: str
    num_steps: int
    num_assertions: int
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    @property
    def error_class(self) -> ErrorClass | None:
        """Its class for scores; None if it passed."""
        return _CLASSES[self.outcome]


class ProgramStatus(StrEnum):
    """Stage that a whole program reached."""

    RAN = "ran"
    REJECTED = "rejected"
    NO_TESTS = "no_tests"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """The result of a program; `tests` has one result per test, in source order, and is empty unless the program ran.

    `limit` stopped the whole program; None unless `status` is `stopped`. `notes` are remarks, such as tests left out.
    """

    status: ProgramStatus
    tests: tuple[CaseResult, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    limit: LimitKind | None = None
    message: str = ""
    notes: tuple[str, ...] = ()

    @property
    def num_passed(self) -> int:
        return sum(test.passed for test in self.tests)

    @property
    def passed(self) -> bool:
        """Whether there are tests and all of them passed."""
        return bool(self.tests) and self.num_passed == len(self.tests)

    @property
    def error_class(self) -> ErrorClass | None:
        """The class of the first failure; None if all tests passed or there are no tests."""
        if self.status is ProgramStatus.REJECTED:
            return ErrorClass.PARSE
        if self.status is ProgramStatus.STOPPED:
            return ErrorClass.TIMEOUT
        return next((test.error_class for test in self.tests if not test.passed), None)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program; limits of time and memory need signals and rlimits."""

    max_steps: int = 1_000_000  # statements and expressions of a test, copying included (R1)
    max_depth: int = 1_000  # nested calls (R2)
    max_size: int = 1_000_000  # bytes of one string, elements of one list (R3)
    max_allocation: int = 10_000_000  # bytes and elements that one test creates, in use or not
    max_nesting: int = 100  # levels of a value that is compared or printed (R4)
    max_output: int = 65_536  # characters of output kept per test (R5)
    max_source: int = 262_144  # bytes of a program's text (R8)
    max_tests: int = 200  # run per program (R8)
    test_seconds: float = 5.0  # CPU time, so that a busy machine changes no result (R6)
    program_seconds: float = 20.0  # CPU time of a whole program (R6)
    memory_bytes: int = 512 * 1024 * 1024  # address space of the process (R7)


@dataclass(frozen=True, slots=True)
class Features:
    """Features that a task can enable.

    `check_contracts` checks `@require`, `@ensure` and `@invariant` (T7). `database` simulates `db`
    with lists of records (U5). `views` let tests inspect components and change their state (U6).
    """

    check_contracts: bool = False
    database: bool = False
    views: bool = False


_OUTCOMES: dict[type, Outcome] = {
    ErrorKind: Outcome.ERROR,
    LimitKind: Outcome.LIMIT,
    Refusal: Outcome.UNSUPPORTED,
    type(None): Outcome.FAILED,
}


class VoxError(Exception):
    """An error that ends a test, and that programs cannot catch; `reason` is None for a failed assertion."""

    def __init__(self, reason: Reason | None, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.place: tuple[TextName, int] | None = None

    @property
    def outcome(self) -> Outcome:
        return _OUTCOMES[type(self.reason)]

    def at(self, text: TextName, start: int) -> "VoxError":
        """Set the place unless it is known, and return the error."""
        if self.place is None:
            self.place = (text, start)
        return self


class ReturnSignal(Exception):  # noqa: N818 - a jump, no error
    """`return`, or `?` without a value: ends the innermost function or lambda."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class BreakSignal(Exception):  # noqa: N818 - a jump, no error
    """`break`: ends the innermost loop."""


class ContinueSignal(Exception):  # noqa: N818 - a jump, no error
    """`continue`: ends this iteration of the innermost loop."""
