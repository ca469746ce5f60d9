"""What the UI shows of an evaluation."""

from mens_pipeline.evaluation.evaluate import Answers, evaluate_answers
from mens_pipeline.evaluation.generation import Decoding
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.orchestration.defs.evaluation import figures_of, rows_of
from mens_pipeline_tests.evaluation.judged import BROKEN, GOOD, SUBJECT, answers_to, task

_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"


def test_hidden_tests_are_shown_where_there_are_any() -> None:
    """In the table, and as a figure of the suite that has them."""
    tasks = [task(), task(1, Suite.BENCHMARK, tests=_TESTS)]
    answers = Answers(answers_to(tasks, [BROKEN] * 2), answers_to(tasks, [GOOD] * 2))
    results = evaluate_answers(tasks, answers, SUBJECT, Decoding(), num_too_long=0).results
    rows = {row.data["what"]: row.data for row in rows_of(results.base.overall, results.adapter.overall)}
    figures = figures_of(results)

    assert str(rows["test_rate"]["base"]).startswith("0/1 (0.0 %")
    assert str(rows["test_rate"]["adapter"]).startswith("1/1 (100.0 %")
    assert str(rows["pass_at_k"]["adapter"]).startswith("2/2 (100.0 %")
    assert figures["eval/benchmark/test_rate"] == 1.0
    assert "eval/heldout/test_rate" not in figures
