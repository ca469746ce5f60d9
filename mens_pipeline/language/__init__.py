"""The Vox language: tokens, syntax, verdict, diagnostics, constructs. Standard library only.

Rules such as `G41` are those of `vox-language.md` beside this file.
"""

from mens_pipeline.language.diagnostics import Code, Diagnostic, Position, Severity, SourceText
from mens_pipeline.language.front_end import Analysis, analyze, analyze_bytes, verdict_record
from mens_pipeline.language.lexer import Token, tokenize
from mens_pipeline.language.outline import DeclarationSpan, declaration_spans
from mens_pipeline.language.parser.modules import Mode, mode_of
from mens_pipeline.language.taxonomy import CONSTRUCTS, Construct, construct_of, difficulty, histogram

__all__ = [
    "CONSTRUCTS",
    "Analysis",
    "Code",
    "Construct",
    "DeclarationSpan",
    "Diagnostic",
    "Mode",
    "Position",
    "Severity",
    "SourceText",
    "Token",
    "analyze",
    "analyze_bytes",
    "construct_of",
    "declaration_spans",
    "difficulty",
    "histogram",
    "mode_of",
    "tokenize",
    "verdict_record",
]
