"""`mens check`: the verdict of the front end on files or a stream."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mens_pipeline.cli.check_stream import check_stream
from mens_pipeline.cli.diagnostic_text import render
from mens_pipeline.corpus.sources import vox_files
from mens_pipeline.language.front_end import Analysis, analyze_bytes
from mens_pipeline.language.parser.modules import Mode, mode_of
from mens_pipeline.language.verdict import verdict_record

REFUSED = 1
MISUSE = 2


class ModeOption(StrEnum):
    """`auto` goes by the name of the file (M6)."""

    AUTO = "auto"
    SOURCE = "source"
    SCRIPT = "script"
    UI = "ui"


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Vox files, folders of them, or `-` for standard input.", show_default=False),
    ] = None,
    *,
    mode: Annotated[ModeOption, typer.Option(help="How to read the texts.")] = ModeOption.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    jsonl: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Check JSON lines {"id", "source", "mode"?} from a file or `-`; answer each.'),
    ] = None,
) -> None:
    """Check Vox programs against the grammar and say what is wrong with them.

    Exit code 0: all accepted. 1: something is rejected. 2: the command was misused.

    Lines count from 1. Columns count from 1 in text, from 0 in JSON; offsets are bytes.
    """
    if jsonl is not None:
        if files or as_json:
            raise typer.BadParameter("--jsonl stands alone: give it no files and no --json.")
        raise typer.Exit(_check_lines(jsonl, mode))
    if not files:
        raise typer.BadParameter("nothing to check. Name files or folders, `-` for standard input, or use --jsonl.")
    paths = [path for root in files for path in ([root] if str(root) == "-" else vox_files(root))]
    if not paths:
        raise typer.BadParameter(f"no .vox files below {', '.join(map(str, files))}.")
    checked = [_check_file(path, mode) for path in paths]
    if as_json:
        _print_json(checked)
    else:
        _print_text(checked)
    raise typer.Exit(0 if all(analysis.ok for _, _, analysis in checked) else REFUSED)


def _check_lines(path: Path, mode: ModeOption) -> int:
    default = Mode.SOURCE if mode is ModeOption.AUTO else Mode(mode)
    if str(path) == "-":
        summary = check_stream(sys.stdin.buffer, sys.stdout, default)
    else:
        try:
            with path.open("rb") as lines:
                summary = check_stream(lines, sys.stdout, default)
        except OSError as error:
            raise typer.BadParameter(f"{path}: {error.strerror}. Name a readable file.") from error
    typer.echo(summary.text, err=True)
    if summary.malformed:
        return MISUSE
    return REFUSED if summary.rejected else 0


def _check_file(path: Path, mode: ModeOption) -> tuple[str, bytes, Analysis]:
    is_stdin = str(path) == "-"
    try:
        data = sys.stdin.buffer.read() if is_stdin else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}. Name a readable file.") from error
    chosen = mode_of(path.name) if mode is ModeOption.AUTO else Mode(mode)
    return ("<stdin>" if is_stdin else str(path)), data, analyze_bytes(data, chosen)


def _print_json(checked: list[tuple[str, bytes, Analysis]]) -> None:
    records = [{"path": path, **verdict_record(analysis)} for path, _, analysis in checked]
    rejected = sum(not analysis.ok for _, _, analysis in checked)
    document = {"num_files": len(records), "num_rejected": rejected, "files": records}
    typer.echo(json.dumps(document, indent=2))


def _print_text(checked: list[tuple[str, bytes, Analysis]]) -> None:
    for path, data, analysis in checked:
        for diagnostic in analysis.diagnostics:
            typer.echo(render(path, data.decode("utf-8", "replace"), diagnostic))
    accepted = sum(analysis.ok for _, _, analysis in checked)
    num_errors = sum(len(analysis.errors) for _, _, analysis in checked)
    num_warnings = sum(len(analysis.warnings) for _, _, analysis in checked)
    share = f"{accepted}/{len(checked)} ({accepted / len(checked):.1%})"
    typer.echo(f"accepted {share}, errors {num_errors}, warnings {num_warnings}", err=True)
