"""Models side by side: every figure and every difference is over the same prompts."""

from collections.abc import Iterable, Sequence

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.evaluate import evaluate_completions
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.promotion.report.page import comparison_page
from mens_pipeline.promotion.report.side_by_side import ComparedModel, FigureRow, SideBySide, compare
from mens_pipeline_tests.evaluation.scored import (
    BROKEN,
    GOOD,
    PROGRESS,
    SUBJECT,
    answers_to,
    evaluation,
    scored_completions,
    task,
)

_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"
_SYNTHETIC = [task(n, Suite.UNKNOWN_TASK, tests=_TESTS) for n in range(2)]


def _entry(name: str, texts: Sequence[str], synthetic: Sequence[str] = (GOOD, GOOD)) -> ComparedModel:
    tasks = [*(task(n) for n in range(len(texts) - 1)), task(0, Suite.BENCHMARK)]
    completions = {
        "base": answers_to(tasks, [BROKEN] * len(texts)),
        "adapter": answers_to(tasks, texts),
        "families": answers_to(_SYNTHETIC, synthetic),
    }
    evaluated = evaluate_completions(tasks, completions, SUBJECT, Decoding(), PROGRESS, families=_SYNTHETIC)
    return ComparedModel(name, scored_completions(evaluated), evaluated.results, "passed")


def _find_rows_with_rates(comparison: SideBySide) -> Iterable[FigureRow]:
    return (row for row in comparison.table.rows if any(cell.rate is not None for cell in row.cells))


@pytest.mark.parametrize("lengths", [(4, 4), (4, 6)], ids=["the same eval suite", "one completed more"])
def test_figures_and_differences_are_over_the_same_prompts(lengths: tuple[int, int]) -> None:
    comparison = compare([_entry("a", [BROKEN] * lengths[0]), _entry("b", [GOOD] * lengths[1], [GOOD, BROKEN])])
    counts = {
        (row.suite, row.label): {
            number
            for cell in row.cells
            for number in (cell.rate and cell.rate.denominator, cell.difference and cell.difference.num_tasks)
            if number is not None
        }
        for row in _find_rows_with_rates(comparison)
    }

    assert comparison.num_tasks == 4
    page = comparison_page(comparison)
    assert "2 models on 4 tasks" in page
    assert '<a href="#answers">Completions (4)</a> <a href="#synthetic">Synthetic tasks (2)</a>' in page
    assert {len(numbers) for numbers in counts.values()} == {1}
    assert counts[None, "pass@1"] == {4}
    assert counts[Suite.HELDOUT, "parse rate"] == {3}
    assert counts[Suite.UNKNOWN_TASK, "hidden tests"] == {2}
    (synthetic,) = (row for row in comparison.table.rows if row.suite == Suite.UNKNOWN_TASK and row.label == "pass@1")
    assert str(synthetic.cells[1].difference) == "-50.0 points (p = 1.000)"


def test_notes_name_equal_adapters_and_unequal_suites() -> None:
    same, more = compare([_entry("a", [GOOD] * 4), _entry("b", [GOOD] * 6)]).notes

    assert "the same adapter" in same
    assert more.startswith("b completed 6 tasks; only the 4 ")


def test_served_completions_are_compared_with_a_trial() -> None:
    mended = scored_completions(evaluation(adapter=(GOOD, BROKEN, BROKEN), second=(None, GOOD, GOOD)))
    run = ComparedModel("run", mended, evaluation().results)
    trial = ComparedModel("trial", scored_completions(evaluation()))

    def rate(*entries: ComparedModel) -> str:
        return compare(entries).table.row("parse rate").cells[0].text

    assert rate(run, trial) == "3/3 (100.0 %)"
    assert rate(run, ComparedModel("other", trial.completions, run.results)) != "3/3 (100.0 %)"


def test_synthetic_tasks_alone_are_not_compared() -> None:
    alone = [
        ComparedModel(name, tuple(a for a in _entry(name, [GOOD] * 2).completions if a.suite == Suite.UNKNOWN_TASK))
        for name in ("a", "b")
    ]

    with pytest.raises(RefusedError, match="found no task that all models completed"):
        compare(alone)
