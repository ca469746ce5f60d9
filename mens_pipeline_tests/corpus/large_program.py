"""A program that a process is handed alone."""

from pathlib import Path

from mens_pipeline.corpus.extract.batches import BATCH_BYTES

_COMMENT = "// a long story\n"


def write_large_program(path: Path) -> None:
    """Write a program with two functions and comments that fill a batch."""
    path.write_text(f"{_COMMENT * (BATCH_BYTES // len(_COMMENT) + 1)}\nfn f() {{ }}\n\nfn g() {{ f() }}\n")
