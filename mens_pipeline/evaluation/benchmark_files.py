"""The files that a manifest names, read from inside its folder only."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.records import MAX_TEXT
from mens_pipeline.storage.files import read_regular

_MAX_BYTES: Final = 4 * MAX_TEXT
"""Of a text of the longest kind, in UTF-8."""


def read_files(folder: Path, named: Iterable[tuple[str, str]], mistakes: list[str]) -> dict[str, str]:
    """Read the texts of the files that can be read.

    Args:
        folder: Where the manifest lies.
        named: Task and file, relative to the folder.
        mistakes: Takes one sentence for each file that cannot be read: where, what was found, what was expected.

    Returns:
        File -> its text; line ends and all else as they stand.
    """
    texts: dict[str, str] = {}
    for task, name in named:
        try:
            texts[name] = _text(folder, name)
        except OSError as error:
            mistakes.append(f"task `{task}`: found no file `{name}` ({error.strerror}), expected one. Add it.")
        except ValueError as error:
            mistakes.append(f"task `{task}`: {name}: {error}")
    return texts


def digest_of(manifest: bytes, files: Mapping[str, str]) -> str:
    """SHA-256 over a manifest and the files it names, hexadecimal.

    Args:
        manifest: The manifest as it stands.
        files: File -> its text.
    """
    digest = hashlib.sha256(hashlib.sha256(manifest).digest())
    for name, text in sorted(files.items()):
        digest.update(name.encode() + b"\0")
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def _text(folder: Path, name: str) -> str:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError("found a link that leads out of the folder, expected a file in it. Copy the file here.")
    try:
        text = read_regular(path, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"found bytes that are not UTF-8 ({error.reason}), expected text. Save it as UTF-8."
        ) from error
    if not text.strip() or len(text) > MAX_TEXT:
        raise ValueError(f"found {len(text)} characters, expected a text of 1 to {MAX_TEXT}. Correct the file.")
    return text
