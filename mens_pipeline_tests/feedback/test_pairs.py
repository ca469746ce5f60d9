"""What is learnt of judged answers."""

from pathlib import Path

from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.evaluation.tasks import training_tasks
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.pairs import PREFERENCES, RAFT, accepted_rows, build_feedback_pairs, preferences_of
from mens_pipeline.feedback.reward import Reward, Tier
from mens_pipeline.feedback.samples import SAMPLES, Sample, account_of
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.preference.job import PreferencePair
from mens_pipeline_tests.feedback.asked import RIGHT, pair

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
    """A judged answer.

    Args:
        number: Which one to its prompt.
        tier: What it is worth.
        task: The row that it answers.
        text: What was written.
        structure: Of the program.
        stopped: Whether it ended.
        repetition: Share of its lines that were there before.
    """
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
    """Judged answers in a store.

    Args:
        store: Where.
        samples: The answers.
    """

    def write(folder: Path) -> dict[str, object]:
        write_jsonl(folder / SAMPLES, samples)
        return {"num_prompts": 1, **account_of(samples, 60.0)}

    return store.built("feedback_samples", {"number": len(samples), "config": {"seed": 7}}, write)[0]


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
    rows = list(accepted_rows(samples, ROWS, _CONFIG))

    assert [row.response for row in rows] == [RIGHT, f"{RIGHT}// other\n", RIGHT]
    assert {row.task_family for row in rows} == {"feedback"}
    assert {row.lineage and row.lineage.generator_digest for row in rows} == {"a" * 64}
    assert rows[0].source is not None
    assert rows[0].source.path == pair().source.path  # type: ignore[union-attr]
    assert (rows[0].prompt, rows[2].prompt) == tuple(row.prompt for row in list(ROWS.values())[:2])


def test_loops_are_rejected_first() -> None:
    """Then the worst; over an accepted answer, or else over the response of the train set."""
    samples = [
        sample(0, Tier.VOX, text="fn a() {}"),
        sample(1, Tier.NOTHING, text="fn fn fn", stopped=False, repetition=0.5),
        sample(2, Tier.PASSED, structure="a", text=f"{RIGHT}// mine\n"),
        sample(3, Tier.NOTHING, text="fn ((((", stopped=False, repetition=0.9),
        sample(4, Tier.NOTHING, text="fn ((((", stopped=False, repetition=0.9),
        sample(0, Tier.NOTHING, task=1, text="none"),
        sample(1, Tier.NOTHING, task=1, text=" \n"),
        sample(0, Tier.PASSED, task=2, structure="a"),
    ]
    made = list(preferences_of(samples, ROWS, _CONFIG))

    assert [row.rejected for row in made] == ["fn ((((", "fn fn fn", "none"]
    assert [row.rejected_stopped for row in made] == [False, False, True]
    assert [row.response for row in made] == [f"{RIGHT}// mine\n"] * 2 + [list(ROWS.values())[1].response]
    assert [row.lineage is None for row in made] == [False, False, True]
    assert made[0].why == "rejected: it is nothing"


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
    assert len(list(read_models(pairs.path / PREFERENCES, PreferencePair))) == 1
    expected = {"num_accepted": 1, "num_pairs": 1, "num_of_loops": 0, "num_by_reference": 0, "num_held_out": 1}
    assert {name: pairs.manifest[name] for name in expected} == expected
