"""A candidate program judged by tests that it does not know and cannot touch (T5)."""

from dataclasses import replace
from functools import lru_cache
from typing import Final

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language.ast.base import walk
from mens_pipeline.language.ast.behaviour import Activity, Actor, Workflow
from mens_pipeline.language.ast.data import Const, Import, TypeDef, Url
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.ast.expressions import Ident
from mens_pipeline.language.ast.functions import Forall, Function, Test
from mens_pipeline.language.ast.patterns import IdentPattern
from mens_pipeline.language.ast.ui import Fragment, ReactiveComponent, V0Component
from mens_pipeline.language.front_end import analyze
from mens_pipeline.language.interpreter.case import CaseRunner
from mens_pipeline.language.interpreter.compiler.assertions import ASSERTIONS
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS
from mens_pipeline.language.interpreter.limits import Features, Limits
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.results import Outcome, ProgramReport, ProgramStatus, TextName
from mens_pipeline.language.interpreter.running import DEFAULT_LIMITS, NO_FEATURES, parsed, run_all
from mens_pipeline.language.source_text import SourceText

_NAMED_VALUES = Function | Workflow | Activity | Actor | Const | ReactiveComponent | Fragment | V0Component

GIVEN_END: Final = "// The answer sees what stands above this line."
"""The line of hidden tests above which code stands that the task gives: an answer uses it without declaring it."""

_TESTS_KEPT: Final = 256
"""Parsed hidden tests that are remembered: those of one task judge many candidates in a row."""


def run_with_tests(
    candidate: str,
    tests: str,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    *,
    features: Features = NO_FEATURES,
) -> ProgramReport:
    """Run hidden tests against a candidate; its own tests do not count and do not run.

    The two texts are parsed apart. The tests see the names of the candidate, the candidate sees none of theirs but
    those declared above the line `GIVEN_END`; where both declare a name, each means its own. A candidate that redefines
    what the tests rely on fails all of them.

    The two texts may use `limits` together; `seed` is for the arguments of properties.

    Raises:
        ConfigurationError: The tests themselves are rejected, or there are none.
    """
    hidden = hidden_module(tests)
    module, report = parsed(candidate, limits)
    if module is None:
        return report
    machine = Machine(limits)
    given = given_module(tests)
    lowest = Program(given, TextName.TESTS, machine, features) if given is not None else None
    below = Program(without_tests(module), TextName.PROGRAM, machine, features, lowest)
    program = Program(hidden, TextName.TESTS, machine, features, below)
    texts = {TextName.PROGRAM: SourceText(candidate), TextName.TESTS: SourceText(tests)}
    run = CaseRunner(program, machine, TextName.TESTS, texts, f"{seed}:{tests}")
    redefined = sorted(_redefined(module, hidden))
    if redefined:
        message = f"the program redefines {', '.join(f'`{name}`' for name in redefined)}, which the tests rely on"
        failed = tuple(run.ended(test, Outcome.FAILED, message=message) for test in program.tests.values())
        return ProgramReport(ProgramStatus.RAN, failed)
    return run_all(run, limits)


@lru_cache(maxsize=_TESTS_KEPT)
def hidden_module(tests: str) -> Module:
    """Parse hidden tests.

    Raises:
        ConfigurationError: They are rejected, or there are none.
    """
    analysis = analyze(tests)
    if analysis.module is None:
        first = analysis.errors[0]
        place = f"line {first.start.line}, column {first.start.column + 1}"
        raise ConfigurationError(f"hidden tests are rejected at {place}: {first.message}. Mend the task.")
    if not any(isinstance(declaration, Test | Forall) for declaration in analysis.module.declarations):
        raise ConfigurationError("hidden tests hold no `@test` and no `@forall`. Add one to the task.")
    return analysis.module


def given_module(tests: str) -> Module | None:
    """Return the syntax of the code that a task gives; None where it gives none."""
    end = tests.find(GIVEN_END)
    if end < 0:
        return None
    module = hidden_module(tests)
    return replace(module, declarations=tuple(d for d in module.declarations if d.start < end))


def with_given(given: str, tests: str) -> str:
    """Return hidden tests with code that the task gives."""
    return f"{given.rstrip()}\n\n{GIVEN_END}\n{tests}" if given.strip() else tests


def without_tests(module: Module) -> Module:
    """Return a program without its own tests and properties."""
    return replace(module, declarations=tuple(d for d in module.declarations if not isinstance(d, Test | Forall)))


def _redefined(candidate: Module, tests: Module) -> set[str]:
    """Return names that the candidate declares and that mean something else to the tests."""
    nodes = list(walk(tests))
    used = {node.name for node in nodes if isinstance(node, Ident)}
    bound = {node.name for node in nodes if isinstance(node, IdentPattern) and not node.name[:1].isupper()}
    functions, variants = _declared(candidate)
    own_functions, own_variants = _declared(tests)
    built_in = (used & BUILT_INS.keys()) - own_functions - own_variants
    return (functions & built_in) | (variants & bound) | ((functions | variants) & ASSERTIONS.keys())


def _declared(module: Module) -> tuple[set[str], set[str]]:
    """Return names of functions, constants, actors, components and imports; names of variants."""
    values: set[str] = set()
    variants: set[str] = set()
    for declaration in module.declarations:
        wrapped = getattr(declaration, "function", declaration)
        if isinstance(wrapped, _NAMED_VALUES):
            values.add(wrapped.name)
        elif isinstance(declaration, TypeDef | Url):
            variants.update(variant.name for variant in declaration.variants)
        elif isinstance(declaration, Import):
            values.update(path.alias for path in declaration.paths if path.alias is not None)
    return values, variants
