"""Running Vox programs: their tests, in this process or in a sandbox of their own. Standard library only.

Rules such as `O2` are those of `vox-semantics.md` beside the language reference.
"""

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
from mens_pipeline.language.interpreter.running import run_tests, run_with_tests
from mens_pipeline.language.interpreter.sandbox import Sandbox, report_record

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
