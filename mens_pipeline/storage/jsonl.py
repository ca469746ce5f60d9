"""JSON lines on disk, written atomically.

Raises `SourceNotFoundError` for files that cannot be read, and `ConfigurationError` for folders that cannot be written.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Final, TextIO, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError, SourceNotFoundError
from mens_pipeline.storage.documents import hold_draft
from mens_pipeline.storage.files import MAX_LINE_BYTES, bounded_lines, disk_error, is_full, named_errors, placed_lines
from mens_pipeline.storage.store import digest_of
from mens_pipeline.storage.validation import Versioned, errors_in, problem_in

Model = TypeVar("Model", bound=BaseModel)

MAX_OWN_LINE_BYTES: Final = 67_108_864
"""A row that this project wrote may hold several texts."""


def write_jsonl(path: Path, records: Iterable[BaseModel]) -> int:
    """Write records, one per line, and return their number."""
    return write_lines(path, (record.model_dump_json() for record in records))


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines, given without newlines, and return their number."""
    written = 0
    with _replacing(path) as target:
        for line in lines:
            target.write(line + "\n")
            written += 1
    return written


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with _replacing(path) as target:
        target.write(text)


def write_digest(path: Path) -> str:
    """Write `NAME.sha256` next to a file, in the format of `sha256sum -c`, and return the digest, hexadecimal."""
    digest = digest_of(path)
    write_text(path.with_name(f"{path.name}.sha256"), f"{digest}  {path.name}\n")
    return digest


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    # Half a character becomes an escape, which JSON reads as such.
    with (
        replacing(path) as target,
        TextIOWrapper(target, encoding="utf-8", errors="backslashreplace", newline="\n") as text,
    ):
        yield text


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends without an exception; refuse pipes and devices."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigurationError(f"{path}: not a regular file. Name a file that may be replaced.")
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = temporary.open("xb")
    except OSError as error:
        raise disk_error(error, path, "Name a file in a writable folder.", is_named=True) from error
    held = os.dup(target.fileno())  # the block may close its file before it is renamed
    try:
        hold_draft(held, path.parent)
        with named_errors(path), target:
            yield target
    except OSError as error:
        if not is_full(error):  # from something that the block reads
            raise
        raise disk_error(error, path, "Make room, or name a file elsewhere.", is_named=True) from error
    else:
        try:
            temporary.replace(path)
        except OSError as error:
            raise disk_error(error, path, "Name a file that may be replaced.", is_named=True) from error
    finally:
        os.close(held)
        temporary.unlink(missing_ok=True)


@contextmanager
def open_rows(path: Path, most: int = MAX_LINE_BYTES) -> Iterator[Iterator[bytes]]:
    """Open a JSONL file as an iterator of lines, cut as by `bounded_lines`."""
    with _open_binary(path) as content:
        yield bounded_lines(content, most)


@contextmanager
def open_part(path: Path, start: int, end: int) -> Iterator[Iterator[bytes]]:
    """Open the lines of a JSONL file that start at byte offsets from `start` up to, but not including, `end`."""
    with _open_binary(path) as content:
        begin = content.seek(max(0, start - 1))
        while start and (piece := content.readline(MAX_LINE_BYTES)):
            begin += len(piece)
            if piece.endswith(b"\n"):
                break
        placed = takewhile(lambda placed: begin + placed[0] < end, placed_lines(content, MAX_LINE_BYTES))
        yield (line for _, line in placed)


@contextmanager
def open_placed_rows(path: Path) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Open a JSONL file as an iterator of lines with their byte offsets, for `row_at`."""
    with _open_binary(path) as content:
        yield placed_lines(content, MAX_LINE_BYTES)


def row_at(path: Path, offset: int) -> bytes:
    """Read the line of a file that begins at a byte offset."""
    with _open_binary(path) as content:
        content.seek(offset)
        return content.readline(MAX_LINE_BYTES + 1)


def _open_binary(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceNotFoundError(f"{path}: {error.strerror}. Name a readable file of JSON lines.") from error


def read_models(path: Path, model: type[Model]) -> Iterator[Model]:
    """Yield rows that this project wrote; raise `RefusedError` for a row that is damaged or from newer code."""
    with open_rows(path, MAX_OWN_LINE_BYTES) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip():
                    yield model.model_validate_json(line)
            except ValidationError as error:
                problem = problem_in(error, model.__name__, "Delete its folder, and run again.")
                raise RefusedError(f"{path}:{number}: {problem}") from error


def models_in(lines: Iterable[bytes], path: Path, model: type[Model], what: str, advice: str) -> Iterator[Model]:
    """Parse models, one per line; skip blank lines, raise `RefusedError` for invalid ones."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield model_in(line, f"{path}:{number}", model, what, advice)


def model_in(line: bytes, place: str, model: type[Model], what: str, advice: str) -> Model:
    """Parse one line as `models_in` does."""
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        is_ours = issubclass(model, Versioned)
        problem = problem_in(error, what, advice) if is_ours else f"invalid {what} ({errors_in(error)}). {advice}"
        raise RefusedError(f"{place}: {problem}") from error
