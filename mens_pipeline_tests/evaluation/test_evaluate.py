"""From completions to the documents of an evaluation."""

import pytest

from mens_pipeline.evaluation.evaluate import Evaluation, evaluate_completions, local_report, pass_at_k_report
from mens_pipeline.evaluation.results import EvalResults, LocalReport, PassAtK
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline_tests.evaluation.scored import (
    BROKEN,
    GOOD,
    OTHER,
    PROGRESS,
    SUBJECT,
    completion,
    evaluation,
    needs,
    task,
)


@pytest.mark.seed_row(39)
def test_upstreams_figures_are_those_of_the_adapter() -> None:
    results = evaluation(
        base=(BROKEN, BROKEN, BROKEN, BROKEN), adapter=(GOOD, "", "I'm sorry.", OTHER), num_benchmark=1
    ).results

    assert results.vox_parse_rate == results.quality_proxy == pytest.approx(1 / 3)
    assert (results.format_validity, results.safety_rejection_rate, results.total_samples) == (0.75, 0.25, 4)
    assert (results.construct_coverage, results.construct_total) == (2, len(CONSTRUCTS))
    assert results.construct_coverage_pct == pytest.approx(200 / len(CONSTRUCTS))
    assert results.run_id == SUBJECT.adapter_sha256[:12]


def test_base_and_adapter_are_compared_task_by_task() -> None:
    results = evaluation(base=(BROKEN, GOOD, OTHER), adapter=(GOOD, BROKEN, GOOD)).results

    assert (results.parse_difference.only_first, results.parse_difference.only_second) == (1, 1)
    assert (results.pass_difference.only_first, results.pass_difference.only_second) == (1, 2)
    assert results.champion is None


def test_the_champion_is_compared_on_the_same_prompts() -> None:
    results = evaluation(champion=(GOOD, GOOD, GOOD)).results

    assert results.champion is not None
    assert (results.champion.key, results.champion.adapter_sha256) == ("c" * 64, "cc" * 32)
    assert results.champion.scores.overall.parse_rate.value == 1.0
    assert results.champion.parse_difference.only_first == results.champion.pass_difference.only_first == 1


def test_second_tries_replace_first_tries() -> None:
    evaluated = evaluation(adapter=(GOOD, BROKEN, BROKEN), second=(None, GOOD, GOOD))
    results, fallback = evaluated.results, evaluated.results.fallback

    assert fallback is not None
    assert results.adapter.overall.parse_rate.numerator == 1
    assert fallback.scores.overall.parse_rate.numerator == 3
    assert (fallback.num_constrained, fallback.num_forced) == (2, 1)
    assert (fallback.parse_difference.only_first, fallback.parse_difference.only_second) == (0, 2)
    assert [score.task for score in evaluated.fallback] == ["heldout/0001", "benchmark/0002"]
    assert evaluation().results.fallback is None


def _sample() -> Evaluation:
    tasks = [
        task(0),
        task(0, Suite.BENCHMARK, requires=(needs("function", name="add"), needs("type"))),
        task(1, Suite.BENCHMARK, construct="type", name="Point"),
    ]
    texts = [[GOOD, GOOD], [GOOD, f"{GOOD}{OTHER}"], ["fn add() to int { }", ""]]
    completions = tuple(
        completion(text, t, n) for t, some in zip(tasks, texts, strict=True) for n, text in enumerate(some)
    )
    decoding = Decoding(num_samples=2, temperature=0.5, seed=5, max_new_tokens=99)
    return evaluate_completions(tasks, {"base": completions, "adapter": completions}, SUBJECT, decoding, PROGRESS)


def test_first_samples_are_compared() -> None:
    results = _sample().results

    assert (results.parse_difference.num_tasks, results.total_samples) == (3, 6)


def test_the_local_report_is_about_the_benchmark() -> None:
    report = local_report(_sample(), "bench")

    assert report is not None
    assert (report.total, report.passed_at_1, report.passed_at_k) == (2, 0, 1)
    assert (report.pass_rate_at_1, report.pass_rate_at_k) == (0.0, 0.5)
    assert (report.k, report.seed_base, report.max_tokens, report.temperature) == (2, 5, 99, 0.5)
    assert (report.semantic_task_success, report.anti_stub_task_success) == (1, 1)
    assert (report.placeholder_event_rate, report.trivial_placeholder_event_rate) == (0.5, 0.0)
    assert report.construct_richness_mean == pytest.approx((1 / 2 + 1) / 2)
    assert report.model == "tiny with adapter adadadadadad"
    assert [(c.category, c.total, c.passed_at_1, c.passed_at_k) for c in report.category_stats] == [
        ("function", 1, 0, 1),
        ("type", 1, 0, 0),
    ]
    assert [(r.id, r.passed_at_k, len(r.samples)) for r in report.results] == [("0000", True, 2), ("0001", False, 2)]


@pytest.mark.seed_row(21)
def test_pass_at_k_is_the_unbiased_estimate() -> None:
    report = pass_at_k_report(_sample().results)

    assert report is not None
    assert (report.k, report.total, report.pass_rate_at_1, report.pass_rate_at_k) == (2, 2, 0.25, 0.5)
    assert report.pass_rates == {1: 0.25, 2: 0.5}
    assert report.pass_at_1_low < 0.25 < report.pass_at_1_high


def test_without_a_benchmark_there_is_no_report_of_one() -> None:
    evaluated = evaluation(num_benchmark=0)

    assert local_report(evaluated, "bench") is None
    assert pass_at_k_report(evaluated.results) is None


def test_documents_survive_their_files() -> None:
    evaluated = evaluation(champion=(GOOD, BROKEN, ""))
    local, at_k = local_report(evaluated, "bench"), pass_at_k_report(evaluated.results)

    assert local is not None
    assert at_k is not None
    assert EvalResults.model_validate_json(evaluated.results.model_dump_json()) == evaluated.results
    assert LocalReport.model_validate_json(local.model_dump_json()) == local
    assert PassAtK.model_validate_json(at_k.model_dump_json()) == at_k
