"""One answer against its task: whether it is Vox, and whether it is what was asked for."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.evaluation.execution import Execution, first_semantic_error
from mens_pipeline.evaluation.requirements import names_of, unmet
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Answer, has_placeholder, is_refusal, program_in
from mens_pipeline.language import CONSTRUCTS, LLM_DECORATORS, Diagnostic, analyze, construct_of
from mens_pipeline.language.ast import Call, Declaration, Function, Ident, Module, Return, Statement

_BODILESS: Final = LLM_DECORATORS | {"@hole", "@native"}
"""Decorators of functions whose value comes from elsewhere."""


class Judgement(BaseModel):
    """Judgement on one answer. Whatever needs a syntax tree is false where there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    sample: int
    program: str = Field(description="What was judged: the fenced block of the answer, or all of it.")
    num_tokens: int
    stopped: bool = Field(description="The model ended its turn.")
    empty: bool
    refusal: bool = Field(description="It says that it will not or cannot, and is no program.")
    stub: bool = Field(
        description="A placeholder comment, or a function that promises a value and has no body or only panics."
    )
    parses: bool = Field(description="The front end accepts it, and it declares something.")
    error: str | None = Field(description="The first error, `line:column: code: message`.")
    error_code: str | None
    resolves: bool = Field(description="It parses, and nothing is known to be wrong with its names and types.")
    semantic_error: str | None = Field(
        description="The first error in names and types of an accepted answer, beside what the task has already."
    )
    semantic_code: str | None
    constructs: dict[str, int] = Field(description="Construct -> declarations, of an accepted answer.")
    has_construct: bool = Field(description="It declares what was asked for.")
    has_name: bool | None = Field(description="That has the name that was asked for; None where none was.")
    unmet: tuple[str, ...] = Field(description="What the task requires and the answer lacks, a sentence each.")
    has_tests: bool = Field(description="The task has hidden tests.")
    execution: Execution | None = Field(
        default=None, description="What its hidden tests gave; null without tests, or where nothing parses."
    )

    @property
    def passes_tests(self) -> bool:
        """It was run, and all hidden tests pass."""
        return self.execution is not None and self.execution.passed

    @property
    def passed(self) -> bool:
        """It is complete Vox of the kind and name that was asked for, meets all that is required, and is no stub.

        Where there are hidden tests, all of them pass.
        """
        asked = self.has_construct and self.has_name is not False and not self.unmet
        works = self.execution is None or self.passes_tests
        return self.parses and self.stopped and asked and not self.stub and works


def judge(task: Task, answer: Answer) -> Judgement:
    """Judge an answer, without running it."""
    program = program_in(answer.text)
    analysis = analyze(program, task.mode)
    module = analysis.module
    found = _constructs(module) if module is not None else {}
    parses = bool(found)
    names = _names_of(task.construct, module) if module is not None else frozenset()
    first = analysis.errors[0] if analysis.errors else None
    meant = first_semantic_error(task, program) if parses else None
    return Judgement(
        task=task.id,
        sample=answer.sample,
        program=program,
        num_tokens=answer.num_tokens,
        stopped=answer.stopped,
        empty=not program.strip(),
        refusal=not parses and is_refusal(answer.text),
        stub=has_placeholder(program) or (module is not None and any(map(_is_hollow, module.declarations))),
        parses=parses,
        error=_sentence(first) if first is not None else None if parses else "it declares nothing",
        error_code=str(first.code) if first is not None else None,
        resolves=parses and meant is None,
        semantic_error=_sentence(meant) if meant is not None else None,
        semantic_code=str(meant.code) if meant is not None else None,
        constructs=found,
        # A benchmark of one's own may count by other words than constructs; its requirements then say what is asked.
        has_construct=task.construct in found if task.construct in CONSTRUCTS else parses,
        has_name=task.name in names if task.name is not None else None,
        has_tests=task.tests is not None,
        unmet=unmet(task.requires, module, program) if module is not None else (),
    )


def _constructs(module: Module) -> dict[str, int]:
    counts: dict[str, int] = {}
    for declaration in module.declarations:
        name = construct_of(declaration).name
        counts[name] = counts.get(name, 0) + 1
    return counts


def _names_of(construct: str, module: Module) -> frozenset[str | None]:
    alike = (declaration for declaration in module.declarations if construct_of(declaration).name == construct)
    return frozenset(name for declaration in alike for name in names_of(declaration))


def _is_hollow(declaration: Declaration) -> bool:
    """Return whether a declaration is a function with a return type and an empty body, or one that only panics."""
    function = getattr(declaration, "function", declaration)
    if not isinstance(function, Function) or function.return_type is None:
        return False
    if function.body:
        return len(function.body) == 1 and _gives_up(function.body[0])
    is_elsewhere = function.extern_module is not None or not _BODILESS.isdisjoint(d.name for d in function.decorators)
    return not is_elsewhere


def _gives_up(statement: Statement) -> bool:
    """Return whether a statement is `panic(...)`, returned or not."""
    value = statement.value if isinstance(statement, Return) else getattr(statement, "expression", None)
    return isinstance(value, Call) and isinstance(value.callee, Ident) and value.callee.name == "panic"


def _sentence(error: Diagnostic) -> str:
    return f"{error.start.line}:{error.start.column}: {error.code}: {error.message}"
