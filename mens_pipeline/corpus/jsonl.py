"""JSON lines on disk: a file is there whole or not at all."""

import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from mens_pipeline.errors import ConfigurationError


def write_jsonl(path: Path, records: Iterable[BaseModel]) -> int:
    """Write records, one a line, through a temporary file beside the target.

    Args:
        path: The target; replaced when it exists, untouched when writing fails.
        records: What to write, taken one at a time.

    Returns:
        How many were written.

    Raises:
        ConfigurationError: The folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = temporary.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Name a file in a folder you may write.") from error
    written = 0
    try:
        with lines:
            for record in records:
                lines.write(record.model_dump_json() + "\n")
                written += 1
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return written
