"""The part of the page for people that shows pieces at a cursor."""

from mens_pipeline.evaluation.infill import infill_results
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline_tests.evaluation.scored import WRONG_PIECE, evaluation, scored_completions
from mens_pipeline_tests.promotion.report.test_page import _HOSTILE as HOSTILE
from mens_pipeline_tests.promotion.report.test_page import _Balance as Balance


def test_pieces_at_a_cursor_are_shown_right_and_wrong() -> None:
    """Kinds with their bars, models side by side, and pieces in place; text of a model stays text."""
    scores = [
        WRONG_PIECE.model_copy(
            update={
                "task": f"infill/{number:04}",
                "kind": "line" if number % 2 else "body",
                "file": f"{number}.vox",
                "piece": HOSTILE if number == 1 else f"piece {number}",
                "exact": number % 3 == 0,
                "parses": number % 2 == 0,
                "before": f"before {number} ",
                "reference": f"reference {number}",
            }
        )
        for number in range(60)
    ]
    infill = infill_results({"adapter": scores, "ngram": scores[:20]}, 192)
    results = evaluation().results.model_copy(update={"infill": infill})

    page = report_page(results, scored_completions(evaluation()), {1: 2.0, 2: 1.5}, None, scores)
    balance = Balance(page)

    assert not balance.open
    assert '<a href="#cursor">' in page
    assert "20/60 (33.3 %)" in page
    assert page.count('class="task hole"') == 20
    assert "n-gram" in page
    assert "img" not in balance.tags
    assert "reference" in balance.text
    assert "#cursor" not in report_page(evaluation().results, scored_completions(evaluation()), {}, None)
