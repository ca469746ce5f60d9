"""The eval suite: its tasks, its parts, and the files that it refuses."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation import suite
from mens_pipeline.evaluation.benchmark import Benchmark, load_benchmark
from mens_pipeline.evaluation.suite import EvalSuite, divide_into_rounds, read_suite
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import digest_of
from mens_pipeline_tests.evaluation.scored import heldout_files, task
from mens_pipeline_tests.training.runs import pairs
from mens_pipeline_tests.training.small_folder import described_base

_TRAIN = Path("gone.jsonl")
"""A missing train set."""


def _read(
    heldout: Path, train: Path, benchmark: Benchmark | None, fits: Callable[[str], bool], num_family_tasks: int = 0
) -> EvalSuite:
    rounds = {"first_heldout_tasks": 100, "max_rounds": 1}
    return read_suite(heldout, train, benchmark, fits, **rounds, num_family_tasks=num_family_tasks)


@pytest.fixture
def heldout(tmp_path: Path) -> Path:
    """Three held-out pairs of some fifty characters."""
    path = tmp_path / "heldout.jsonl"
    write_jsonl(path, pairs(3))
    return path


@pytest.mark.seed_row(31)
def test_held_out_prompts_come_before_the_benchmark(heldout: Path) -> None:
    benchmark = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench")
    found = _read(heldout, _TRAIN, benchmark, lambda _text: True)

    assert [task.suite for task in found.tasks] == [Suite.HELDOUT] * 3 + [Suite.BENCHMARK] * len(benchmark.tasks)
    assert found.num_too_long == 0


def test_a_held_out_prompt_loses_wrong_tests(tmp_path: Path) -> None:
    sound = pairs(1)[0].model_copy(update={"response": "fn one() to int { return 1 }\n", "category": "function"})
    tests = [f"@test fn hidden() {{ assert(one() is {expected}) }}\n" for expected in (1, 2)]
    write_jsonl(tmp_path / "heldout.jsonl", [sound.model_copy(update={"tests": text}) for text in tests])
    found = _read(tmp_path / "heldout.jsonl", _TRAIN, None, lambda _text: True)

    assert [task.tests for task in found.tasks] == [tests[0], None]
    assert found.num_tests_dropped == 1


def test_synthetic_tasks_are_read_beside_the_held_out_pairs(heldout: Path) -> None:
    good = "fn one() to int { return 1 }\n"
    rows = [
        _synthetic("Write one.", good, 1),
        _synthetic("Write two.", good, 2),
        _synthetic("Write long.", f"{good}// {'x' * 300}\n", 1),
    ]
    without = _read(heldout, _TRAIN, None, lambda text: len(text) < 300, 9)
    write_jsonl(heldout.with_name("families.jsonl"), rows)
    found = _read(heldout, _TRAIN, None, lambda text: len(text) < 300, 9)
    off = _read(heldout, _TRAIN, None, lambda text: len(text) < 300, 0)

    assert [task.prompt for task in found.families] == ["Write one."]
    assert found.tasks == without.tasks
    assert found.num_tests_dropped == 1
    assert (without.families, without.families_sha256) == ((), None) == (off.families, off.families_sha256)
    assert found.families_sha256 == digest_of(heldout.with_name("families.jsonl"))


def _synthetic(prompt: str, response: str, expected: int) -> TrainingPair:
    tests = f"@test fn hidden() {{ assert(one() is {expected}) }}\n"
    return TrainingPair(prompt=prompt, response=response, category="function", task_family="unknown_task", tests=tests)


def test_prompts_without_a_fitting_completion_are_left_out(heldout: Path) -> None:
    benchmark = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench")
    found = _read(heldout, _TRAIN, benchmark, lambda text: len(text) < 300)

    assert 0 < found.num_too_long == 3 + len(benchmark.tasks) - len(found.tasks)
    assert all(len(task.reference) < 300 for task in found.tasks)


def test_a_limit_that_nothing_fits_is_refused(heldout: Path) -> None:
    with pytest.raises(
        RefusedError,
        match=r"no completion fits the limit\. Raise max_new_tokens in config/evaluation\.yaml \(--max-tokens\)",
    ):
        _read(heldout, _TRAIN, None, lambda _text: False)


def test_more_tasks_than_can_be_compared_are_refused(heldout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "MOST_TASKS", 2)

    with pytest.raises(RefusedError, match=r"3 tasks including the benchmark, at most 2 can be compared\. Lower"):
        _read(heldout, _TRAIN, None, lambda _text: True)


def test_a_suite_of_prose_alone_is_refused(tmp_path: Path) -> None:
    prose = pairs(1)[0].model_copy(update={"response_mode": "prose_only"})
    write_jsonl(tmp_path / "heldout.jsonl", [prose])

    with pytest.raises(RefusedError, match=r"no held-out code\. Raise split\.heldout_share"):
        _read(tmp_path / "heldout.jsonl", _TRAIN, None, lambda _text: True)


def test_the_limit_includes_the_end_of_the_turn(tiny_base: Path) -> None:
    fits = completion_fits(described_base(tiny_base), Decoding(max_new_tokens=10))

    assert fits("123456789\n")
    assert not fits("1234567890")


def test_a_missing_base_is_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="the base model of this adapter is gone"):
        completion_fits(described_base(tmp_path), Decoding())


@pytest.mark.threat("M14")
def test_a_suite_of_trained_pairs_is_refused(heldout: Path) -> None:
    train = heldout.with_name("train.jsonl")
    write_jsonl(train, [*pairs(9)[3:], pairs(3)[1]])

    with pytest.raises(RefusedError, match=r"1 prompts and 1 responses of 3 held-out pairs are in 1 rows of .*train"):
        _read(heldout, train, None, lambda _text: True)


_BENCH = tuple(task(number, Suite.BENCHMARK) for number in range(5))


def _count_heldout(rounds: Sequence[Sequence[Task]]) -> list[int]:
    return [sum(task.suite is Suite.HELDOUT for task in part) for part in rounds]


def test_an_eval_suite_is_divided_by_whole_files() -> None:
    eval_suite = (*heldout_files(*[5] * 40), *_BENCH)
    rounds = divide_into_rounds(eval_suite, 100, 3)

    assert _count_heldout(rounds) == [100, 50, 50]
    assert [sum(task in _BENCH for task in part) for part in rounds] == [5, 0, 0]
    assert sorted(task.id for part in rounds for task in part) == sorted(task.id for task in eval_suite)
    assert all(list(part) == sorted(part, key=eval_suite.index) for part in rounds)
    files = [{task.file for task in part} for part in rounds]
    assert files[0].isdisjoint(files[1] | files[2])
    assert files[1].isdisjoint(files[2])


def test_the_order_of_files_does_not_depend_on_their_number() -> None:
    few, many = (divide_into_rounds(heldout_files(*[5] * number), 50, 2)[0] for number in (20, 24))

    assert len({task.file for task in few} & {task.file for task in many}) >= 7


@pytest.mark.parametrize(
    ("sizes", "first", "most", "expected"),
    [
        ([5] * 20, 100, 2, [100]),
        ([5] * 23, 100, 2, [115]),
        ([5] * 24, 100, 2, [100, 20]),
        ([5] * 24, 100, 1, [120]),
        ([7, 3], 100, 3, [10]),
        ([90, 90], 80, 3, [90, 90]),
    ],
    ids=["all", "hardly more", "more", "one round", "small", "two files"],
)
def test_a_small_remainder_joins_the_first_round(sizes: list[int], first: int, most: int, expected: list[int]) -> None:
    assert _count_heldout(divide_into_rounds(heldout_files(*sizes), first, most)) == expected


@pytest.mark.parametrize(("wanted", "expected"), [(12, 15), (100, 100), (1000, 200)])
def test_a_part_of_a_suite_has_one_round(wanted: int, expected: int) -> None:
    suite = EvalSuite((*heldout_files(*[5] * 40), *_BENCH), "cd" * 32, None, 100, 3)
    part, larger = suite.take(wanted, 2), suite.take(wanted + 20, 5)
    (heldout,) = _count_heldout(part.rounds)

    assert heldout == part.first_heldout_tasks == expected
    assert len(part.tasks) == expected + 2
    assert set(part.tasks) <= set(larger.tasks)
