"""The Vox language: tokens, syntax, verdict, diagnostics, constructs, completion. Standard library only.

Rules such as `G41` are in `vox-language.md`. Other packages import only from here, `language.ast` (syntax tree),
`language.semantics` (names and types) and `language.interpreter`. The last two are separate because the interpreter
takes time to load.
"""

# ruff: noqa: F401

from mens_pipeline.language.diagnostics import Code, Diagnostic, Position, Severity, SourceText, visible_text
from mens_pipeline.language.front_end import (
    DEEP_STACK,
    Analysis,
    analyze,
    analyze_bytes,
    analyze_uncached,
    collector_paused,
    verdict_record,
)
from mens_pipeline.language.grammar import grammar_fingerprint
from mens_pipeline.language.lexer import Token, scan, tokenize
from mens_pipeline.language.outline import (
    DeclarationSpan,
    Structure,
    declaration_spans,
    declaration_structures,
    name_of,
    structure_of,
)
from mens_pipeline.language.parser.modules import Mode, mode_of
from mens_pipeline.language.taxonomy import (
    CONSTRUCTS,
    DEFAULT_DIFFICULTY,
    Construct,
    construct_of,
    difficulty,
    histogram,
)
from mens_pipeline.language.viability import ParserPlace, Viability, ViableText, complete, has_tokens
from mens_pipeline.language.vocabulary import EFFECTS, FUNCTION_DECORATORS, KEYWORDS, LLM_DECORATORS
