"""The training processes that still run."""

from collections.abc import Iterable
from pathlib import Path

from mens_pipeline.training.job import MODULE

_PROCESSES = Path("/proc")


def training_children(module: str = MODULE) -> list[int]:
    """Ids of the live training processes below this one; processes of other kinds, and dead ones, are no concern.

    Args:
        module: What runs in them.
    """
    listings = Path("/proc/self/task").glob("*/children")
    return _training((number for listing in listings for number in listing.read_text().split()), module=module)


def training_processes(folder: Path) -> list[int]:
    """Ids of the live training processes with a job below a folder, whoever started them.

    Args:
        folder: Where the job lies.
    """
    numbers = (path.name for path in _PROCESSES.iterdir() if path.name.isdigit())
    return _training(numbers, str(folder).encode())


def _training(numbers: Iterable[str], argument: bytes = b"", module: str = MODULE) -> list[int]:
    found = []
    for number in numbers:
        try:
            # A dead process that nobody has waited for has no command line.
            command = (_PROCESSES / number / "cmdline").read_bytes()
        except OSError:
            continue
        if module.encode() in command and argument in command:
            found.append(int(number))
    return found
