"""An error of the interpreter itself is reported as such, and fails one test."""

import re

from mens_pipeline.language.diagnostics import SourceText
from mens_pipeline.language.interpreter import ErrorClass, ErrorKind, Features, Limits, Outcome, TextName
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.running import CaseRunner, run_all
from mens_pipeline.language.interpreter.sandbox import read_report, report_record
from mens_pipeline.language.interpreter.values import Native, Value
from mens_pipeline_tests.language.examples import parse

_SOURCE = "@test fn a() { assert(faulty(1) is 1) }\n@test fn b() { assert(1 is 1) }\n"


class _WithFault(Program):
    """A program with a faulty built-in."""

    def begin(self) -> None:
        super().begin()
        self.names["faulty"] = Native("faulty", _faulty, 1, 1)


def _faulty(_machine: Machine, value: Value) -> Value:
    return int(f"no number: {value}")


def test_an_error_of_the_interpreter_is_internal() -> None:
    machine = Machine(Limits())
    program = _WithFault(parse(_SOURCE), TextName.PROGRAM, machine, Features())
    run = CaseRunner(program, machine, TextName.PROGRAM, {TextName.PROGRAM: SourceText(_SOURCE)}, "")
    report = run_all(run, Limits())

    assert [result.outcome for result in report.tests] == [Outcome.ERROR, Outcome.PASSED]
    assert (report.num_passed, report.error_class) == (1, ErrorClass.RUNTIME)
    assert report.tests[0].reason is ErrorKind.INTERNAL
    assert re.fullmatch(
        r"the interpreter failed with ValueError: invalid literal for int\(\) with base 10: 'no number: 1', "
        r"at mens_pipeline\.language\.interpreter\.values:\d+; expected no failure of its own, "
        r"whatever the program does\. Report it together with the program\.",
        report.tests[0].message,
    )
    assert read_report(report_record(report)) == report
