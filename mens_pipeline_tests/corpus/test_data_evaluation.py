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
    figures = evaluate_data([*(json.dumps(row).encode() for row in _ROWS), b"\n"]).document().model_dump(by_alias=True)

    assert figures["measured"] == "data"
    assert (figures["num_parsed"], figures["num_code_rows"], figures["vox_parse_rate"]) == (3, 4, 0.75)
    code, docs = figures["lanes"].values()
    assert (code["num_parsed"], code["num_code_rows"], code["vox_parse_rate"]) == (2, 3, 2 / 3)
    assert (docs["num_parsed"], docs["num_code_rows"], docs["vox_parse_rate"]) == (1, 1, 1.0)
    assert (code["constructs"], code["construct_coverage"]) == ({"function": 2, "workflow": 2}, 2 / len(CONSTRUCTS))
    assert (docs["constructs"], len(docs["missing_constructs"])) == ({"const": 1}, len(CONSTRUCTS) - 1)
    assert figures["schema"] == "mens_data_evaluation_v1"
    assert (figures["num_prose_rows"], figures["num_unreadable_rows"]) == (1, 1)


def test_coverage_is_over_what_the_parser_can_produce() -> None:
    """Three of thirty, and the missing ones by name."""
    figures = evaluate_data(json.dumps(row).encode() for row in _ROWS).document()

    assert (figures.construct_coverage, figures.construct_total) == (0.1, len(CONSTRUCTS))
    assert (
        set(CONSTRUCTS) - set(figures.missing_constructs)
        == figures.constructs.keys()
        == {"function", "workflow", "const"}
    )


def test_no_rows_have_no_rate() -> None:
    """A rate over nothing is null, not 0 and not 1."""
    assert evaluate_data([]).document().vox_parse_rate is None
