"""Score a completion against its task: whether it is Vox, declares the requested names, and fits the existing code.

A completion is part of a program. The rest exists already: given code, which is put in front; names in the prompt; and
names that only the reference uses. Of the latter two only the name is known, so they may have any type.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mens_pipeline.corpus.schema.prompts import mentioned_names
from mens_pipeline.evaluation.requirements import list_names, unmet
from mens_pipeline.evaluation.scores import Execution, Score
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Completion, program_in
from mens_pipeline.language import (
    CONSTRUCTS,
    LLM_DECORATORS,
    Code,
    DeclarationSpan,
    Diagnostic,
    Mode,
    Position,
    Severity,
    analyze,
    construct_of,
    declaration_spans,
    tokenize,
)
from mens_pipeline.language.ast import Call, Declaration, Function, Ident, Return, Statement
from mens_pipeline.language.interpreter import Features, ProgramReport, ProgramStatus, Sandbox
from mens_pipeline.language.semantics import semantic_diagnostics

FEATURES: Final = Features(check_contracts=True, database=True, views=True)
"""Interpreter features for tests: checked contracts, tables as lists of records in memory, and views to inspect."""


_REFUSAL: Final = re.compile(
    r"\b(?:I(?:['\u2019]m| am) (?:sorry|unable|not able)|I (?:cannot|can['\u2019]t|can not)"
    r"|as an AI|as a language model)\b",
    re.IGNORECASE,
)
_PLACEHOLDER: Final = re.compile(
    r"\b(?:TODO|FIXME|TBD|XXX)\b"
    r"|(?i:^(?://|\#)\s*(?:todo|fixme|tbd|placeholder|stub)\s*(?::|[.!]*\s*$))"
    r"|(?i:\b(?:not (?:yet )?implemented|to be implemented|coming soon|your code (?:goes )?here|rest of the code"
    r"|(?:placeholder|stub) (?:implementation|body|code|logic))\b)"
)
"""Marks of unfinished code. The words `todo`, `stub` and `placeholder` alone do not count: user interfaces use them."""


def run_hidden_tests(pairs: Sequence[tuple[str, str]], num_workers: int = 2) -> list[Execution]:
    """Run each program with its hidden tests in a sandbox, so that it can neither hang nor harm this process.

    `ConfigurationError` if the front end rejects some tests, or a task has none.
    """
    if not pairs:
        return []
    with Sandbox(num_workers, features=FEATURES) as sandbox:
        return [
            Execution(
                num_tests=len(report.tests),
                num_passed=report.num_passed,
                error_class=report.error_class,
                message=_message(report),
            )
            for report in sandbox.map_with_tests(pairs)
        ]


def prepend_given(program: str, given: str, mode: Mode) -> str:
    """Prepend the given declarations that a program does not declare itself."""
    if not given:
        return program
    names = {span.name for span in _spans(program, mode)}
    return "\n\n".join([*(span.cut(given) for span in _spans(given, Mode.SOURCE) if span.name not in names), program])


def _spans(text: str, mode: Mode) -> tuple[DeclarationSpan, ...]:
    module = analyze(text, mode).module
    assert module is not None, "only accepted programs are run"  # noqa: S101 - an internal invariant
    return declaration_spans(text, module)


def _message(report: ProgramReport) -> str:
    if report.status is ProgramStatus.REJECTED:
        return report.diagnostics[0].message if report.diagnostics else report.message
    if report.status is not ProgramStatus.RAN:
        return report.message
    failed = next((test for test in report.tests if not test.passed), None)
    return f"{failed.name}: {failed.message}" if failed is not None else ""


_UNDECLARED: Final = frozenset((Code.UNKNOWN_NAME, Code.UNKNOWN_TYPE, Code.UNKNOWN_VARIANT))


def first_semantic_error(task: Task, program: str) -> Diagnostic | None:
    """Return the first error in names and types of a completion; None without one."""
    asked = frozenset(name for name in (task.name, *(need.name for need in task.requires)) if name is not None)
    assumed = _find_assumed(task.prompt, task.reference, task.given, task.mode, asked)
    return next((error for error, _ in errors_beside(task.given, program, task.mode, assumed)), None)


@lru_cache(maxsize=1024)
def _find_assumed(prompt: str, reference: str, given: str, mode: Mode, asked: frozenset[str]) -> frozenset[str]:
    """Return names that exist already: the prompt mentions them, or the reference uses them undeclared.

    Names that the completion must declare do not count, although the prompt mentions them.
    """
    mentioned = frozenset(mentioned_names(prompt)) - asked
    left = errors_beside(given, reference, mode, mentioned)
    return mentioned | {name for error, name in left if error.code in _UNDECLARED}


def errors_beside(given: str, program: str, mode: Mode, assumed: frozenset[str]) -> list[tuple[Diagnostic, str]]:
    """Return the errors in names and types of a program, each with the source text at its place.

    `given` holds existing declarations, whose own errors do not count; `assumed` holds other existing names.
    """
    text = prepend_given(program, given, mode)
    module = analyze(text, mode).module
    if module is None:  # some given code is not valid in a script
        return []
    data = text.encode("utf-8", "surrogatepass")
    before = text[: len(text) - len(program)]
    first = Position(len(before.encode("utf-8", "surrogatepass")), before.count("\n"), 0)
    return [
        (
            replace(found, start=_behind(first, found.start), end=_behind(first, found.end)),
            data[found.start.offset : found.end.offset].decode("utf-8", "surrogatepass"),
        )
        for found in semantic_diagnostics(module, text, assumed)
        if found.severity is Severity.ERROR and found.start.offset >= first.offset
    ]


def _behind(first: Position, place: Position) -> Position:
    return Position(place.offset - first.offset, place.line - first.line, place.column)


_BODILESS: Final = LLM_DECORATORS | {"@hole", "@native"}
"""Decorators of functions that need no body."""


def judge(task: Task, completion: Completion) -> Score:
    """Score a completion, without running it."""
    program = program_in(completion.text)
    analysis = analyze(program, task.mode)
    module = analysis.module
    declarations = [(construct_of(d).name, d) for d in module.declarations] if module is not None else []
    found = dict(Counter(construct for construct, _ in declarations))
    parses = bool(found)
    names = {name for construct, d in declarations if construct == task.construct for name in list_names(d)}
    first = analysis.errors[0] if analysis.errors else None
    meant = first_semantic_error(task, program) if parses else None
    missing = (f"Expected the text `{needle}`; it is missing." for needle in task.needles if needle not in program)
    return Score(
        task=task.id,
        sample=completion.sample,
        program=program,
        num_tokens=completion.num_tokens,
        stopped=completion.stopped,
        empty=not program.strip(),
        refusal=not parses and is_refusal(completion.text),
        stub=has_placeholder(program) or any(_is_hollow(d) for _, d in declarations),
        parses=parses,
        error=_sentence(first) if first is not None else None if parses else "it declares nothing",
        error_code=str(first.code) if first is not None else None,
        resolves=parses and meant is None,
        semantic_error=_sentence(meant) if meant is not None else None,
        semantic_code=str(meant.code) if meant is not None else None,
        constructs=found,
        # A user's benchmark may have other categories; its requirements then name the declarations.
        has_construct=task.construct in found if task.construct in CONSTRUCTS else parses,
        has_name=task.name in names if task.name is not None else None,
        has_tests=task.tests is not None,
        unmet=() if module is None else (*unmet(task.requires, module, program), *missing),
    )


def _is_hollow(declaration: Declaration) -> bool:
    function = getattr(declaration, "function", declaration)
    if not isinstance(function, Function) or function.return_type is None:
        return False
    if function.body:
        return len(function.body) == 1 and _gives_up(function.body[0])
    is_elsewhere = function.extern_module is not None or not _BODILESS.isdisjoint(d.name for d in function.decorators)
    return not is_elsewhere


def _gives_up(statement: Statement) -> bool:
    value = statement.value if isinstance(statement, Return) else getattr(statement, "expression", None)
    return isinstance(value, Call) and isinstance(value.callee, Ident) and value.callee.name == "panic"


def _sentence(error: Diagnostic) -> str:
    return f"{error.start.line}:{error.start.column}: {error.code}: {error.message}"


def is_refusal(completion: str) -> bool:
    """Return whether a completion says that the model will not or cannot do it."""
    return _REFUSAL.search(completion) is not None


def has_placeholder(program: str) -> bool:
    """Return whether a program has a comment in place of code."""
    comments = (token.text for token in tokenize(program) if token.kind == "COMMENT")
    return any(_PLACEHOLDER.search(comment) for comment in comments)
