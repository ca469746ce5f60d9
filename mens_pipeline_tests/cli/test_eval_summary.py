"""The last lines of `mens eval-local`."""

import re
from pathlib import Path

import pytest

from mens_pipeline.cli.eval_local import format_summary, format_trial
from mens_pipeline.evaluation.evaluate import evaluate_completions
from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.tasks import FewShot, Suite
from mens_pipeline.evaluation.trial import Trial, _trial
from mens_pipeline.inference.generation import Decoding, Syntax
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, PROGRESS, SUBJECT, completion, evaluation, task

_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"


def _cells(line: str) -> list[str]:
    return [cell.split(" (")[0] for cell in re.split(r" {2,}", line)]


def _summary(results: EvalResults) -> list[list[str]]:
    return [_cells(line) for line in format_summary(results, Path("report.html")).splitlines()]


def test_every_figure_of_a_suite_is_shown_beside_the_base() -> None:
    tasks = [task(), task(1, Suite.BENCHMARK, tests=_TESTS)]
    base = tuple(completion(BROKEN, to, n) for to in tasks for n in range(6))
    adapter = tuple(completion(GOOD if n == 0 else BROKEN, to, n) for to in tasks for n in range(6))
    decoding = Decoding(num_samples=6, temperature=0.5)
    results = evaluate_completions(
        tasks, {"base": base, "adapter": adapter}, SUBJECT, decoding, PROGRESS, num_too_long=0
    ).results

    assert _summary(results) == [
        ["suite", "figure", "base", "adapter"],
        ["heldout", "parse rate", "0/1", "0.17/1"],
        ["", "resolve rate", "0/1", "0.17/1"],
        ["", "pass@1", "0/1", "0.17/1"],
        ["", "pass@5", "0/1", "0.83/1"],
        ["", "pass@6", "0/1", "1/1"],
        ["", "best-of-6", "-", "1/1"],
        ["benchmark", "parse rate", "0/1", "0.17/1"],
        ["", "resolve rate", "0/1", "0.17/1"],
        ["", "pass@1", "0/1", "0.17/1"],
        ["", "pass@5", "0/1", "0.83/1"],
        ["", "pass@6", "0/1", "1/1"],
        ["", "hidden tests", "0/1", "0.17/1"],
        ["", "best-of-6", "-", "1/1"],
        ["", "best-of-6, hidden tests", "-", "1/1"],
        ["constructs in accepted completions: 1/30"],
        ["report report.html"],
    ]


def test_chosen_completions_are_in_the_served_column() -> None:
    tasks = [task(), task(1, Suite.BENCHMARK)]
    samples = [completion(text, to, n) for to in tasks for n, text in enumerate((BROKEN, BROKEN))]
    again = [completion(GOOD, to, 1).model_copy(update={"constrained": True}) for to in tasks]
    decoding = Decoding(num_samples=2, temperature=0.5, syntax=Syntax.FALLBACK)
    completions = {"base": tuple(samples), "adapter": (*samples, *again)}
    results = evaluate_completions(tasks, completions, SUBJECT, decoding, PROGRESS).results
    cells = _summary(results)
    trial = format_trial(Trial(results.adapter, results.best_of, (), 0), Path("trial.jsonl"))

    assert cells[0] == ["suite", "figure", "base", "adapter", "fallback"]
    assert cells[5] == ["", "best-of-2", "-", "-", "1/1"]
    assert ["", "best-of-2", "1/1"] in [_cells(line) for line in trial.splitlines()]


def test_examples_and_families_are_shown_if_evaluated() -> None:
    tasks = [task(), task(1, Suite.BENCHMARK)]
    known, unknown = task(2, Suite.NEW_CONSTANTS, tests=_TESTS), task(3, Suite.UNKNOWN_TASK, tests=_TESTS)
    completions = {
        "base": tuple(completion(BROKEN, to) for to in tasks),
        "adapter": tuple(completion(GOOD, to) for to in tasks),
        "few_shot": (completion(GOOD, tasks[0]),),
        "families": (completion(GOOD, known), completion(BROKEN, unknown)),
    }
    few_shot = FewShot("Told.", (tasks[0],))
    results = evaluate_completions(
        tasks, completions, SUBJECT, Decoding(), PROGRESS, few_shot=few_shot, families=[known, unknown]
    ).results
    cells = _summary(results)

    assert cells[:7] == [
        ["suite", "figure", "base", "few-shot", "adapter"],
        ["heldout", "parse rate", "0/1", "1/1", "1/1"],
        ["", "resolve rate", "0/1", "1/1", "1/1"],
        ["", "pass@1", "0/1", "1/1", "1/1"],
        ["benchmark", "parse rate", "0/1", "-", "1/1"],
        ["", "resolve rate", "0/1", "-", "1/1"],
        ["", "pass@1", "0/1", "-", "1/1"],
    ]
    assert ["new_constants", "parse rate", "-", "-", "1/1"] in cells
    assert cells[14] == ["", "hidden tests", "-", "-", "0/1"]
    assert "0/1 (0.0 %) 0.0 to 85.3" in format_summary(results, Path("report.html"))


def test_served_completions_have_a_column_if_evaluated() -> None:
    served = _summary(evaluation(adapter=(GOOD, BROKEN, BROKEN), second=(None, GOOD, GOOD)).results)

    assert served[:2] == [
        ["suite", "figure", "base", "adapter", "fallback"],
        ["heldout", "parse rate", "1/2", "1/2", "2/2"],
    ]


def test_a_trial_says_that_it_is_one() -> None:
    asked = [task(0, Suite.BENCHMARK, tests=_TESTS)]
    completions = (completion(), completion(GOOD, asked[0]))
    results = evaluate_completions(
        [task(), *asked], {"base": completions, "adapter": completions}, SUBJECT, Decoding(), PROGRESS
    ).results
    scores = results.adapter.suites["benchmark"]
    alone = results.adapter.model_copy(update={"overall": scores, "suites": {"benchmark": scores}})
    lines = format_trial(Trial(alone, None, (), 0), Path("trial.jsonl")).splitlines()

    assert [_cells(line) for line in lines[:2]] == [["suite", "figure", "model"], ["benchmark", "parse rate", "1/1"]]
    assert ["", "run-time errors", "0"] in map(_cells, lines)
    assert lines[-2:] == ["completions trial.jsonl", "a trial: no verdict uses these figures"]


@pytest.mark.seed_row(67)
def test_a_trial_separates_constrained_completions_from_the_model() -> None:
    tasks = [task(number, Suite.BENCHMARK, tests=_TESTS) for number in range(3)]
    own = [completion(text, to) for text, to in zip((GOOD, BROKEN, BROKEN), tasks, strict=True)]
    again = [completion(GOOD, to).model_copy(update={"constrained": True}) for to in tasks[1:]]
    trial = _trial(tasks, [*own, *again], num_too_long=0)
    lines = [_cells(line) for line in format_trial(trial, Path("trial.jsonl")).splitlines()]

    assert lines[:2] == [["suite", "figure", "model", "as served"], ["benchmark", "parse rate", "1/3", "3/3"]]
    assert ["", "hidden tests", "1/3", "3/3"] in lines
    assert ["", "run-time errors", "0", "0"] in lines
    assert [kept.score.parses for kept in trial.completions] == [True, True, True]
    assert _trial(tasks, own, num_too_long=0).served is None
