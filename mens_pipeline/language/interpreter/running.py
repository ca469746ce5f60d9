"""Run a program's own tests or hidden tests (T5) in this process, from its text to a report."""

from dataclasses import replace
from time import monotonic
from typing import Final

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import ast
from mens_pipeline.language.ast.base import walk
from mens_pipeline.language.diagnostics import SourceText
from mens_pipeline.language.front_end import DEEP_STACK, analyze
from mens_pipeline.language.interpreter.case import CaseRunner
from mens_pipeline.language.interpreter.compiler.expressions import ASSERTIONS
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.results import (
    Features,
    LimitKind,
    Limits,
    Outcome,
    ProgramReport,
    ProgramStatus,
    TextName,
)
from mens_pipeline.language.interpreter.values import Native, byte_length
from mens_pipeline.language.parser.modules import Mode

DEFAULT_LIMITS = Limits()
NO_FEATURES = Features()


def run_tests(
    source: str,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    *,
    features: Features = NO_FEATURES,
    mode: Mode = Mode.SOURCE,
) -> ProgramReport:
    """Run the `@test` functions and `@forall` properties of a program; `seed` is for the arguments of properties.

    Reports are deterministic, except for time limits. Memory is bounded only by counting: use `Sandbox` for untrusted
    programs.
    """
    module, report = parse_program(source, limits, mode)
    if module is None:
        return report
    machine = Machine(limits)
    program = Program(module, TextName.PROGRAM, machine, features)
    texts = {TextName.PROGRAM: SourceText(source)}
    return run_all(CaseRunner(program, machine, TextName.PROGRAM, texts, f"{seed}:{source}"), limits)


def parse_program(source: str, limits: Limits, mode: Mode = Mode.SOURCE) -> tuple[ast.Module | None, ProgramReport]:
    """Parse a program; return its syntax, None if it is rejected, and a report for that case (J1, R8)."""
    size = byte_length(source)
    if size > limits.max_source:
        message = f"the program has {size:,} bytes; the most is {limits.max_source:,}"
        return None, ProgramReport(ProgramStatus.REJECTED, message=message)
    analysis = analyze(source, mode)
    return analysis.module, ProgramReport(ProgramStatus.REJECTED, diagnostics=analysis.errors)


def run_all(run: CaseRunner, limits: Limits) -> ProgramReport:
    """Run the tests of a program one after the other."""
    with DEEP_STACK.parse():
        DEEP_STACK.deepen()
        tests = run.program.tests
        if not tests:
            return ProgramReport(ProgramStatus.NO_TESTS, message="the program has no tests")
        end = monotonic() + limits.program_seconds
        results = []
        for test in list(tests.values())[: limits.max_tests]:
            left = end - monotonic()
            if left > 0:
                results.append(run.run_case(test, min(left, limits.test_seconds)))
            else:
                run.machine.begin()
                message = f"the program took more than {limits.program_seconds:g} s before this test"
                results.append(run.end_case(test, Outcome.LIMIT, LimitKind.TIME, message))
        num_left_out = len(tests) - len(results)
        notes = (f"{num_left_out} tests beyond the first {limits.max_tests} were left out",) if num_left_out else ()
        return ProgramReport(ProgramStatus.RAN, tuple(results), notes=notes)


_NAMED_VALUES = (
    ast.Function
    | ast.Workflow
    | ast.Activity
    | ast.Actor
    | ast.Const
    | ast.ReactiveComponent
    | ast.Fragment
    | ast.V0Component
)

GIVEN_END: Final = "// The answer sees what stands above this line."
"""Line of hidden tests: the code above it is given by the task, and a candidate may use it without declaring it."""


