"""What models are asked."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation import eval_results
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.eval_results import eval_suite
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import digest_of
from mens_pipeline_tests.training.runs import pairs
from mens_pipeline_tests.training.small_folder import described_base

_TRAIN = Path("gone.jsonl")
"""A train set that is not there any more."""


@pytest.fixture
def heldout(tmp_path: Path) -> Path:
    """Three held-out pairs of some fifty characters."""
    path = tmp_path / "heldout.jsonl"
    write_jsonl(path, pairs(3))
    return path


@pytest.mark.seed_row(31)
def test_held_out_requests_come_first_and_then_the_benchmark(heldout: Path) -> None:
    """All of both, when all fit."""
    benchmark = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench")
    whole_suite = eval_suite(heldout, _TRAIN, benchmark, lambda _text: True)

    assert [task.suite for task in whole_suite.tasks] == [Suite.HELDOUT] * 3 + [Suite.BENCHMARK] * len(benchmark.tasks)
    assert whole_suite.num_too_long == 0


def test_a_held_out_request_whose_tests_are_wrong_is_asked_without_them(tmp_path: Path) -> None:
    """The one that its own reference passes keeps its tests."""
    sound = pairs(1)[0].model_copy(update={"response": "fn one() to int { return 1 }\n", "category": "function"})
    tests = [f"@test fn hidden() {{ assert(one() is {expected}) }}\n" for expected in (1, 2)]
    write_jsonl(tmp_path / "heldout.jsonl", [sound.model_copy(update={"tests": text}) for text in tests])
    whole_suite = eval_suite(tmp_path / "heldout.jsonl", _TRAIN, None, lambda _text: True)

    assert [task.tests for task in whole_suite.tasks] == [tests[0], None]
    assert whole_suite.num_tests_dropped == 1


def test_synthetic_tasks_lie_beside_the_held_out_pairs(heldout: Path) -> None:
    """They are asked apart; one whose reference is too long or fails its tests is not."""
    good = "fn one() to int { return 1 }\n"
    rows = [
        _synthetic("Write one.", good, 1),
        _synthetic("Write two.", good, 2),
        _synthetic("Write long.", f"{good}// {'x' * 300}\n", 1),
    ]
    without = eval_suite(heldout, _TRAIN, None, lambda text: len(text) < 300, 9)
    write_jsonl(heldout.with_name("families.jsonl"), rows)
    whole_suite = eval_suite(heldout, _TRAIN, None, lambda text: len(text) < 300, 9)
    off = eval_suite(heldout, _TRAIN, None, lambda text: len(text) < 300, 0)

    assert [task.prompt for task in whole_suite.families] == ["Write one."]
    assert whole_suite.tasks == without.tasks
    assert whole_suite.num_tests_dropped == 1
    assert (without.families, without.families_sha256) == ((), None) == (off.families, off.families_sha256)
    assert whole_suite.families_sha256 == digest_of(heldout.with_name("families.jsonl"))


def _synthetic(prompt: str, response: str, expected: int) -> TrainingPair:
    tests = f"@test fn hidden() {{ assert(one() is {expected}) }}\n"
    return TrainingPair(prompt=prompt, response=response, category="function", task_family="unknown_task", tests=tests)


def test_what_cannot_be_answered_is_not_asked(heldout: Path) -> None:
    """And it is counted."""
    benchmark = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench")
    whole_suite = eval_suite(heldout, _TRAIN, benchmark, lambda text: len(text) < 300)

    assert 0 < whole_suite.num_too_long == 3 + len(benchmark.tasks) - len(whole_suite.tasks)
    assert all(len(task.reference) < 300 for task in whole_suite.tasks)


def test_a_limit_that_nothing_fits_is_refused(heldout: Path) -> None:
    """Nothing would be judged."""
    with pytest.raises(
        RefusedError,
        match=r"no completion fits the limit\. Raise max_new_tokens in config/evaluation\.yaml \(--max-tokens\)",
    ):
        eval_suite(heldout, _TRAIN, None, lambda _text: False)


def test_more_tasks_than_can_be_compared_are_refused(heldout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is asked."""
    monkeypatch.setattr(eval_results, "MOST_TASKS", 2)

    with pytest.raises(RefusedError, match=r"3 tasks with those of the benchmark, at most 2 can be compared\. Lower"):
        eval_suite(heldout, _TRAIN, None, lambda _text: True)


def test_prose_alone_is_no_examination(tmp_path: Path) -> None:
    """There is nothing that the front end could judge."""
    prose = pairs(1)[0].model_copy(update={"response_mode": "prose_only"})
    write_jsonl(tmp_path / "heldout.jsonl", [prose])

    with pytest.raises(RefusedError, match=r"no held-out code\. Raise split\.heldout_share"):
        eval_suite(tmp_path / "heldout.jsonl", _TRAIN, None, lambda _text: True)


def test_a_text_fits_with_the_end_of_its_turn(tiny_base: Path) -> None:
    """Its tokenizer knows single bytes: nine of them and the end fit into ten."""
    fits = completion_fits(described_base(tiny_base), Decoding(max_new_tokens=10))

    assert fits("123456789\n")
    assert not fits("1234567890")


def test_a_base_that_is_gone_is_said(tmp_path: Path) -> None:
    """Nothing can be counted without its tokenizer."""
    with pytest.raises(RefusedError, match="the base model of this adapter is gone"):
        completion_fits(described_base(tmp_path), Decoding())


@pytest.mark.threat("M14")
def test_what_was_trained_on_is_no_examination(heldout: Path) -> None:
    """Whatever the manifest says: the rows themselves are compared."""
    train = heldout.with_name("train.jsonl")
    write_jsonl(train, [*pairs(9)[3:], pairs(3)[1]])

    with pytest.raises(RefusedError, match=r"1 prompts and 1 answers of 3 held-out pairs stand in 1 rows of .*train"):
        eval_suite(heldout, train, None, lambda _text: True)
