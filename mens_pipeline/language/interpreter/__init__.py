"""Run the tests of Vox programs, in this process or in a sandbox. Standard library only.

Rules such as `O2` are in `vox-semantics.md`.
"""

from mens_pipeline.language.interpreter.case import CallableProgram, CallResult, CaseRunner, SmallestDraws, catch_error
from mens_pipeline.language.interpreter.compiler.calls import CALLABLE
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.results import (
    CaseResult,
    ErrorClass,
    ErrorKind,
    Features,
    LimitKind,
    Limits,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Refusal,
    TextName,
)
from mens_pipeline.language.interpreter.running import (
    GIVEN_END,
    given_module,
    hidden_module,
    put_below,
    run_tests,
    run_with_tests,
    with_given,
    without_tests,
)
from mens_pipeline.language.interpreter.sandbox import (
    Sandbox,
    WorkerPool,
    WorkerProcess,
    WorkerStoppedError,
    report_record,
    worker_command,
)
from mens_pipeline.language.interpreter.values import (
    MOST_LEVELS,
    NONE,
    UNIT,
    Native,
    Value,
    VariantValue,
    equal,
    error,
    literal_of,
    ok,
    some,
)
from mens_pipeline.language.interpreter.worker import confine, serve

__all__ = [
    "CALLABLE",
    "GIVEN_END",
    "MOST_LEVELS",
    "NONE",
    "UNIT",
    "CallResult",
    "CallableProgram",
    "CaseResult",
    "CaseRunner",
    "ErrorClass",
    "ErrorKind",
    "Features",
    "LimitKind",
    "Limits",
    "Machine",
    "Native",
    "Outcome",
    "Program",
    "ProgramReport",
    "ProgramStatus",
    "Refusal",
    "Sandbox",
    "SmallestDraws",
    "TextName",
    "Value",
    "VariantValue",
    "WorkerPool",
    "WorkerProcess",
    "WorkerStoppedError",
    "catch_error",
    "confine",
    "equal",
    "error",
    "given_module",
    "hidden_module",
    "literal_of",
    "ok",
    "put_below",
    "report_record",
    "run_tests",
    "run_with_tests",
    "serve",
    "some",
    "with_given",
    "without_tests",
    "worker_command",
]
