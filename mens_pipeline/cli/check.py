"""`mens check`: the verdict of the front end on files or a stream."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from mens_pipeline.cli.check_stream import check_stream
from mens_pipeline.cli.diagnostic_text import render
from mens_pipeline.corpus.regular_file import read_regular
from mens_pipeline.corpus.shares import share_text
from mens_pipeline.corpus.sources import vox_files
from mens_pipeline.language.front_end import Analysis, analyze_bytes
from mens_pipeline.language.parser.modules import Mode, mode_of
from mens_pipeline.language.source_text import SourceText
from mens_pipeline.language.verdict import verdict_record
from mens_pipeline.language.visible_text import visible_text

REFUSED: Final = 1
MISUSE: Final = 2
MAX_BYTES: Final = 67_108_864
"""Of a file; a larger one is no program."""

_STDIN: Final = Path("-")


class ModeOption(StrEnum):
    """How to read a text; `auto` goes by the name of the file (M6)."""

    AUTO = "auto"
    SOURCE = "source"
    SCRIPT = "script"
    UI = "ui"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file with its verdict.

    Attributes:
        path: As the user named it.
        data: Its content.
        analysis: What the front end says.
    """

    path: str
    data: bytes
    analysis: Analysis


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
        typer.Option(
            metavar="FILE", help='Check JSON lines {"id", "source", "mode"?} from a file or `-`; answer each.'
        ),
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
    paths = [path for root in files for path in ([root] if root == _STDIN else vox_files(root))]
    if not paths:
        raise typer.BadParameter(f"no .vox files below {', '.join(map(str, files))}.")
    checked = (_check_file(path, mode) for path in paths)
    all_accepted = _print_json(checked) if as_json else _print_text(checked)
    raise typer.Exit(0 if all_accepted else REFUSED)


def _check_lines(path: Path, mode: ModeOption) -> int:
    default = Mode.SOURCE if mode is ModeOption.AUTO else Mode(mode)
    if path == _STDIN:
        summary = check_stream(sys.stdin.buffer, sys.stdout, default)
    else:
        try:
            with path.open("rb") as lines:
                summary = check_stream(lines, sys.stdout, default)
        except OSError as error:
            raise typer.BadParameter(visible_text(f"{path}: {error.strerror}. Name a readable file.")) from error
    typer.echo(summary.text, err=True)
    if summary.malformed:
        return MISUSE
    return REFUSED if summary.rejected else 0


def _check_file(path: Path, mode: ModeOption) -> CheckedFile:
    try:
        data = sys.stdin.buffer.read() if path == _STDIN else read_regular(path, MAX_BYTES)
    except OSError as error:
        raise typer.BadParameter(visible_text(f"{path}: {error.strerror}. Name a readable file.")) from error
    chosen = mode_of(path.name) if mode is ModeOption.AUTO else Mode(mode)
    return CheckedFile("<stdin>" if path == _STDIN else str(path), data, analyze_bytes(data, chosen))


def _print_json(checked: Iterable[CheckedFile]) -> bool:
    records = [{"path": file.path, **verdict_record(file.analysis)} for file in checked]
    rejected = sum(not record["ok"] for record in records)
    typer.echo(json.dumps({"num_files": len(records), "num_rejected": rejected, "files": records}, indent=2))
    return rejected == 0


def _print_text(checked: Iterable[CheckedFile]) -> bool:
    num_files = num_accepted = num_errors = num_warnings = 0
    for file in checked:
        for text in _rendered(file):
            typer.echo(text)
        num_files += 1
        num_accepted += file.analysis.ok
        num_errors += len(file.analysis.errors)
        num_warnings += len(file.analysis.warnings)
    counts = f"accepted {share_text(num_accepted, num_files)}, errors {num_errors}, warnings {num_warnings}"
    typer.echo(counts, err=True)
    return num_accepted == num_files


def _rendered(file: CheckedFile) -> Iterator[str]:
    source = SourceText(file.data.decode("utf-8", "replace"))
    return (render(file.path, source, diagnostic) for diagnostic in file.analysis.diagnostics)
