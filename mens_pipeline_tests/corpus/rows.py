"""Small records and pairs for the tests of the corpus."""

import hashlib
from typing import Any

from mens_pipeline.corpus.extract.extractors import extract_vox
from mens_pipeline.corpus.schema.records import ExtractedRecord, Source, SourceFile, SourceKind, TrainingPair


def source_at(path: str, kind: SourceKind = SourceKind.VOX_FILE) -> Source:
    """Return a place in a file."""
    return Source(path=path, blob=hashlib.sha256(path.encode()).hexdigest(), span=(0, 1), lines=(1, 1), kind=kind)


def pair_at(
    path: str | None, prompt: str, response: str, kind: SourceKind = SourceKind.VOX_FILE, template: str | None = None
) -> TrainingPair:
    """Return a pair of code from a file, or without a source."""
    source = None if path is None else source_at(path, kind)
    return TrainingPair(prompt=prompt, response=response, source=source, template=template)


def records_of(source: str, path: str = "a.vox") -> tuple[ExtractedRecord, ...]:
    """Return the records of a program."""
    found = extract_vox(SourceFile(path, source.encode()))

    assert isinstance(found, tuple)
    return found


def mix_report(*sources: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a train set about its sources; omitted figures are zero."""
    usual: dict[str, Any] = {"path": "p", "weight": 1.0, "optional": False, "record_format": None}
    usual |= dict.fromkeys(("input_lines", "distinct_lines", "emitted_lines"), 0) | {"dropped": {}}
    usual |= dict.fromkeys(("repeats", "requested_share", "share_of_output"), 0.0)
    usual |= dict.fromkeys(("source_fingerprint", "skipped_reason"))
    total = sum(source.get("emitted_lines", 0) for source in sources)
    return {
        "sources": [usual | source for source in sources],
        "total_emitted": total,
        "total_distinct": sum(source.get("distinct_lines", 0) for source in sources),
    }


def split_report(**changes: Any) -> dict[str, Any]:
    """Return the report of a split; omitted figures are zero."""
    figures = dict.fromkeys(("heldout", "num_groups", "num_heldout_groups", "num_evaluating_groups"), 0)
    return {**figures, "train": {}, "aside": {}, "shortfall": "", "tested_functions": {}, **changes}
