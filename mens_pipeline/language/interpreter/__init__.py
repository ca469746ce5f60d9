"""Run the tests of Vox programs, in this process or in a sandbox. Standard library only.

Rules such as `O2` are in `vox-semantics.md`.
"""

# ruff: noqa: F401

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
    CallableProgram,
    CallResult,
    CaseRunner,
    SmallestDraws,
    catch_error,
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
