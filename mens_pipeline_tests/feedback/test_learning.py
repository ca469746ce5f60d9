"""What is learnt of judged answers, and the next adapter: trained for real, from the one that answered."""

import json
import shutil
from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.tasks import training_tasks
from mens_pipeline.feedback.config import FeedbackConfig, Method
from mens_pipeline.feedback.learning import RAFT, Learning, accepted_rows, build_feedback_pairs, prepare_feedback
from mens_pipeline.feedback.reward import Reward, Tier
from mens_pipeline.feedback.samples import SAMPLES, Sample, account_of
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import ADAPTER, MANIFEST
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.qlora_adapter import build_qlora_adapter
from mens_pipeline_tests.feedback.asked import RIGHT, pair
from mens_pipeline_tests.jobs.processes import do_here

ROWS = {name: row for name, (_, row) in training_tasks(pair(number) for number in range(6)).items()}
_CONFIG = FeedbackConfig()
_VALUES = {Tier.NOTHING: 0.0, Tier.VOX: 0.05, Tier.PASSED: 1.0}


def sample(  # noqa: PLR0913 - what tests vary
    number: int,
    tier: Tier,
    task: int = 0,
    text: str = RIGHT,
    structure: str | None = None,
    *,
    stopped: bool = True,
    repetition: float = 0.0,
) -> Sample:
    """A judged answer; repetition is the share of its lines that were there before."""
    name = list(ROWS)[task]
    return Sample(
        task=name,
        sample=number,
        prompt=ROWS[name].prompt,
        adapter_sha256="a" * 64,
        text=text,
        program=text,
        structure=structure,
        num_tokens=9,
        stopped=stopped,
        repetition=repetition,
        reward=Reward(tier=tier, value=_VALUES[tier] - 0.1 * (not stopped), why=f"it is {tier}"),
    )


def sampled(store: ArtifactStore, samples: list[Sample]) -> Artifact:
    """Judged answers in a store."""

    def write(folder: Path) -> dict[str, object]:
        write_jsonl(folder / SAMPLES, samples)
        return {"num_prompts": 1, **account_of(samples, 60.0)}

    return store.build("feedback_samples", {"number": len(samples), "config": {"seed": 7}}, write)[0]


def test_accepted_answers_are_different_and_few() -> None:
    """Two a prompt, no two of one structure; each says which adapter wrote it and stands where its prompt stands."""
    samples = [
        sample(0, Tier.PASSED, structure="a"),
        sample(1, Tier.PASSED, structure="a", text=f"{RIGHT}// again\n"),
        sample(2, Tier.VOX, structure="b"),
        sample(3, Tier.PASSED, structure="c", text=f"{RIGHT}// other\n"),
        sample(4, Tier.PASSED, structure="d"),
        sample(0, Tier.PASSED, task=1, structure="a"),
    ]
    rows = list(accepted_rows(samples, ROWS, _CONFIG.per_prompt, _CONFIG.seed))

    assert [row.response for row in rows] == [RIGHT, f"{RIGHT}// other\n", RIGHT]
    assert {row.task_family for row in rows} == {"feedback"}
    assert {row.lineage and row.lineage.generator_digest for row in rows} == {"a" * 64}
    assert rows[0].source is not None
    assert rows[0].source.path == pair().source.path  # type: ignore[union-attr]
    assert (rows[0].prompt, rows[2].prompt) == tuple(row.prompt for row in list(ROWS.values())[:2])


