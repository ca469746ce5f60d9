"""`mens improve` after `mens run`, on a base of random weights."""

import json
from pathlib import Path

import pytest

from mens_pipeline_tests.e2e.whole_graph import mens, write_config
from mens_pipeline_tests.training.tiny_base import write_tiny_base

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_round_is_answered_judged_trained_gated_and_compared(tmp_path: Path) -> None:
    """Without an adapter it is refused; then every stage is real, and a round that is done is not run again."""
    where = (tmp_path, write_tiny_base(tmp_path / "base", positions=1024), write_config(tmp_path))
    early = mens(*where, "improve")
    assert early.returncode == 1, early.stderr[-3000:]
    assert "no adapter was trained yet. Run `mens run` first" in early.stderr

    mens(*where, "run", "--preset", "tiny")
    nothing_right = mens(*where, "improve")
    # No answer of random weights is accepted: the round then trains on rows of the train set alone.
    feedback = where[2] / "feedback.yaml"
    feedback.write_text(feedback.read_text().replace("least_rows: 2", "least_rows: 0"))
    first = mens(*where, "improve", "--control")
    second = mens(*where, "improve", "--control", "--json")

    assert nothing_right.returncode == 1, nothing_right.stderr[-3000:]
    assert "0 accepted answers, 2 are needed to learn from" in nothing_right.stderr
    assert first.returncode == 0, first.stderr[-3000:]
    assert "round 1: 6 training prompts, 12 answers" in first.stdout
    assert "taken: the next round begins with it" in first.stdout
    assert "feedback_samples" in first.stderr
    (told,) = json.loads(second.stdout)
    assert [arm["method"] for arm in told["arms"]] == ["raft", "control"]
    assert {arm["verdict"] for arm in told["arms"]} == {"failed"}
    assert told["answers"]["num_accepted"] == 0
    assert told["worse"] is None
    assert told["arms"][0]["adapter"] != told["arms"][1]["adapter"] != told["start"]
    assert "start: " not in second.stderr
    assert list((tmp_path / "store").glob("*/.work-*")) == []
