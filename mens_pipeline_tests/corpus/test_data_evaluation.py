"""Figures of training data."""

import json

import pytest

from mens_pipeline.corpus.curate.data_evaluation import evaluate_data
from mens_pipeline.language import CONSTRUCTS

_ROWS = [
    {"prompt": "p", "response": "fn f() { }\nworkflow W() { }"},
    {"prompt": "p", "response": "fn f() { }\nworkflow W() { }"},
    {"prompt": "p", "response": "fn ("},
    {"prompt": "p", "response": "Some prose.", "response_mode": "prose_only", "lane": "vox_docs_qa"},
    {"prompt": "p", "response": "let x = 1", "lane": "vox_docs_qa"},
    {"prompt": "p"},
]


@pytest.mark.seed_row(8)
def test_rates_have_numerators_and_denominators_by_lane() -> None:
    """Code parses or not, prose is counted apart, unreadable rows are not forgotten, nothing is deduplicated."""
    figures = evaluate_data([*(json.dumps(row).encode() for row in _ROWS), b"\n"]).as_json()

    assert figures["measured"] == "data"
    assert (figures["num_parsed"], figures["num_code_rows"], figures["vox_parse_rate"]) == (3, 4, 0.75)
    assert figures["lanes"] == {
        "vox_codegen": {"num_parsed": 2, "num_code_rows": 3, "parse_rate": 2 / 3},
        "vox_docs_qa": {"num_parsed": 1, "num_code_rows": 1, "parse_rate": 1.0},
    }
    assert (figures["num_prose_rows"], figures["num_unreadable_rows"]) == (1, 1)


def test_coverage_is_over_what_the_parser_can_produce() -> None:
    """Three of thirty, and the missing ones by name."""
    figures = evaluate_data(json.dumps(row).encode() for row in _ROWS).as_json()

    assert (figures["construct_coverage"], figures["construct_total"]) == (3, len(CONSTRUCTS))
    assert figures["construct_coverage_pct"] == 10.0
    assert set(CONSTRUCTS) - set(figures["missing_constructs"]) == {"function", "workflow", "const"}


def test_no_rows_have_no_rate() -> None:
    """A rate over nothing is null, not 0 and not 1."""
    assert evaluate_data([]).as_json()["vox_parse_rate"] is None
