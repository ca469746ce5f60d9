"""The part of the page for people that shows pieces at a cursor."""

from mens_pipeline.evaluation.infill import infill_results
from mens_pipeline.evaluation.results import InfillModel, InsertScore
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline_tests.evaluation.scored import evaluation, scored_completions
from mens_pipeline_tests.promotion.report.test_page import _HOSTILE as HOSTILE
from mens_pipeline_tests.promotion.report.test_page import _Balance as Balance


def test_pieces_at_a_cursor_are_shown_right_and_wrong() -> None:
    """Kinds with their bars, models side by side, and pieces in their places; what a model wrote is text."""
    scores = [
        InsertScore(
            model="adapter",
            task=f"infill/{number:04}",
            kind="line" if number % 2 else "body",
            file=f"{number}.vox",
            piece=HOSTILE if number == 1 else f"piece {number}",
            exact=number % 3 == 0,
            kept=0.5,
            similarity=0.5,
            parses=number % 2 == 0,
            resolves=False,
            passes_tests=None,
            stopped=True,
            likelihood=-1.0,
            before=f"before {number} ",
            reference=f"reference {number}",
            after="\nafter",
        )
        for number in range(60)
    ]
    models: dict[InfillModel, list[InsertScore]] = {"adapter": scores, "ngram": scores[:20]}
    results = evaluation().results.model_copy(update={"infill": infill_results(models, 192)})

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
