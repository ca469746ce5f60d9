"""Training on rewards: the library's loop on a tiny base, with the real reward, for real."""

import json
import os
import signal
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.feedback.adapter import Learning, prepare_feedback
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.grpo.job import MODULE, REWARDS, refuse_slow_device
from mens_pipeline.feedback.method import Method
from mens_pipeline.feedback.pairs import BAND, build_feedback_pairs
from mens_pipeline.feedback.reward import Tier
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training import launch
from mens_pipeline.training.devices import DeviceChoice, resolve_device
from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.job import ADAPTER, RESULT, ExitCode
from mens_pipeline.training.launch import run_child
from mens_pipeline.training.manifest import finish_run
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.telemetry_log import FILE, steps_of
from mens_pipeline_tests.feedback.test_pairs import ROWS, sample, sampled
from mens_pipeline_tests.training.processes import training_children
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_CONFIG = FeedbackConfig(
    samples=4, temperature=1.0, top_p=1.0, max_new_tokens=48, least_rows=2, grpo_prompts=2, grpo_learning_rate=1e-2,
    training_minutes=30,
)  # fmt: skip


def _rewarded(trained: Path, folder: Path) -> tuple[ResolvedRecipe, PreparedRun]:
    """A run on the prompts whose answers were not all worth the same: three of four, where steps take two."""
    store, train = ArtifactStore(folder / "store"), folder / "train.jsonl"
    write_jsonl(train, ROWS.values())
    right = [sample(0, Tier.PASSED, task, structure="a") for task in range(3)]
    wrong = [sample(1, Tier.NOTHING, task, "fn fn", stopped=False) for task in range(3)]
    samples = sampled(store, [*right, *wrong])
    pairs, _ = build_feedback_pairs(samples, train, trained.parent / "heldout.jsonl", _CONFIG, store)
    assert len((pairs.path / BAND).read_text().splitlines()) == pairs.manifest["num_band"] == 3
    learning = Learning(Method.GRPO, trained, pairs, train, _CONFIG)
    return prepare_feedback(learning, store, resolve_device(DeviceChoice.CPU), folder / "cache", lambda _line: None)


def _trained_through(run: PreparedRun, *, is_stopped: bool) -> list[int]:
    """The exit codes of the processes that train a run: one, or two where the first is stopped after a step."""
    sent: list[int] = []

    def stop() -> None:
        path = run.job.run_dir / FILE
        if is_stopped and not sent and path.is_file() and '"step"' in path.read_text():
            sent.extend(training_children(MODULE))
            for child in sent:
                os.kill(child, signal.SIGTERM)

    environment, log = training_environment(), run.job.run_dir / "child.log"
    return [run_child(MODULE, run.job_path, environment, stop, 60, log) for _ in range(1 + is_stopped)]


@pytest.mark.slow
def test_the_loop_learns_from_our_reward_and_goes_on_after_an_interruption(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own: every answer judged and run, and a stopped run ends with the same adapter."""
    monkeypatch.setattr(launch, "_POLL_SECONDS", 0.01)
    _, stopped = _rewarded(trained, tmp_path / "stopped")
    recipe, whole = _rewarded(trained, tmp_path / "whole")
    assert _trained_through(stopped, is_stopped=True) == [ExitCode.INTERRUPTED, ExitCode.DONE]
    assert _trained_through(whole, is_stopped=False) == [ExitCode.DONE]

    for name in (f"{ADAPTER}/adapter_model.safetensors", REWARDS):
        assert (stopped.job.run_dir / name).read_bytes() == (whole.job.run_dir / name).read_bytes()
    lines = [json.loads(line) for line in (whole.job.run_dir / REWARDS).read_text().splitlines()]
    assert [line["step"] for line in lines] == [step["step"] for step in steps_of(whole.job.run_dir / FILE)]
    assert {len(line["answers"]) for line in lines} == {2 * 4}
    answers = [answer for line in lines for answer in line["answers"]]
    assert {answer["task"] for answer in answers} == set(list(ROWS)[:3])
    assert len({answer["value"] for answer in answers}) > 1
    assert all(answer["why"] for answer in answers)
    result = json.loads((whole.job.run_dir / RESULT).read_text())
    assert result["num_changed_matrices"] == result["num_adapter_matrices"]
    assert finish_run(whole, recipe, None, ExitCode.DONE)["continues"]["num_steps"] > 0


def test_a_processor_refuses_a_base_that_is_not_tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plainly, and with what to do instead; a tiny one is taken, and so is any on a GPU."""
    base = write_tiny_base(tmp_path / "base")
    refuse_slow_device(base, "cpu")
    monkeypatch.setattr("mens_pipeline.feedback.grpo.job._MOST_ON_CPU", 1000)
    refuse_slow_device(base, "cuda")
    with pytest.raises(RefusedError, match=r"million parameters on a CPU.*Take a GPU, or --method raft or dpo"):
        refuse_slow_device(base, "cpu")