def test_they_are_kept_with_the_train_set(tmp_path: Path) -> None:
    """Accepted answers stand behind its rows; counts are in the manifest."""
    store, train, heldout = ArtifactStore(tmp_path / "store"), tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    write_jsonl(train, ROWS.values())
    hidden = "fn hidden() to int {\n    return 1\n}\n"
    write_jsonl(heldout, [pair().model_copy(update={"prompt": "Write it.", "response": hidden})])
    known = sample(2, Tier.PASSED, text=hidden.replace("\n", " "), structure="b")
    samples = sampled(store, [sample(0, Tier.PASSED, structure="a"), sample(1, Tier.VOX, text="fn a() {}"), known])
    pairs, reused = build_feedback_pairs(samples, train, heldout, _CONFIG, store)
    rows = list(read_pairs(pairs.path / RAFT))

    assert not reused
    assert rows[-1].lineage is not None
    assert rows[-1].lineage.seed == 7
    assert build_feedback_pairs(samples, train, heldout, _CONFIG, store)[1]
    assert [row.task_family for row in rows] == ["task"] * 6 + ["feedback"]
    expected = {"num_accepted": 1, "num_held_out": 1}
    assert {name: pairs.manifest[name] for name in expected} == expected


_EAGER = FeedbackConfig(least_rows=2, training_minutes=30, raft_learning_rate=1e-2)
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
    pairs, _ = build_feedback_pairs(sampled(store, samples), train, heldout, _EAGER, store)
    return Learning(method, run, pairs, train, _EAGER), store


def _prepare(learning: Learning, store: ArtifactStore, cache: Path) -> PreparedRun:
    return prepare_feedback(learning, store, resolve_device(DeviceChoice.CPU), cache, lambda _line: None)


def _trained(learning: Learning, store: ArtifactStore, cache: Path) -> Artifact:
    run = _prepare(learning, store, cache)

    def launch(prepared: PreparedRun) -> int:
        return do_here(prepared.job_path)

    adapter, reused = build_qlora_adapter(run, store, launch, "0123abcd")
    assert not reused
    return adapter


@pytest.mark.slow
@pytest.mark.parametrize("method", list(Method))
def test_each_method_goes_on_from_the_adapter_that_answered(method: Method, trained: Path, tmp_path: Path) -> None:
    """With the rows and rates of the method; the start is on record, and stays as it was."""
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
    assert shown == {Method.RAFT: {"feedback", "task"}, Method.CONTROL: {"task"}}[method]
    if method is Method.RAFT:
        assert kinds["feedback"]["share"] == pytest.approx(0.25 / 0.7, abs=0.1)


def test_too_little_to_learn_from_is_refused(trained: Path, tmp_path: Path) -> None:
    """With how much there is and what helps; a control needs none of it."""
    samples = [sample(0, Tier.PASSED, structure="a")]
    learning, store = _learning(Method.RAFT, trained, tmp_path, samples)
    with pytest.raises(RefusedError, match=r"1 accepted completions, 2 are needed to learn from\. Ask for longer"):
        _prepare(learning, store, tmp_path / "cache")
    learning, store = _learning(Method.CONTROL, trained, tmp_path, samples)
    run = _prepare(learning, store, tmp_path / "cache")
    assert "feedback" not in run.job.recipe.token_shares
    assert run.job.train_path == learning.train
    assert run.job.continues is not None
    assert run.job.continues.num_batches == 0


def test_a_run_of_an_earlier_version_is_learnt_from(trained: Path, tmp_path: Path) -> None:
    """Its recipe names fields that are gone since, and does not say that its base was in four bits."""
    folder = tmp_path / "runs" / trained.name
    shutil.copytree(trained.parent, folder.parent)
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["recipe"]["quantization"]
    manifest["recipe"] |= {"prompt_code_weight": 0.0, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    learning, store = _learning(Method.CONTROL, folder, tmp_path, _samples())

    run = _prepare(learning, store, tmp_path / "cache")
    assert run.job.recipe.lora_r == manifest["recipe"]["lora_r"]
    assert run.preflight["recipe_origins"]["quantization"] == "device cpu", "said by nobody"
    assert run.job.recipe.quantization == "nf4"


def test_minutes_are_shared_out() -> None:
    """Between answering and training; a control trains for as long as both took."""
    config = FeedbackConfig(sampling_minutes=2, training_minutes=6)
    halved = config.with_minutes(4)

    assert (halved.sampling_minutes, halved.training_minutes) == (1, 3)
    assert config.with_minutes(None) is config
    assert halved.of_control(60.0).training_minutes == 4
