"""Small records and pairs for the tests of the corpus."""

import hashlib
from typing import Any

from mens_pipeline.corpus.extract.extractors import extract_vox
from mens_pipeline.corpus.schema.records import ExtractedRecord, Source, SourceFile, SourceKind, TrainingPair


def source_at(path: str, kind: SourceKind = SourceKind.VOX_FILE) -> Source:
    """A place in a file."""
    return Source(path=path, blob=hashlib.sha256(path.encode()).hexdigest(), span=(0, 1), lines=(1, 1), kind=kind)


def pair_at(
    path: str | None, prompt: str, response: str, kind: SourceKind = SourceKind.VOX_FILE, template: str | None = None
) -> TrainingPair:
    """A pair of code from a file, or from nowhere."""
    source = None if path is None else source_at(path, kind)
    return TrainingPair(prompt=prompt, response=response, source=source, template=template)


def records_of(source: str, path: str = "a.vox") -> tuple[ExtractedRecord, ...]:
    """The records of a program that trains."""
    found = extract_vox(SourceFile(path, source.encode()))

    assert isinstance(found, tuple)
    return found


def mix_report(*sources: dict[str, Any]) -> dict[str, Any]:
    """What the manifest of a train set says of its sources, where only some figures matter."""
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
    """What the manifest of a split says, where only some figures matter."""
    figures = dict.fromkeys(("heldout", "num_groups", "num_heldout_groups", "num_evaluating_groups"), 0)
    return {**figures, "train": {}, "aside": {}, "shortfall": "", "tested_functions": {}, **changes}
