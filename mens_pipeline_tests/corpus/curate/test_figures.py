"""Figures of training data: counts, parse rates and coverage."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from mens_pipeline.corpus.curate.figures import compute_statistics, evaluate_data
from mens_pipeline.corpus.schema.records import Lane
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline_tests.corpus.rows import pair_at, records_of


def _figures(rows: Iterable[BaseModel]) -> dict[str, Any]:
    figures = compute_statistics(row.model_dump_json().encode() for row in rows)

    assert json.loads(json.dumps(figures)) == figures
    return figures


def test_pairs_are_counted_by_their_properties() -> None:
    prose = pair_at("b.vox", "q", "text").model_copy(update={"lane": Lane.DOCS_QA, "category": "actor", "rating": 5})
    pairs = [pair_at("a.vox", "p", "fn f() { }"), pair_at("a.vox", "p", "fn f() { }"), prose, pair_at(None, "r", "xx")]
    figures = _figures(pairs)

    assert (figures["num_rows"], figures["num_distinct"], figures["num_sources"]) == (4, 3, 2)
    assert list(figures["counts"]["lane"].items()) == [("vox_codegen", 3), ("vox_docs_qa", 1)]
    assert list(figures["counts"]["kind"].items()) == [("vox_file", 3), ("no source", 1)]
    assert list(figures["counts"]["category"].items()) == [("general", 3), ("actor", 1)]
    assert figures["counts"]["rating"] == {"3": 3, "5": 1}
    assert list(figures["counts"]) == ["lane", "kind", "task_family", "category", "rating", "difficulty"]


def test_records_are_counted_as_well() -> None:
    figures = _figures(records_of("// @training_prompt: Do it.\nfn f() { }\n\ntype T { a: int }\n"))

    assert figures["counts"]["kind"] == {"vox_declaration": 2, "vox_file": 1}
    assert "rating" not in figures["counts"]
    assert figures["characters"]["prompt"] == {"median": 0, "p95": 0, "longest": 6}


def test_lengths_are_the_median_and_the_95th_percentile() -> None:
    figures = _figures(pair_at(None, "p" * (n + 1), "r" * (100 - n)) for n in range(100))

    assert figures["characters"] == {name: {"median": 50, "p95": 95, "longest": 100} for name in ("prompt", "response")}


def test_unreadable_rows_are_counted() -> None:
    figures = compute_statistics([b"nope\n", b"\n", b"{}\n"])

    assert (figures["num_rows"], figures["num_unreadable_rows"], figures["counts"]) == (0, 2, {})
    assert figures["characters"]["response"] == {"median": None, "p95": None, "longest": None}


_ROWS = [
    {"prompt": "p", "response": "fn f() { }\nworkflow W() { }"},
    {"prompt": "p", "response": "fn f() { }\nworkflow W() { }"},
    {"prompt": "p", "response": "fn ("},
    {"prompt": "p", "response": "Some prose.", "response_mode": "prose_only", "lane": "vox_docs_qa"},
    {"prompt": "p", "response": "let x = 1", "response_mode": "code_only", "lane": "vox_docs_qa"},
    {"prompt": "p"},
]


@pytest.mark.seed_row(8)
def test_rates_have_numerators_and_denominators_by_lane() -> None:
    figures = evaluate_data([*(json.dumps(row).encode() for row in _ROWS), b"\n"]).model_dump(by_alias=True)

    assert figures["measured"] == "data"
    assert (figures["num_parsed"], figures["num_code_rows"], figures["vox_parse_rate"]) == (3, 4, 0.75)
    code, docs = figures["lanes"].values()
    assert (code["num_parsed"], code["num_code_rows"], code["vox_parse_rate"]) == (2, 3, 2 / 3)
    assert (docs["num_parsed"], docs["num_code_rows"], docs["vox_parse_rate"]) == (1, 1, 1.0)
    assert (code["constructs"], code["construct_coverage"]) == ({"function": 2, "workflow": 2}, 2 / len(CONSTRUCTS))
    assert (docs["constructs"], len(docs["missing_constructs"])) == ({"const": 1}, len(CONSTRUCTS) - 1)
    assert figures["schema"] == "mens_data_evaluation_v1"
    assert (figures["num_prose_rows"], figures["num_unreadable_rows"]) == (1, 1)


def test_coverage_is_the_share_of_all_constructs() -> None:
    figures = evaluate_data(json.dumps(row).encode() for row in _ROWS)

    assert (figures.construct_coverage, figures.construct_total) == (0.1, len(CONSTRUCTS))
    assert (
        set(CONSTRUCTS) - set(figures.missing_constructs)
        == figures.constructs.keys()
        == {"function", "workflow", "const"}
    )


def test_no_rows_have_no_rate() -> None:
    assert evaluate_data([]).vox_parse_rate is None


def test_figures_are_compared_with_thresholds() -> None:
    figures = evaluate_data(json.dumps(row).encode() for row in _ROWS)

    assert figures.gate_passed is None
    assert figures.compare(0.75, 0.1).gate_passed is True
    assert figures.compare(0.76, 0.1).gate_passed is False
    assert figures.compare(0.75, 0.11).gate_passed is False
    assert evaluate_data([]).compare(0.7, 0.0).gate_passed is False
