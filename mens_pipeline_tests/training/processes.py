"""The training processes that a test has started and that still run."""

from pathlib import Path


def training_children() -> list[int]:
    """Ids of the live training processes below this one; processes of other kinds, and dead ones, are no concern."""
    found = []
    for listing in Path("/proc/self/task").glob("*/children"):
        for number in listing.read_text().split():
            command = Path(f"/proc/{number}/cmdline")
            # A dead process that nobody has waited for has no command line.
            if command.is_file() and b"mens_pipeline.training.child" in command.read_bytes():
                found.append(int(number))
    return found
