"""Running Vox programs: their tests, in this process or in a sandbox of their own. Standard library only.

Rules such as `O2` are those of `vox-semantics.md` beside the language reference.
"""

from mens_pipeline.language.interpreter.hidden_tests import run_with_tests
from mens_pipeline.language.interpreter.limits import Features, Limits
from mens_pipeline.language.interpreter.results import (
    CaseResult,
    ErrorClass,
    ErrorKind,
    LimitKind,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Refusal,
    TextName,
)
from mens_pipeline.language.interpreter.running import run_tests
from mens_pipeline.language.interpreter.sandbox import Sandbox
from mens_pipeline.language.interpreter.wire import report_record

__all__ = [
    "CaseResult",
    "ErrorClass",
    "ErrorKind",
    "Features",
    "LimitKind",
    "Limits",
    "Outcome",
    "ProgramReport",
    "ProgramStatus",
    "Refusal",
    "Sandbox",
    "TextName",
    "report_record",
    "run_tests",
    "run_with_tests",
]
