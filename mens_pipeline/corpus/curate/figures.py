"""Statistics of training data: counts by kind, the share of code that parses, and the constructs it contains."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.corpus.curate.validate import Quarantined, read_rows
from mens_pipeline.corpus.schema.account import most_frequent
from mens_pipeline.corpus.schema.records import ExtractedRecord, pair_digest, parsed_code
from mens_pipeline.language import CONSTRUCTS, analyze, construct_of
from mens_pipeline.storage.validation import Strict

_COUNTED: Final = ("lane", "kind", "task_family", "category", "rating", "difficulty")


class LaneEvaluation(Strict):
    """Figures for the code of a lane; shares are from 0 to 1."""

    num_code_rows: int = Field(ge=0)
    num_parsed: int = Field(ge=0, description="Rows of code that the front end accepts.")
    vox_parse_rate: float | None = Field(ge=0, le=1, description="Share of code rows that parse; null without code.")
    constructs: dict[str, int] = Field(description="Construct -> accepted rows with it; without zeros.")
    construct_coverage: float = Field(ge=0, le=1, description="Share of all constructs in accepted rows.")
    missing_constructs: tuple[str, ...]


class DataEvaluationDocument(LaneEvaluation):
    """Figures for training data, not for completions of a model."""

    schema_: Literal["mens_data_evaluation_v1"] = Field(default="mens_data_evaluation_v1", alias="schema")
    measured: Literal["data"] = "data"
    construct_total: int = Field(ge=1, description="Constructs that the parser can produce.")
    lanes: dict[str, LaneEvaluation]
    num_prose_rows: int = Field(ge=0)
    num_unreadable_rows: int = Field(ge=0, description="Rows that are neither records nor pairs.")
    min_parse_rate: float | None = Field(default=None, ge=0, le=1, description="Required; null if not compared.")
    min_coverage: float | None = Field(default=None, ge=0, le=1, description="Required; null if not compared.")
    gate_passed: bool | None = Field(default=None, description="Whether both minimums are met.")

    def compare(self, min_parse_rate: float, min_coverage: float) -> "DataEvaluationDocument":
        """Return a copy with the required values and whether they are met; without code, the parse rate counts as 0."""
        passed = (self.vox_parse_rate or 0.0) >= min_parse_rate and self.construct_coverage >= min_coverage
        required = {"min_parse_rate": min_parse_rate, "min_coverage": min_coverage}
        return self.model_copy(update={**required, "gate_passed": passed})


def evaluate_data(lines: Iterable[bytes]) -> DataEvaluationDocument:
    """Parse the code of the records or pairs in a JSONL file, duplicates included."""
    rows, parsed = Counter[str](), Counter[str]()
    constructs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    num_prose = num_unreadable = 0
    for row in read_rows(lines):
        if isinstance(row, Quarantined):
            num_unreadable += 1
        elif (code := parsed_code(row)) is None:
            num_prose += 1
        else:
            rows[row.lane] += 1
            module = analyze(*code).module
            if module is not None:
                parsed[row.lane] += 1
                constructs[row.lane].update({construct_of(declaration).name for declaration in module.declarations})
    whole = sum(constructs.values(), Counter[str]())
    lanes = {lane: _figures(parsed[lane], count, constructs[lane]) for lane, count in sorted(rows.items())}
    return DataEvaluationDocument(
        **_figures(parsed.total(), rows.total(), whole).model_dump(),
        construct_total=len(CONSTRUCTS),
        lanes=lanes,
        num_prose_rows=num_prose,
        num_unreadable_rows=num_unreadable,
    )


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


def compute_statistics(lines: Iterable[bytes]) -> dict[str, Any]:
    """Count the records or pairs of a JSONL file by kind and length, in JSON types."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTED}
    lengths: dict[str, list[int]] = {"prompt": [], "response": []}
    distinct, sources = set[bytes](), set[str]()
    num_unreadable = 0
    for row in read_rows(lines):
        if isinstance(row, Quarantined):
            num_unreadable += 1
            continue
        values: dict[str, object] = {"lane": row.lane, "category": row.category, "difficulty": row.difficulty}
        if isinstance(row, ExtractedRecord):
            prompt, response = row.prompt or "", row.text
        else:
            prompt, response = row.prompt, row.response
            values |= {"task_family": row.task_family, "rating": row.rating}
        lengths["prompt"].append(len(prompt))
        lengths["response"].append(len(response))
        distinct.add(pair_digest(prompt, response))
        values["kind"] = row.source.kind if row.source is not None else "no source"
        sources |= {row.source.path} if row.source is not None else set()
        for name, value in values.items():
            counts[name][str(value)] += 1
    return {
        "num_rows": len(lengths["response"]),
        "num_distinct": len(distinct),
        "num_sources": len(sources),
        "num_unreadable_rows": num_unreadable,
        "characters": {name: _quantiles(sorted(numbers)) for name, numbers in lengths.items()},
        "counts": {name: most_frequent(counter) for name, counter in counts.items() if counter},
    }


def _quantiles(lengths: list[int]) -> dict[str, int | None]:
    if not lengths:
        return {"median": None, "p95": None, "longest": None}
    last = len(lengths) - 1
    return {"median": lengths[last // 2], "p95": lengths[last * 95 // 100], "longest": lengths[last]}
