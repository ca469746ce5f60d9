"""Rounds: compared with what was there, taken or not, and run once."""

from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import write_documents
from mens_pipeline.feedback.config import FeedbackConfig, Method
from mens_pipeline.feedback.rounds import Arm, Round, RoundParams, arm_of, figures_of, kept_round, lines_of
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, evaluation

_ANSWERS = {
    "num_prompts": 3,
    "num_samples": 6,
    "num_solved": 3,
    "num_solved_by_first": 1,
    "num_solved_by_chosen": 2,
    "tiers": {"nothing": 5, "passed": 1},
    "mean_reward": 0.2,
    "stop_rate": 0.5,
    "num_accepted": 1,
}


def _judged(folder: Path, adapter: list[str], num_benchmark: int = 1) -> Path:
    folder.mkdir(parents=True)
    base = [BROKEN] * len(adapter)
    write_documents(folder, evaluation(base=base, adapter=adapter, num_benchmark=num_benchmark), "bench")
    return folder


def _arm(before: Path, after: Path, method: Method = Method.RAFT) -> Arm:
    files = {f"heldout/{number:04}": f"{number}.vox" for number in range(12)}
    return arm_of(method, "b" * 64, after, before, minutes=4.0, verdict="passed", files=files)


def _round(before: Path, *arms: Arm) -> Round:
    worse = arms[0].worse(0.01)
    return Round(number=1, start="a" * 64, completions=_ANSWERS, before=figures_of(before), arms=arms, worse=worse)


def test_a_round_that_is_worse_is_not_taken(tmp_path: Path) -> None:
    """By the paired test over files: a clear drop; one that may be chance is taken."""
    before = _judged(tmp_path / "before", [GOOD] * 12)
    worse = _round(before, _arm(before, _judged(tmp_path / "worse", [BROKEN] * 10 + [GOOD] * 2)))
    alike = _round(before, _arm(before, _judged(tmp_path / "alike", [BROKEN] + [GOOD] * 11)))

    assert worse.worse is not None
    assert worse.worse.startswith("parse rate -83.3 points on 12 tasks")
    assert alike.worse is None
    assert alike.arms[0].parse_difference.num_tasks == 12


def test_all_arms_stand_side_by_side(tmp_path: Path) -> None:
    """What was answered and learnt, a column each, differences, minutes, and what becomes of it."""
    before = _judged(tmp_path / "before", [GOOD] * 6 + [BROKEN] * 6)
    after = _judged(tmp_path / "after", [GOOD] * 9 + [BROKEN] * 3)
    beside = _judged(tmp_path / "beside", [GOOD] * 8 + [BROKEN] * 4)
    done = _round(before, _arm(before, after), _arm(before, beside, Method.CONTROL))
    lines = list(lines_of(done))

    assert lines[0] == "round 1: 3 training prompts, 6 completions"
    assert lines[1] == "  tiers      nothing 5, passed 1; mean reward 0.200, ended 50 %"
    assert lines[2] == "  prompts    solved by the first completion 1, best-of-2 2, any 3"
    assert lines[3] == "  learnt     1 accepted completions"
    assert lines[4].split() == ["before", "raft", "control"]
    (row,) = (line for line in lines if line.startswith("  parse rate"))
    assert row.split("  ")[1:] != []
    assert [part.strip() for part in row.split("   ") if part.strip()] == [
        *("parse rate", "6/12 (50.0 %)", "9/12 (75.0 %)", "8/12 (66.7 %)")
    ]
    assert lines[-3].startswith("  raft       4.0 min, gate passed; parse rate +25.0 points (p = ")
    assert lines[-1] == "  taken: the next round begins with it"


def test_other_exams_cannot_be_compared(tmp_path: Path) -> None:
    """What was asked must be the same."""
    before = _judged(tmp_path / "before", [GOOD] * 3)
    after = _judged(tmp_path / "after", [GOOD] * 3)
    results = after / "eval_results.json"
    results.write_text(results.read_text().replace("cd" * 32, "ef" * 32))

    with pytest.raises(
        RefusedError, match="heldout_sha256 is efefefefefef, that of the adapter before is cdcdcdcdcdcd"
    ):
        _arm(before, after)


def test_a_round_is_run_once(tmp_path: Path) -> None:
    """What decided it finds it again; another number does not."""
    before = _judged(tmp_path / "before", [GOOD] * 3)
    done, store = _round(before, _arm(before, before)), ArtifactStore(tmp_path / "store")

    first = RoundParams(
        number=1,
        start="a" * 64,
        config=FeedbackConfig(),
        minutes=None,
        seed=None,
        has_control=True,
        max_regression_p=0.05,
        run=lambda: done,
    )

    assert kept_round(store, first) == (done, False)
    assert kept_round(store, first.model_copy(update={"run": lambda: pytest.fail("run again")})) == (done, True)
    assert kept_round(store, first.model_copy(update={"number": 2})) == (done, False)
