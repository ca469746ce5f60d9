"""Names and shapes of the tensors of a safetensors file, from its header alone: no value is read."""

import json
import math
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError

Shape = tuple[int, ...]

_LONGEST: Final = 100_000_000
"""Bytes of a header, as the library has it."""

_MOST_DIMENSIONS: Final = 8
_LARGEST: Final = 2**40
_ADVICE: Final = "Fetch or write the file again."


def shapes_in(file: Path) -> dict[str, Shape]:
    """Name and shape of each tensor of a file that anybody may have written.

    Raises:
        RefusedError: It cannot be read, or is no safetensors file.
    """
    try:
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            text = content.read(min(length, _LONGEST))
        header = json.loads(text if len(text) == length else b"not whole")
        return {name: _shape(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}. {_ADVICE}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise RefusedError(f"{file}: no safetensors file. {_ADVICE}") from error


def num_values_in(file: Path) -> int:
    """Count the values of a file.

    Raises:
        RefusedError: It cannot be read, or is no safetensors file.
    """
    return sum(map(math.prod, shapes_in(file).values()))


def _shape(sizes: list[Any]) -> Shape:
    """Return sizes as a shape; refuse anything but a few whole numbers."""
    if len(sizes) > _MOST_DIMENSIONS or not all(type(size) is int and 0 <= size < _LARGEST for size in sizes):
        raise ValueError("no shape of a tensor")
    return tuple(sizes)
