"""The figures of one model over some tasks."""

import pytest

from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.scores import ModelScores, Score, compute_scores, count_from_one, scores_of_model
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, OTHER, completion, task


def _score(tasks: list[Task], *texts: str) -> list[Score]:
    return [judge(asked, completion(text, asked)) for asked, text in zip(tasks, texts, strict=True)]


def _scores(*texts: str) -> ModelScores:
    tasks = [task(n) for n in range(len(texts))]
    return scores_of_model(tasks, _score(tasks, *texts))


def test_rates_count_tasks() -> None:
    scores = _scores(GOOD, BROKEN, OTHER, "fn add() to int { }").overall

    assert (scores.num_tasks, scores.num_samples, scores.k) == (4, 4, 1)
    assert (scores.parse_rate.numerator, scores.construct_rate.numerator, scores.name_rate.numerator) == (3, 2, 2)
    assert (scores.pass_at_1.numerator, scores.pass_at_k.numerator) == (1, 1)
    assert (scores.stop_rate.value, scores.stub_rate.numerator, scores.mean_tokens) == (1.0, 1, 7.0)


def test_shown_columns_count_from_one() -> None:
    """As in `mens check`; documents count from 0, and a message without a place is unchanged."""
    (score,) = _score([task()], "fn add() to int { return true }")

    assert (score.semantic_error or "").startswith("1:25: type-mismatch: ")
    assert count_from_one(score.semantic_error or "").startswith("1:26: type-mismatch: ")
    assert count_from_one("it declares nothing") == "it declares nothing"


def test_the_resolve_rate_is_over_all_completions() -> None:
    unknown = "fn add(a: int, b: int) to int { return a + c }"
    scores = _scores(GOOD, BROKEN, OTHER, unknown, unknown + "\n", "fn add() to int { return true }").overall

    assert (scores.parse_rate.short, scores.resolve_rate.short) == ("5/6 (83.3 %)", "2/6 (33.3 %)")
    assert scores.semantic_errors == {"unknown-name": 2, "type-mismatch": 1}


def test_the_interval_of_the_resolve_rate_is_over_files() -> None:
    tasks = [task(n, file=f"{n % 3}.vox") for n in range(12)]
    scores = scores_of_model(tasks, _score(tasks, *(GOOD if n % 3 else BROKEN for n in range(12)))).overall

    assert scores.resolve_rate == scores.parse_rate
    assert (scores.resolve_rate.num_units, scores.resolve_rate.denominator) == (3, 12)


def test_empty_completions_and_refusals_are_counted() -> None:
    scores = _scores("", "I'm sorry.", GOOD, GOOD + "\n").overall

    assert (scores.empty_rate.short, scores.refusal_rate.short) == ("1/4 (25.0 %)", "1/4 (25.0 %)")


def test_the_name_rate_is_over_tasks_that_ask_for_one() -> None:
    tasks = [task(0), task(1, name=None), task(2, name="sub")]
    scores = scores_of_model(tasks, _score(tasks, GOOD, GOOD, GOOD)).overall

    assert scores.name_rate.short == "1/2 (50.0 %)"


def test_several_samples_count_by_their_share() -> None:
    """One passing sample of four is a quarter at the first try, and one of four samples that passes for sure."""
    tasks = [task(0), task(1)]
    texts = [[GOOD, BROKEN, BROKEN, BROKEN], [BROKEN] * 4]
    scored = [
        judge(asked, completion(text, asked, n))
        for asked, some in zip(tasks, texts, strict=True)
        for n, text in enumerate(some)
    ]
    scores = scores_of_model(tasks, scored).overall

    assert (scores.num_tasks, scores.num_samples, scores.k) == (2, 8, 4)
    assert (scores.pass_at_1.value, scores.pass_at_k.value) == (0.125, 0.5)
    assert scores.parse_rate.short == "0.25/2 (12.5 %)"


def test_pass_at_k_is_estimated_without_bias() -> None:
    """Two of twelve pass: of five at least one with 1 - C(10, 5) / C(12, 5), not with 1 - (10 / 12) ** 5 = 0.598."""
    scored = [judge(task(), completion(GOOD if n < 2 else BROKEN, sample=n)) for n in range(12)]
    scores = scores_of_model([task()], scored).overall

    assert list(scores.pass_at) == [1, 5, 10, 12]
    assert scores.pass_at[1].value == pytest.approx(2 / 12)
    assert scores.pass_at[5].value == pytest.approx(1 - 252 / 792)
    assert scores.pass_at[10].value == pytest.approx(1 - 1 / 66)
    assert scores.pass_at[12] == scores.pass_at_k
    assert list(_scores(GOOD).overall.pass_at) == [1]


def test_a_completion_of_two_prompts_is_a_duplicate_in_every_part() -> None:
    scores = _scores(GOOD, GOOD, OTHER, "", "").overall
    samples = [judge(task(), completion(GOOD, sample=n)) for n in range(2)]
    tasks = [task(0), task(1, Suite.BENCHMARK)]
    suites = scores_of_model(tasks, _score(tasks, GOOD, GOOD)).suites

    assert scores.duplicate_rate.short == "2/5 (40.0 %)"
    assert scores_of_model([task()], samples).overall.duplicate_rate.numerator == 0
    assert [scores.duplicate_rate.numerator for scores in suites.values()] == [1, 1]


@pytest.mark.seed_row(68)
def test_coverage_counts_constructs_of_accepted_completions() -> None:
    coverage = _scores(OTHER + GOOD, BROKEN + "table", OTHER).overall.coverage

    assert coverage.present == ("function", "type")
    assert len(coverage.present) + len(coverage.missing) == len(CONSTRUCTS)
    assert coverage.share == pytest.approx(2 / len(CONSTRUCTS))


def test_first_errors_are_counted() -> None:
    scores = _scores(BROKEN, "// nothing", BROKEN + "\n", GOOD).overall

    assert list(scores.errors.items()) == [("expected-expression", 2), ("declares_nothing", 1)]


def test_scores_are_divided_by_suite_construct_and_difficulty() -> None:
    tasks = [
        task(0),
        task(1, Suite.BENCHMARK, difficulty="hard"),
        task(2, construct="type", name="Point", difficulty="hard"),
    ]
    scores = scores_of_model(tasks, _score(tasks, GOOD, BROKEN, OTHER))

    assert {name: part.pass_at_1.short for name, part in scores.suites.items()} == {
        "heldout": "2/2 (100.0 %)",
        "benchmark": "0/1 (0.0 %)",
    }
    assert {name: part.num_tasks for name, part in scores.constructs.items()} == {"function": 2, "type": 1}
    assert {name: part.pass_at_1.numerator for name, part in scores.difficulties.items()} == {"easy": 1, "hard": 1}


def test_scores_of_no_tasks_have_no_values() -> None:
    scores = compute_scores([], {})

    assert (scores.parse_rate.value, scores.pass_at_k.value, scores.mean_tokens, scores.k) == (None, None, 0.0, 1)
