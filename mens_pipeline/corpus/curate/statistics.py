"""Counts over training data."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from mens_pipeline.corpus.curate.validate import Quarantined, read_rows
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair

_COUNTED: Final = ("lane", "kind", "task_family", "category", "rating", "difficulty")


@dataclass
class Statistics:
    """Counts over some rows.

    Attributes:
        counts: What is counted -> value -> rows.
        lengths: Request or answer -> characters of each row.
        distinct: Hashes of the rows' texts.
        sources: Source files.
        unreadable: Rows that are neither records nor pairs.
    """

    counts: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _COUNTED})
    lengths: dict[str, list[int]] = field(default_factory=lambda: {"prompt": [], "response": []})
    distinct: set[bytes] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    unreadable: int = 0

    def add(self, row: ExtractedRecord | TrainingPair) -> None:
        """Count a row."""
        prompt, response = (
            (row.prompt or "", row.text) if isinstance(row, ExtractedRecord) else (row.prompt, row.response)
        )
        self.lengths["prompt"].append(len(prompt))
        self.lengths["response"].append(len(response))
        self.distinct.add(hashlib.sha256(f"{prompt}\0{response}".encode()).digest())
        if row.source is not None:
            self.sources.add(row.source.path)
        values = {"lane": row.lane, "category": row.category, "difficulty": row.difficulty}
        values["kind"] = row.source.kind if row.source is not None else "no source"
        if isinstance(row, TrainingPair):
            values |= {"task_family": row.task_family, "rating": row.rating}
        for name, value in values.items():
            self.counts[name][str(value)] += 1

    def as_json(self) -> dict[str, Any]:
        """Return the figures in JSON types; the most frequent first."""
        return {
            "num_rows": len(self.lengths["response"]),
            "num_distinct": len(self.distinct),
            "num_sources": len(self.sources),
            "num_unreadable_rows": self.unreadable,
            "characters": {name: _quantiles(sorted(lengths)) for name, lengths in self.lengths.items()},
            "counts": {
                name: dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))
                for name, counter in self.counts.items()
                if counter
            },
        }


def statistics_of(lines: Iterable[bytes]) -> Statistics:
    """Return figures of the records or pairs of a JSONL file."""
    statistics = Statistics()
    for row in read_rows(lines):
        if isinstance(row, Quarantined):
            statistics.unreadable += 1
        else:
            statistics.add(row)
    return statistics


def _quantiles(lengths: list[int]) -> dict[str, int | None]:
    if not lengths:
        return {"median": None, "p95": None, "longest": None}
    last = len(lengths) - 1
    return {"median": lengths[last // 2], "p95": lengths[last * 95 // 100], "longest": lengths[last]}
