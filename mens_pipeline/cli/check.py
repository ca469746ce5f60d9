"""`mens check` and `mens test`: the results of the front end and of the tests of Vox programs."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TextIO, get_args

import typer

from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.terminal import MISUSE, REFUSED, log_line, print_json
from mens_pipeline.corpus.extract.sources import vox_files
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.language import (
    Analysis,
    Diagnostic,
    Mode,
    Severity,
    SourceText,
    analyze,
    analyze_bytes,
    mode_of,
    verdict_record,
    visible_text,
)
from mens_pipeline.language.interpreter import (
    CaseResult,
    Features,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Sandbox,
    report_record,
)
from mens_pipeline.language.semantics import semantic_diagnostics, semantic_records
from mens_pipeline.storage.files import bounded_lines, read_regular

MAX_REQUEST_BYTES: Final = 67_108_864
"""Size limit of a program, and of a line; a longer line is malformed and never held in memory as a whole."""


@dataclass(frozen=True, slots=True)
class _StreamSummary:
    seen: int
    rejected: int
    malformed: int

    @property
    def text(self) -> str:
        accepted = self.seen - self.rejected - self.malformed
        share = share_text(accepted, self.seen)
        return f"accepted {share}, rejected {self.rejected}, malformed lines {self.malformed}"


def check_stream(lines: BinaryIO, out: TextIO, default: Mode, *, with_semantics: bool = True) -> _StreamSummary:
    """Answer each request with one line, in order and without delay.

    The reply to a malformed line has a null `id` and an `error`. Blank lines are skipped.
    """
    seen = rejected = malformed = 0
    for number, line in enumerate(bounded_lines(lines, MAX_REQUEST_BYTES), start=1):
        if not line.strip():
            continue
        seen += 1
        reply = _reply(line, number, default, with_semantics=with_semantics)
        malformed += "error" in reply
        rejected += "error" not in reply and not reply["ok"]
        out.write(json.dumps(reply) + "\n")
        out.flush()
    return _StreamSummary(seen, rejected, malformed)


def _reply(line: bytes, number: int, default: Mode, *, with_semantics: bool) -> dict[str, Any]:
    if len(line) > MAX_REQUEST_BYTES:
        return _report_malformed(None, number, f"has more than {MAX_REQUEST_BYTES} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _report_malformed(None, number, f"is not JSON ({error})")
    if not isinstance(request, dict):
        return _report_malformed(None, number, "is not an object")
    identity = request.get("id")
    source = request.get("source")
    mode = request.get("mode", default)
    if not isinstance(source, str):
        return _report_malformed(identity, number, "has no text in `source`")
    if mode not in get_args(ModeOption):
        return _report_malformed(identity, number, f"has mode {mode!r}; write auto, source, script or ui")
    # A request has no file name, so `auto` means --mode.
    analysis = analyze(source, default if mode == "auto" else Mode(mode))
    reply = {"id": identity, **verdict_record(analysis)}
    if with_semantics and analysis.module is not None:
        reply["semantic"] = semantic_records(semantic_diagnostics(analysis.module, source))
    return reply


def _report_malformed(identity: object, number: int, problem: str) -> dict[str, Any]:
    message = f'line {number} {problem}. Expected {{"id": ..., "source": "...", "mode": "source"}}.'
    return {"id": identity, "ok": False, "declarations": [], "constructs": {}, "diagnostics": [], "error": message}


_STDIN: Final = Path("-")

ModeOption = Literal["auto", "source", "script", "ui"]
"""Grammar mode of a text; `auto` follows the name of the file (M6)."""


@dataclass(frozen=True, slots=True)
class _CheckedFile:
    """A file with its verdict; `semantic` is None if the file is rejected or only syntax was requested.

    `error` says why it could not be read.
    """

    path: str
    data: bytes
    analysis: Analysis
    semantic: tuple[Diagnostic, ...] | None
    error: str | None = None

    @property
    def source(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def is_right(self) -> bool:
        return self.analysis.ok and all(one.severity is not Severity.ERROR for one in self.semantic or ())


@declare_options
def check(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Vox files, folders of them, or `-` for standard input.", show_default=False),
    ] = None,
    mode: ModeOption = option("auto", "Grammar mode of the texts."),
    as_json: bool = switch("Print one JSON document.", "--json"),
    syntax_only: bool = switch("Do not check names and types.", "--syntax-only/--no-syntax-only"),
    jsonl: Path | None = option(
        None, 'Check JSON lines {"id", "source", "mode"?} from a file or `-`; answer each.', metavar="FILE"
    ),
) -> None:
    """Check the grammar, names and types of Vox programs and report every problem.

    Exit code 0: no problem. 1: a program is rejected or, except with --jsonl, has an error in names or types.
    2: the command was misused.

    Lines count from 1. Columns count from 1 in text, from 0 in JSON; offsets are bytes.
    """
    if jsonl is not None:
        if files or as_json:
            raise typer.BadParameter("--jsonl takes no files and no --json. Leave them out.")
        raise typer.Exit(_check_lines(jsonl, mode, with_semantics=not syntax_only))
    if not files or files.count(_STDIN) > 1:
        found = "`-` is named twice" if files else "nothing to check"
        raise typer.BadParameter(f"{found}. Name files or folders, `-` once for standard input, or use --jsonl.")
    paths = [path for root in files for path in ([root] if root == _STDIN else vox_files(root))]
    if not paths:
        raise typer.BadParameter(f"no .vox files in {', '.join(map(str, files))}. Name other files or folders.")
    checked = (_check_file(path, mode, with_semantics=not syntax_only) for path in paths)
    all_right = _print_json(checked) if as_json else _print_text(checked)
    raise typer.Exit(0 if all_right else REFUSED)


def _check_lines(path: Path, mode: ModeOption, *, with_semantics: bool) -> int:
    default = Mode.SOURCE if mode == "auto" else Mode(mode)
    try:
        lines = sys.stdin.buffer if path == _STDIN else path.open("rb")
    except OSError as error:
        raise typer.BadParameter(visible_text(f"{path}: {error.strerror}. Name a readable file.")) from error
    with lines:
        summary = check_stream(lines, sys.stdout, default, with_semantics=with_semantics)
    typer.echo(summary.text, err=True)
    if summary.malformed:
        return MISUSE
    return REFUSED if summary.rejected else 0


def _read_program(path: Path) -> bytes | str:
    """Return the content of a file, or the reason if it cannot be read: one bad file must not stop the others."""
    try:
        if path != _STDIN:
            return read_regular(path, MAX_REQUEST_BYTES)
        data = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
        return data if len(data) <= MAX_REQUEST_BYTES else f"larger than {MAX_REQUEST_BYTES} bytes. Send less."
    except OSError as error:
        return f"{error.strerror}. Name a readable file."


def _resolve_mode(path: Path, mode: ModeOption) -> Mode:
    return mode_of(path.name) if mode == "auto" else Mode(mode)


def _check_file(path: Path, mode: ModeOption, *, with_semantics: bool) -> _CheckedFile:
    data, name = _read_program(path), "<stdin>" if path == _STDIN else str(path)
    if isinstance(data, str):
        return _CheckedFile(name, b"", Analysis(None, ()), None, data)
    analysis = analyze_bytes(data, _resolve_mode(path, mode))
    module = analysis.module if with_semantics else None
    semantic = semantic_diagnostics(module, data.decode("utf-8")) if module is not None else None
    return _CheckedFile(name, data, analysis, semantic)


def _print_json(checked: Iterable[_CheckedFile]) -> bool:
    records = []
    all_right = True
    for file in checked:
        semantic = {} if file.semantic is None else {"semantic": semantic_records(file.semantic)}
        error = {} if file.error is None else {"error": file.error}
        records.append({"path": file.path, **verdict_record(file.analysis), **semantic, **error})
        all_right = all_right and file.is_right
    rejected = sum(not record["ok"] for record in records)
    print_json({"num_files": len(records), "num_rejected": rejected, "files": records})
    return all_right


def _print_text(checked: Iterable[_CheckedFile]) -> bool:
    num_files = num_accepted = num_right = num_errors = num_semantic = num_warnings = 0
    for file in checked:
        diagnostics = sorted((*file.analysis.diagnostics, *(file.semantic or ())), key=lambda one: one.start)
        source = SourceText(file.source)
        if file.error is not None:
            typer.echo(visible_text(f"{file.path}: {file.error}"))
        for diagnostic in diagnostics:
            typer.echo(render(file.path, source, diagnostic))
        num_files += 1
        num_accepted += file.analysis.ok
        num_right += file.is_right
        num_errors += sum(one.severity is Severity.ERROR for one in diagnostics)
        num_semantic += sum(one.severity is Severity.ERROR for one in file.semantic or ())
        num_warnings += sum(one.severity is Severity.WARNING for one in diagnostics)
    errors = f"errors {num_errors}" + (f" ({num_semantic} in names and types)" if num_semantic else "")
    typer.echo(f"accepted {share_text(num_accepted, num_files)}, {errors}, warnings {num_warnings}", err=True)
    return num_right == num_files


_MOST_COLUMNS: Final = 100
_COLOURS: Final = {Severity.ERROR: typer.colors.RED, Severity.WARNING: typer.colors.YELLOW}


def render(path: str, source: SourceText, diagnostic: Diagnostic) -> str:
    """Format a diagnostic with its line, in colours that `typer.echo` may strip; line and column count from 1."""
    place = diagnostic.start
    label = typer.style(f"{diagnostic.severity}[{diagnostic.code}]", fg=_COLOURS[diagnostic.severity], bold=True)
    width = diagnostic.end.column - place.column if diagnostic.end.line == place.line else 1
    line, column, width = _window(source.line(place.line), place.column, width)
    indent = "".join("\t" if c == "\t" else " " * _cells(c) for c in line[:column])
    marks = "^" * max(1, sum(map(_cells, line[column : column + width])))
    gutter = " " * len(str(place.line))
    lines = [
        f"{visible_text(path)}:{place.line}:{place.column + 1}: {label}: {visible_text(diagnostic.message)}",
        f" {place.line} | {_printable(line)}",
        f" {gutter} | {indent}{typer.style(marks, fg=_COLOURS[diagnostic.severity], bold=True)}",
    ]
    if diagnostic.advice:
        lines.append(f" {gutter} = help: {visible_text(diagnostic.advice)}")
    return "\n".join(lines)


def _window(line: str, column: int, width: int) -> tuple[str, int, int]:
    if len(line) <= _MOST_COLUMNS:
        return line, column, width
    first = max(0, column - _MOST_COLUMNS // 2)
    lead = "…" if first else ""
    tail = "…" if first + _MOST_COLUMNS < len(line) else ""
    shown = lead + line[first : first + _MOST_COLUMNS] + tail
    inside = column - first + len(lead)
    return shown, inside, min(width, len(shown) - inside)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line)


_OUTCOME_COLOURS: Final = {Outcome.UNSUPPORTED: typer.colors.YELLOW}


@dataclass(frozen=True, slots=True)
class _TestedFile:
    """A file with the report of its tests; bytes of `source` that are not UTF-8 are replaced."""

    path: str
    source: str
    report: ProgramReport


@declare_options
def run_files(
    *,
    files: Annotated[list[Path], typer.Argument(help="Vox files, or folders of them.", show_default=False)],
    mode: ModeOption = option("auto", "Grammar mode of the texts."),
    seed: int = option(0, "Random seed for the arguments of properties."),
    contracts: bool = switch("Check @require, @ensure and @invariant."),
    database: bool = switch("Give programs tables in memory."),
    as_json: bool = switch("Print one JSON document.", "--json"),
) -> None:
    """Run the @test functions and @forall properties of Vox programs.

    Each program runs in a process without files, network or environment, with limited time and memory. A test that
    needs more is reported as unsupported: tables need --database. A fallback of @ensure needs --contracts.

    Exit code 0: all passed. 1: something failed or was rejected. 2: the command was misused, or there are no tests.

    Lines count from 1. Columns count from 1 in text, from 0 in JSON.
    """
    paths = [path for root in files for path in vox_files(root)]
    if not paths:
        raise typer.BadParameter(f"no .vox files in {', '.join(map(str, files))}. Name other files or folders.")
    features = Features(check_contracts=contracts, database=database)
    with Sandbox(1, features=features, seed=seed) as sandbox:
        if open_ways := [f"{what} ({why})" for what, why in sandbox.kept_out().items() if why]:
            log_line(f"warning: this system does not protect against: {', '.join(open_ways)}")
        tested = list(_test_files(paths, mode, sandbox))
    (_print_tests_json if as_json else _print_tests)(tested)
    raise typer.Exit(_exit_code([file.report for file in tested]))


def _test_files(paths: Sequence[Path], mode: ModeOption, sandbox: Sandbox) -> Iterator[_TestedFile]:
    for path in paths:
        data, chosen = _read_program(path), _resolve_mode(path, mode)
        if isinstance(data, str):
            yield _TestedFile(str(path), "", ProgramReport(ProgramStatus.REJECTED, message=data))
            continue
        source = data.decode("utf-8", "replace")
        if source.encode() != data:
            errors = analyze_bytes(data, chosen).errors
            yield _TestedFile(str(path), source, ProgramReport(ProgramStatus.REJECTED, diagnostics=errors))
        else:
            yield _TestedFile(str(path), source, sandbox.run(source, mode=chosen))


def _exit_code(reports: Sequence[ProgramReport]) -> int:
    if all(report.status is ProgramStatus.NO_TESTS for report in reports):
        typer.echo("no @test function and no @forall property to run. Add one, or name other files.", err=True)
        return MISUSE
    return 0 if all(report.passed or report.status is ProgramStatus.NO_TESTS for report in reports) else REFUSED


def _print_tests_json(tested: Sequence[_TestedFile]) -> None:
    records = [{"path": file.path, **report_record(file.report)} for file in tested]
    num_passed, num_tests = _counts(tested)
    print_json({"num_tests": num_tests, "num_passed": num_passed, "files": records})


def _print_tests(tested: Sequence[_TestedFile]) -> None:
    for file in tested:
        for line in _list_findings(file):
            typer.echo(line)
    num_passed, num_tests = _counts(tested)
    share = f" ({100 * num_passed / num_tests:.1f} %)" if num_tests else ""
    typer.echo(f"{num_passed}/{num_tests} tests passed{share}", err=True)


def _counts(tested: Sequence[_TestedFile]) -> tuple[int, int]:
    return sum(file.report.num_passed for file in tested), sum(len(file.report.tests) for file in tested)


def _list_findings(file: _TestedFile) -> Iterator[str]:
    report = file.report
    for diagnostic in report.diagnostics:
        yield render(file.path, SourceText(file.source), diagnostic)
    if report.message and report.status is not ProgramStatus.NO_TESTS:
        label = _label(Outcome.FAILED, report.limit or report.status)
        yield f"{visible_text(file.path)}:1:1: {label}: {visible_text(report.message)}"
    for result in report.tests:
        if not result.passed:
            yield _format_finding(file.path, result)
    yield from (visible_text(f"{file.path}: note: {note}") for note in report.notes)


def _format_finding(path: str, result: CaseResult) -> str:
    label = _label(result.outcome, result.reason or result.error_class or "")
    place, found = f"{path}:{result.line}:{result.column + 1}", f"{result.name}: {result.message}"
    message = f"{visible_text(place)}: {label}: {visible_text(found)}"
    return "\n".join((message, *(f" | {visible_text(line)}" for line in result.output.splitlines())))


def _label(outcome: Outcome, reason: str) -> str:
    return typer.style(f"{outcome}[{reason}]", fg=_OUTCOME_COLOURS.get(outcome, typer.colors.RED), bold=True)