def run_with_tests(
    candidate: str,
    tests: str,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    *,
    features: Features = NO_FEATURES,
) -> ProgramReport:
    """Run hidden tests against a candidate, and none of its own tests.

    The two texts are parsed separately. The tests see all names of the candidate, and `hidden_output()`, the output so
    far. The candidate sees only names that the tests declare above the line `GIVEN_END`. If both declare a name, each
    uses its own. A candidate that redefines a name that the tests rely on fails all of them.

    Raises:
        ConfigurationError: The tests are rejected, or there are none.
    """
    hidden = hidden_module(tests)
    # The UI mode accepts pages; source files mean the same in both modes (M5).
    module, report = parse_program(candidate, limits, Mode.UI if features.views else Mode.SOURCE)
    if module is None:
        return report
    machine = Machine(limits)
    program, _ = put_below(tests, module, machine, features)
    texts = {TextName.PROGRAM: SourceText(candidate), TextName.TESTS: SourceText(tests)}
    run = CaseRunner(program, machine, TextName.TESTS, texts, f"{seed}:{tests}")
    redefined = sorted(_find_redefined(module, hidden))
    if redefined:
        message = f"the program redefines {', '.join(f'`{name}`' for name in redefined)}, which the tests rely on"
        failed = tuple(run.end_case(test, Outcome.FAILED, message=message) for test in program.tests.values())
        return ProgramReport(ProgramStatus.RAN, failed)
    return run_all(run, limits)


def put_below(tests: str, candidate: ast.Module, machine: Machine, features: Features) -> tuple[Program, Program]:
    """Return hidden tests as a program on top of the candidate, and the candidate on top of the given code.

    Raises:
        ConfigurationError: The tests are rejected, or there are none.
    """
    given = given_module(tests)
    lowest = Program(given, TextName.TESTS, machine, features) if given is not None else None
    own = tuple(d for d in candidate.declarations if isinstance(d, ast.Test | ast.Forall))
    # Its own tests come first, so that other declarations of the same names replace them (C2).
    ordered = replace(candidate, declarations=(*own, *without_tests(candidate).declarations))
    below = Program(ordered, TextName.PROGRAM, machine, features, lowest)
    program = Program(hidden_module(tests), TextName.TESTS, machine, features, below)
    program.define("hidden_output", Native("hidden_output", lambda machine: "".join(machine.output), 0, 0))
    return program, below


def hidden_module(tests: str) -> ast.Module:
    """Parse hidden tests; raise a `ConfigurationError` if they are rejected or there are none."""
    analysis = analyze(tests)
    if analysis.module is None:
        first = analysis.errors[0]
        place = f"line {first.start.line}, column {first.start.column + 1}"
        raise ConfigurationError(f"hidden tests are rejected at {place}: {first.message}. Mend the task.")
    if not any(isinstance(declaration, ast.Test | ast.Forall) for declaration in analysis.module.declarations):
        raise ConfigurationError("hidden tests hold no `@test` and no `@forall`. Add one to the task.")
    return analysis.module


def given_module(tests: str) -> ast.Module | None:
    """Return the syntax of the code that a task gives; None if it gives none."""
    end = tests.find(GIVEN_END)
    if end < 0:
        return None
    module = hidden_module(tests)
    return replace(module, declarations=tuple(d for d in module.declarations if d.start < end))


def with_given(given: str, tests: str) -> str:
    """Put the given code of a task above its hidden tests."""
    return f"{given.rstrip()}\n\n{GIVEN_END}\n{tests}" if given.strip() else tests


def without_tests(module: ast.Module) -> ast.Module:
    """Return a program without its own tests and properties."""
    return replace(
        module, declarations=tuple(d for d in module.declarations if not isinstance(d, ast.Test | ast.Forall))
    )


def _find_redefined(candidate: ast.Module, tests: ast.Module) -> set[str]:
    nodes = list(walk(tests))
    used = {node.name for node in nodes if isinstance(node, ast.Ident)}
    bound = {node.name for node in nodes if isinstance(node, ast.IdentPattern) and not node.name[:1].isupper()}
    functions, variants = _declared_names(candidate)
    own_functions, own_variants = _declared_names(tests)
    built_in = (used & BUILT_INS.keys()) - own_functions - own_variants
    return (functions & built_in) | (variants & bound) | ((functions | variants) & ASSERTIONS.keys())


def _declared_names(module: ast.Module) -> tuple[set[str], set[str]]:
    """Return names of values, and names of variants."""
    values: set[str] = set()
    variants: set[str] = set()
    for declaration in module.declarations:
        wrapped = getattr(declaration, "function", declaration)
        if isinstance(wrapped, _NAMED_VALUES):
            values.add(wrapped.name)
        elif isinstance(declaration, ast.TypeDef | ast.Url):
            variants.update(variant.name for variant in declaration.variants)
        elif isinstance(declaration, ast.Import):
            values.update(path.alias for path in declaration.paths if path.alias is not None)
    return values, variants
