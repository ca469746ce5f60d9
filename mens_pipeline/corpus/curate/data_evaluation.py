"""Figures of training data: how much of its code parses, and which constructs it shows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
        constructs: Lane -> construct -> rows that show it.
        prose_rows: Rows that are no code.
        unreadable_rows: Rows that are neither records nor pairs.
    """

    rows: Counter[str] = field(default_factory=Counter)
    parsed: Counter[str] = field(default_factory=Counter)
    constructs: dict[str, Counter[str]] = field(default_factory=dict)
    prose_rows: int = 0
    unreadable_rows: int = 0

    def add(self, row: ExtractedRecord | TrainingPair) -> None:
        """Count a row."""
        code = judged_code(row)
        if code is None:
            self.prose_rows += 1
            return
        self.rows[row.lane] += 1
        module = analyze(*code).module
        if module is not None:
            self.parsed[row.lane] += 1
            shown = self.constructs.setdefault(row.lane, Counter())
            shown.update({construct_of(declaration).name for declaration in module.declarations})

    def document(self) -> "DataEvaluationDocument":
        """Return the figures; a rate over nothing is null."""
        whole = Counter[str]()
        for shown in self.constructs.values():
            whole.update(shown)
        return DataEvaluationDocument(
            **_figures(self.parsed.total(), self.rows.total(), whole).model_dump(),
            construct_total=len(CONSTRUCTS),
            lanes={
                lane: _figures(self.parsed[lane], count, self.constructs.get(lane, Counter()))
                for lane, count in sorted(self.rows.items())
            },
            num_prose_rows=self.prose_rows,
            num_unreadable_rows=self.unreadable_rows,
        )


class LaneEvaluation(BaseModel):
    """Figures of the code of a lane; shares are from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_code_rows: int = Field(ge=0)
    num_parsed: int = Field(ge=0, description="Rows of code that the front end accepts.")
    vox_parse_rate: float | None = Field(ge=0, le=1, description="Their share; null where there is no code.")
    constructs: dict[str, int] = Field(
        description="Construct -> accepted rows that show it; only those that are shown."
    )
    construct_coverage: float = Field(ge=0, le=1, description="Share of all constructs that are shown.")
    missing_constructs: tuple[str, ...]


class DataEvaluationDocument(LaneEvaluation):
    """Figures of training data as they are written; not of what a model writes."""

    schema_: Literal["mens_data_evaluation_v1"] = Field(default="mens_data_evaluation_v1", alias="schema")
    measured: Literal["data"] = "data"
    construct_total: int = Field(ge=1, description="Constructs that the parser can produce.")
    lanes: dict[str, LaneEvaluation]
    num_prose_rows: int = Field(ge=0)
    num_unreadable_rows: int = Field(ge=0, description="Rows that are neither records nor pairs.")


def _figures(num_parsed: int, num_rows: int, constructs: Counter[str]) -> LaneEvaluation:
    shown = {name: constructs[name] for name in CONSTRUCTS if constructs[name]}
    return LaneEvaluation(
        num_code_rows=num_rows,
        num_parsed=num_parsed,
        vox_parse_rate=num_parsed / num_rows if num_rows else None,
        constructs=shown,
        construct_coverage=len(shown) / len(CONSTRUCTS),
        missing_constructs=tuple(name for name in CONSTRUCTS if name not in shown),
    )


def evaluate_data(lines: Iterable[bytes]) -> DataEvaluation:
    """Return figures of the records or pairs of a JSONL file; nothing is deduplicated."""
    evaluation = DataEvaluation()
    for row in read_rows(lines):
        if isinstance(row, Quarantined):
            evaluation.unreadable_rows += 1
        else:
            evaluation.add(row)
    return evaluation
