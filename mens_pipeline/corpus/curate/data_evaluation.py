"""Figures of training data: how much of its code parses, and which constructs it shows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mens_pipeline.corpus.curate.validate import Quarantined, judged_code, read_rows
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language import CONSTRUCTS, analyze, construct_of


@dataclass
class DataEvaluation:
    """Counts over the code of some rows.

    Attributes:
        rows: Lane -> rows of code.
        parsed: Lane -> rows of code that the front end accepts.
        constructs: Construct -> rows that show it.
        prose_rows: Rows that are no code.
        unreadable_rows: Rows that are neither records nor pairs.
    """

    rows: Counter[str] = field(default_factory=Counter)
    parsed: Counter[str] = field(default_factory=Counter)
    constructs: Counter[str] = field(default_factory=Counter)
    prose_rows: int = 0
    unreadable_rows: int = 0

    def add(self, row: ExtractedRecord | TrainingPair) -> None:
        """Count a row.

        Args:
            row: A record or a pair.
        """
        code = judged_code(row)
        if code is None:
            self.prose_rows += 1
            return
        self.rows[row.lane] += 1
        module = analyze(*code).module
        if module is not None:
            self.parsed[row.lane] += 1
            self.constructs.update({construct_of(declaration).name for declaration in module.declarations})

    def as_json(self) -> dict[str, Any]:
        """Return the figures in JSON types; a rate over nothing is null."""
        present = [name for name in CONSTRUCTS if self.constructs[name]]
        coverage = len(present) / len(CONSTRUCTS)
        return {
            "measured": "data",
            "vox_parse_rate": _rate(self.parsed.total(), self.rows.total()),
            "num_parsed": self.parsed.total(),
            "num_code_rows": self.rows.total(),
            "construct_coverage": len(present),
            "construct_total": len(CONSTRUCTS),
            "construct_coverage_pct": 100 * coverage,
            "missing_constructs": [name for name in CONSTRUCTS if not self.constructs[name]],
            "lanes": {
                lane: {
                    "num_parsed": self.parsed[lane],
                    "num_code_rows": count,
                    "parse_rate": _rate(self.parsed[lane], count),
                }
                for lane, count in sorted(self.rows.items())
            },
            "num_prose_rows": self.prose_rows,
            "num_unreadable_rows": self.unreadable_rows,
        }


def evaluate_data(lines: Iterable[bytes]) -> DataEvaluation:
    """Figures of the rows of a JSONL file; nothing is deduplicated.

    Args:
        lines: Extracted records or pairs, one a line.
    """
    evaluation = DataEvaluation()
    for row in read_rows(lines):
        if isinstance(row, Quarantined):
            evaluation.unreadable_rows += 1
        else:
            evaluation.add(row)
    return evaluation


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
