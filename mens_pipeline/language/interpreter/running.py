"""From the text of a program to the report of its tests, in this process."""

from collections.abc import Mapping
from time import monotonic

from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.ast.functions import Forall, Test
from mens_pipeline.language.front_end import DEEP_STACK, analyze
from mens_pipeline.language.interpreter.case import CaseRunner
from mens_pipeline.language.interpreter.limits import Features, Limits
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.results import LimitKind, Outcome, ProgramReport, ProgramStatus, TextName
from mens_pipeline.language.interpreter.text_form import byte_length
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.source_text import SourceText

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
    """Run the `@test` functions and `@forall` properties of a program.

    Memory is bounded by counting alone; for programs of strangers use `Sandbox`.

    `seed` is for the arguments of properties.

    Returns:
        Why it was rejected, or a result a test; the same for the same arguments, unless it ran out of time.
    """
    module, report = parsed(source, limits, mode)
    if module is None:
        return report
    machine = Machine(limits)
    program = Program(module, TextName.PROGRAM, machine, features)
    texts = {TextName.PROGRAM: SourceText(source)}
    return run_all(CaseRunner(program, machine, TextName.PROGRAM, texts, f"{seed}:{source}"), limits)


def parsed(source: str, limits: Limits, mode: Mode = Mode.SOURCE) -> tuple[Module | None, ProgramReport]:
    """Parse a program; return its syntax, or None, with the report of its rejection (J1, R8)."""
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
        return _reports(run, run.program.tests, limits)


def _reports(run: CaseRunner, tests: Mapping[str, Test | Forall], limits: Limits) -> ProgramReport:
    if not tests:
        return ProgramReport(ProgramStatus.NO_TESTS, message="the program has no tests")
    end = monotonic() + limits.program_seconds
    results = []
    for test in list(tests.values())[: limits.max_tests]:
        left = end - monotonic()
        if left > 0:
            results.append(run.result_of(test, min(left, limits.test_seconds)))
        else:
            run.machine.begin()
            message = f"the program took more than {limits.program_seconds:g} s before this test"
            results.append(run.ended(test, Outcome.LIMIT, LimitKind.TIME, message))
    num_left_out = len(tests) - len(results)
    notes = (f"{num_left_out} tests beyond the first {limits.max_tests} were left out",) if num_left_out else ()
    return ProgramReport(ProgramStatus.RAN, tuple(results), notes=notes)
