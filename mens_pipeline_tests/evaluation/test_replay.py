"""Figures that fall with time, and the units of their intervals."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mens_pipeline.corpus.infill.history import read_history
from mens_pipeline.evaluation.replay import build_replay_holes, compute_drift, compute_replay_rates
from mens_pipeline.evaluation.results import InsertScore
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.storage.store import digest_of
from mens_pipeline_tests.corpus.infill.repository import Repository, program
from mens_pipeline_tests.evaluation.runs import training_manifest
from mens_pipeline_tests.evaluation.scored import WRONG_PIECE
from mens_pipeline_tests.evaluation.test_infill import _RIGHT as RIGHT


def _scores(chances: Sequence[int], per_commit: int = 4) -> tuple[list[InsertScore], dict[str, int]]:
    scores = [
        (RIGHT if place < chance else WRONG_PIECE).model_copy(update={"task": f"{day}:{place}", "file": f"c{day}"})
        for day, chance in enumerate(chances)
        for place in range(per_commit)
    ]
    return scores[::-1], {score.task: int(score.file[1:]) * 86_400 for score in scores}


@pytest.mark.parametrize(
    ("chances", "ngram", "verdict", "hint"),
    [
        ([4] * 8 + [1] * 8, [2] * 16, "falls", "more context"),
        ([4] * 8 + [1] * 8, [4] * 8 + [0] * 8, "falls", "Train again"),
        ([1] * 8 + [4] * 8, [2] * 16, "holds", ""),
        ([2, 3] * 8, [2] * 16, "holds", ""),
        ([4] * 5 + [0] * 5, [2] * 10, "cannot tell", ""),
        ([], [], "cannot tell", ""),
    ],
)
def test_a_fall_beyond_chance_is_reported(chances: list[int], ngram: list[int], verdict: str, hint: str) -> None:
    own, times = _scores(chances)

    drift = compute_drift(own, _scores(ngram)[0], times)

    assert (drift.verdict, drift.num_commits) == (verdict, len(chances))
    assert hint in drift.hint
    assert bool(drift.hint) is bool(hint)
    assert str(drift).startswith(f"{verdict}: ")


def test_false_alarms_are_rare() -> None:
    alike = [[4 * (3 * commit * seed % 7 < 3) for commit in range(20)] for seed in range(1, 41)]

    alarms = [compute_drift(own, [], times).verdict == "falls" for own, times in map(_scores, alike)]

    assert sum(alarms) <= 4


def test_intervals_are_over_commits() -> None:
    few, many = compute_replay_rates(_scores([40, 0] * 4, 40)[0]), compute_replay_rates(_scores([1, 0] * 160, 1)[0])

    assert (few.num_holes, few.num_commits, many.num_commits) == (320, 8, 320)
    assert few.exact.value == many.exact.value == 0.5
    assert few.exact.high - few.exact.low > 3 * (many.exact.high - many.exact.low)
    assert few.kept.value == few.exact.value


def test_two_insertions_of_a_commit_have_different_ids(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "workspace")
    first, second, third = "fn a() to int { 1 }\n", "fn b() to int { 2 }\n", "fn c() to int { 3 }\n"
    repository.commit("a.vox", first + second + third)
    since = repository.git("rev-parse", "HEAD")
    repository.commit("a.vox", first + "\n" + program("f") + second + program("g") + third)
    train, manifest = tmp_path / "train.jsonl", training_manifest()
    train.write_text("")
    manifest["recipe"]["infill_window"] = 64
    manifest["result"]["kinds"] = {"infill": {"tokens_shown": 9, "share": 0.5, "epochs": 1.0}}
    taught = TrainingManifest.model_validate({**manifest, "train_sha256": digest_of(train)})

    holes = build_replay_holes(
        read_history(repository.root, since, 9), train, taught, EvaluationConfig(), lambda _text: True
    )

    assert [task.prefix.count("\n") for task in holes.tasks] == [2, 2]
    assert len({task.id for task in holes.tasks}) == 2
