"""The next adapter: trained for real on a tiny base, from the one that answered."""

import json
import shutil
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.feedback.adapter import Learning, as_long_as, prepare_feedback, with_minutes
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.method import Method
from mens_pipeline.feedback.pairs import build_feedback_pairs
from mens_pipeline.feedback.reward import Tier
from mens_pipeline.feedback.samples import Sample
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.devices import DeviceChoice, resolve_device
from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.job import ADAPTER
from mens_pipeline.training.job import MODULE as ON_ROWS
from mens_pipeline.training.launch import run_child
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.preference.job import MODULE as ON_PAIRS
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.qlora_adapter import build_qlora_adapter
from mens_pipeline_tests.feedback.asked import pair
from mens_pipeline_tests.feedback.test_pairs import ROWS, sample, sampled

_CONFIG = FeedbackConfig(least_rows=2, training_minutes=30, raft_learning_rate=1e-2, dpo_learning_rate=1e-2)
_WEIGHTS = f"{ADAPTER}/adapter_model.safetensors"


def _samples() -> list[Sample]:
    texts = [f"fn other_{number}() to int {{\n    return {number}\n}}\n" for number in range(3)]
    accepted = [sample(0, Tier.PASSED, task, texts[task], structure="a") for task in range(3)]
    loops = [sample(1, Tier.NOTHING, task, "fn fn fn fn", stopped=False) for task in range(3)]
    return [*accepted, *loops]


def _learning(method: Method, run: Path, folder: Path, samples: list[Sample]) -> tuple[Learning, ArtifactStore]:
    store, train = ArtifactStore(folder / "store"), folder / "train.jsonl"
    short = [row.model_copy(update={"prompt": f"Write {number}."}) for number, row in enumerate(ROWS.values())]
    write_jsonl(train, [*ROWS.values(), *short])
    heldout = run.parent / "heldout.jsonl"
    pairs, _ = build_feedback_pairs(sampled(store, samples), train, heldout, _CONFIG, store)
    return Learning(method, run, pairs, train, _CONFIG), store


def _prepared(learning: Learning, store: ArtifactStore, cache: Path) -> tuple[ResolvedRecipe, PreparedRun]:
    return prepare_feedback(learning, store, resolve_device(DeviceChoice.CPU), cache, lambda _line: None)


def _trained(learning: Learning, store: ArtifactStore, cache: Path) -> Artifact:
    resolved, run = _prepared(learning, store, cache)
    module = ON_PAIRS if learning.method is Method.DPO else ON_ROWS
    log = run.job.run_dir / "child.log"

    def launch(prepared: PreparedRun) -> int:
        return run_child(module, prepared.job_path, training_environment(), lambda: None, 60, log)

    adapter, reused = build_qlora_adapter(run, resolved, store, launch, "0123abcd")
    assert not reused
    return adapter


@pytest.mark.slow
@pytest.mark.parametrize("method", [Method.RAFT, Method.DPO, Method.CONTROL])
def test_each_method_goes_on_from_the_adapter_that_answered(method: Method, trained: Path, tmp_path: Path) -> None:
    """In a process of its own, with the rows and rates of the method; the start is on record, and stays as it was."""
    before = (trained / _WEIGHTS).read_bytes()
    learning, store = _learning(method, trained, tmp_path, _samples())
    adapter = _trained(learning, store, tmp_path / "cache")
    manifest = adapter.manifest["training"]
    kinds = manifest["result"]["kinds"]

    assert (trained / _WEIGHTS).read_bytes() == before != (adapter.path / _WEIGHTS).read_bytes()
    assert manifest["continues"]["num_steps"] > 0
    assert manifest["result"]["num_changed_matrices"] == manifest["result"]["num_adapter_matrices"]
    assert manifest["recipe"]["learning_rate"] == 1e-2
    assert manifest["recipe_origins"]["learning_rate"] == "feedback"
    shown = {kind for kind, counts in kinds.items() if counts["tokens_shown"]}
    assert shown == {Method.RAFT: {"feedback", "task"}, Method.DPO: {"feedback"}, Method.CONTROL: {"task"}}[method]
    if method is Method.RAFT:
        assert kinds["feedback"]["share"] == pytest.approx(0.25 / 0.7, abs=0.1)


def test_too_little_to_learn_from_is_refused(trained: Path, tmp_path: Path) -> None:
    """With how much there is and what helps; a control needs none of it."""
    samples = [sample(0, Tier.PASSED, structure="a")]
    for method, what in ((Method.RAFT, "1 accepted answers"), (Method.DPO, "0 pairs"), (Method.GRPO, "0 prompts")):
        learning, store = _learning(method, trained, tmp_path, samples)
        with pytest.raises(RefusedError, match=f"{what}.*, 2 are needed to learn from. Ask for longer"):
            _prepared(learning, store, tmp_path / "cache")
    learning, store = _learning(Method.CONTROL, trained, tmp_path, samples)
    resolved, run = _prepared(learning, store, tmp_path / "cache")
    assert "feedback" not in resolved.recipe.token_shares
    assert run.job.train_path == learning.train
    assert run.job.continues is not None
    assert run.job.continues.num_batches == 0


def test_a_run_of_an_earlier_version_is_learnt_from(trained: Path, tmp_path: Path) -> None:
    """Its recipe names a field that is gone since."""
    run = tmp_path / "runs" / trained.name
    shutil.copytree(trained.parent, run.parent)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["recipe"]["prompt_code_weight"] = 0.0
    (run / MANIFEST).write_text(json.dumps(manifest))
    learning, store = _learning(Method.CONTROL, run, tmp_path, _samples())

    resolved, _ = _prepared(learning, store, tmp_path / "cache")
    assert resolved.recipe.lora_r == manifest["recipe"]["lora_r"]


def test_minutes_are_shared_out(tmp_path: Path) -> None:
    """Between answering and training; a control trains for as long as both took."""
    config = FeedbackConfig(sampling_minutes=2, training_minutes=6)
    halved = with_minutes(config, 4)
    samples = sampled(ArtifactStore(tmp_path), [sample(0, Tier.PASSED)])

    assert (halved.sampling_minutes, halved.training_minutes) == (1, 3)
    assert with_minutes(config, None) is config
    assert as_long_as(halved, samples).training_minutes == 4
    assert pair().tests is not None
