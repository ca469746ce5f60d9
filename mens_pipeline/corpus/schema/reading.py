"""Records and pairs from files of JSON lines."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.storage.jsonl import MAX_OWN_LINE_BYTES, model_in, models_in, open_rows


def read_records(lines: Iterable[bytes], path: Path) -> Iterator[ExtractedRecord]:
    """Parse extracted records, one a line; blank lines are skipped.

    Raises:
        RefusedError: A line is no record.
    """
    return models_in(lines, path, ExtractedRecord, "extracted record", "Run `mens corpus validate` on the file first.")


def read_record_lines(path: Path) -> Iterator[tuple[str, ExtractedRecord]]:
    """Yield each line that `mens corpus extract` wrote, as it stands and without its end, with its record.

    Raises:
        SourceNotFoundError: It is not there or cannot be read.
        RefusedError: A line is no record.
    """
    with open_rows(path, MAX_OWN_LINE_BYTES) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                advice = "Take the row out, or name another file to write."
                record = model_in(line, f"{path}:{number}", ExtractedRecord, "extracted record", advice)
                yield line.decode().rstrip("\n"), record


def read_pairs(path: Path) -> Iterator[TrainingPair]:
    """Yield training pairs, one a line; blank lines are passed over.

    Raises:
        SourceNotFoundError: It is not there or cannot be read.
        RefusedError: A line is no pair.
    """
    with open_rows(path) as lines:
        yield from models_in(lines, path, TrainingPair, "pair", "Run `mens corpus validate` on the file first.")
