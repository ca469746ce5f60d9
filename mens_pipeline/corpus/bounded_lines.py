"""Lines of files that may hold one line of any length."""

from collections.abc import Iterator
from typing import BinaryIO, Final

MAX_LINE_BYTES: Final = 1_048_576
"""Of a row; a longer line is none."""

_CHUNK: Final = 65_536


def bounded_lines(content: BinaryIO, most: int) -> Iterator[bytes]:
    """Lines in bounded memory, however long they are.

    Args:
        content: What is read.
        most: Bytes of a line, its end included; of a longer one comes the beginning, one byte longer than this.
    """
    return (line for _, line in placed_lines(content, most))


def placed_lines(content: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines as `bounded_lines` does, each with its byte offset.

    Args:
        content: What is read, from its beginning.
        most: As for `bounded_lines`.

    Returns:
        For each line where it begins, in bytes, and what is in it.
    """
    offset = 0
    while line := content.readline(most + 1):
        yield offset, line
        offset += len(line)
        rest = line if len(line) > most else b"\n"
        while rest and not rest.endswith(b"\n"):
            rest = content.readline(_CHUNK)
            offset += len(rest)
