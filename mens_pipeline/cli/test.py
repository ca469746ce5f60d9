"""`mens test`: the tests of Vox programs, run in a sandbox."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from mens_pipeline.cli.check import ModeOption, read_program, render, resolve_mode
from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.terminal import MISUSE, REFUSED, log_line, print_json
from mens_pipeline.corpus.extract.sources import vox_files
from mens_pipeline.language import SourceText, analyze_bytes, visible_text
from mens_pipeline.language.interpreter import (
    CaseResult,
    Features,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Sandbox,
    report_record,
)

_COLOURS: Final = {Outcome.UNSUPPORTED: typer.colors.YELLOW}


@dataclass(frozen=True, slots=True)
class TestedFile:
    """A file with the report of its tests; `source` is empty for one that is no text."""

    path: str
    source: str
    report: ProgramReport


@declare_options
def run_files(
    *,
    files: Annotated[list[Path], typer.Argument(help="Vox files, or folders of them.", show_default=False)],
    mode: ModeOption = option("auto", "How to read the texts."),
    seed: int = option(0, "For the arguments of properties."),
    contracts: bool = switch("Check @require, @ensure and @invariant."),
    database: bool = switch("Let programs use tables in memory."),
    as_json: bool = switch("Print one JSON document.", "--json"),
) -> None:
    """Run the @test functions and @forall properties of Vox programs.

    Each program runs in a process without files, network or environment, in bounded time and memory; a test that needs
    more is unsupported.

    Exit code 0: all passed. 1: something failed or was rejected. 2: the command was misused, or there are no tests.

    Lines count from 1. Columns count from 1 in text, from 0 in JSON.
    """
    paths = [path for root in files for path in vox_files(root)]
    if not paths:
        raise typer.BadParameter(f"no .vox files below {', '.join(map(str, files))}.")
    features = Features(check_contracts=contracts, database=database)
    with Sandbox(1, features=features, seed=seed) as sandbox:
        if open_ways := [f"{what} ({why})" for what, why in sandbox.kept_out().items() if why]:
            log_line(f"warning: the system does not keep these programs from: {', '.join(open_ways)}")
        tested = list(_test_files(paths, mode, sandbox))
    (_print_json if as_json else _print_text)(tested)
    raise typer.Exit(_exit_code([file.report for file in tested]))


def _test_files(paths: Sequence[Path], mode: ModeOption, sandbox: Sandbox) -> Iterator[TestedFile]:
    for path in paths:
        data, chosen = read_program(path), resolve_mode(path, mode)
        try:
            source = data.decode("utf-8")
        except UnicodeDecodeError:
            errors = analyze_bytes(data, chosen).errors
            yield TestedFile(str(path), "", ProgramReport(ProgramStatus.REJECTED, diagnostics=errors))
        else:
            yield TestedFile(str(path), source, sandbox.run(source, mode=chosen))


def _exit_code(reports: Sequence[ProgramReport]) -> int:
    if all(report.status is ProgramStatus.NO_TESTS for report in reports):
        typer.echo("no @test function and no @forall property to run. Add one, or name other files.", err=True)
        return MISUSE
    return 0 if all(report.passed or report.status is ProgramStatus.NO_TESTS for report in reports) else REFUSED


def _print_json(tested: Sequence[TestedFile]) -> None:
    records = [{"path": file.path, **report_record(file.report)} for file in tested]
    num_passed, num_tests = _counts(tested)
    print_json({"num_tests": num_tests, "num_passed": num_passed, "files": records})


def _print_text(tested: Sequence[TestedFile]) -> None:
    for file in tested:
        for line in _findings(file):
            typer.echo(line)
    num_passed, num_tests = _counts(tested)
    share = f" ({100 * num_passed / num_tests:.1f} %)" if num_tests else ""
    typer.echo(f"{num_passed}/{num_tests} tests passed{share}", err=True)


def _counts(tested: Sequence[TestedFile]) -> tuple[int, int]:
    return sum(file.report.num_passed for file in tested), sum(len(file.report.tests) for file in tested)


def _findings(file: TestedFile) -> Iterator[str]:
    """Yield everything that is not a pass, as a compiler would print it."""
    report = file.report
    for diagnostic in report.diagnostics:
        yield render(file.path, SourceText(file.source), diagnostic)
    if report.message and report.status is not ProgramStatus.NO_TESTS:
        label = _label(Outcome.FAILED, report.limit or report.status)
        yield f"{visible_text(file.path)}:1:1: {label}: {visible_text(report.message)}"
    for result in report.tests:
        if not result.passed:
            yield _finding(file.path, result)
    yield from (visible_text(f"{file.path}: note: {note}") for note in report.notes)


def _finding(path: str, result: CaseResult) -> str:
    label = _label(result.outcome, result.reason or result.error_class or "")
    place, found = f"{path}:{result.line}:{result.column + 1}", f"{result.name}: {result.message}"
    message = f"{visible_text(place)}: {label}: {visible_text(found)}"
    return "\n".join((message, *(f" | {visible_text(line)}" for line in result.output.splitlines())))


def _label(outcome: Outcome, reason: str) -> str:
    return typer.style(f"{outcome}[{reason}]", fg=_COLOURS.get(outcome, typer.colors.RED), bold=True)
