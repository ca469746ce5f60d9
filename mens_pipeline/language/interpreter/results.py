"""Results of running the tests of a program, as values (J7, T10)."""

from dataclasses import dataclass
from enum import StrEnum

from mens_pipeline.language.diagnostics import Diagnostic


class Outcome(StrEnum):
    """Outcome of one test."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    UNSUPPORTED = "unsupported"
    LIMIT = "limit"


class ErrorKind(StrEnum):
    """Why a program cannot go on: its own mistake, or with `internal` one of ours."""

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
    """Access to the outside that a program asked for and does not get (U1)."""

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
"""What stands beside an outcome; a failed assertion needs none."""


class ErrorClass(StrEnum):
    """The coarse classes that scores are reported by."""

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
    """Text that a line number counts in."""

    PROGRAM = "program"
    TESTS = "tests"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case, which is a test or a property, run.

    Attributes:
        name: The name of its function.
        outcome: How it ended.
        reason: Which error, limit or refusal; None when it passed or an assertion failed.
        message: What was found and what was expected; empty when it passed.
        text: The text that `line` and `column` belong to.
        line: Where it ended, or where the test begins if it passed; from 1.
        column: Characters before that place on its line, from 0.
        output: What it printed, cut at the limit.
        num_steps: Statements and expressions charged.
        num_assertions: Assertions that were executed.
        notes: Remarks, such as `vacuous` for a pass without an assertion (T6).
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
        """Whether it holds."""
        return self.outcome is Outcome.PASSED

    @property
    def error_class(self) -> ErrorClass | None:
        """Its class for scores; None when it passed."""
        return _CLASSES[self.outcome]


class ProgramStatus(StrEnum):
    """Stage that a whole program reached."""

    RAN = "ran"
    REJECTED = "rejected"
    NO_TESTS = "no_tests"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A program and its tests.

    Attributes:
        status: How far it got.
        tests: One result a test, in source order; empty unless it ran.
        diagnostics: Why it was rejected, when the parser said so.
        limit: Which bound stopped the whole program; None unless its status is `stopped`.
        message: What happened to the whole program, when no test can say it.
        notes: Remarks, such as tests that were left out.
    """

    status: ProgramStatus
    tests: tuple[CaseResult, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    limit: LimitKind | None = None
    message: str = ""
    notes: tuple[str, ...] = ()

    @property
    def num_passed(self) -> int:
        """Tests that passed."""
        return sum(test.passed for test in self.tests)

    @property
    def passed(self) -> bool:
        """Whether there are tests and all of them passed."""
        return bool(self.tests) and self.num_passed == len(self.tests)

    @property
    def error_class(self) -> ErrorClass | None:
        """The class of what went wrong first; None when all passed or there is no test."""
        if self.status is ProgramStatus.REJECTED:
            return ErrorClass.PARSE
        if self.status is ProgramStatus.STOPPED:
            return ErrorClass.TIMEOUT
        return next((test.error_class for test in self.tests if not test.passed), None)
