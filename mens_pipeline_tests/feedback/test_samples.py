"""Answers to training prompts: which prompts, how many answers, what is known of each, and how it goes on."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.evolution.requests import Request
from mens_pipeline.errors import RefusedError
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.reward import Tier
from mens_pipeline.feedback.samples import (
    SAMPLES,
    Sample,
    SamplesParams,
    build_feedback_samples,
    prompts_of,
    repetition_of,
)
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.corpus.evolution.scripted import Scripted
from mens_pipeline_tests.feedback.asked import RIGHT, pair

_CONFIG = FeedbackConfig(samples=2, prompts_at_once=2, sampling_minutes=60)


def _right(request: Request) -> str:
    name = request.prompt.split("`fn ")[1].split("(")[0]
    return RIGHT.replace("twice_or_zero", name)


def _train(folder: Path, number: int = 5) -> Path:
    path = folder / "train.jsonl"
    rows = [pair(row) for row in range(number)]
    write_jsonl(path, [*rows, pair().model_copy(update={"tests": None, "prompt": "Write a page."})])
    return path


def _built(
    generator: Scripted, train: Path, store: ArtifactStore, config: FeedbackConfig = _CONFIG, seconds: float = 0.0
) -> tuple[Artifact, list[str]]:
    """The judged answers, and what was told; every look at the clock takes some seconds."""
    details: list[str] = []
    ticks = iter(range(10_000))
    params = SamplesParams(
        generator=generator,
        system="You write Vox.",
        train=train,
        config=config,
        fits=lambda text: len(text) < 1000,
        store=store,
        log_line=details.append,
        clock=lambda: next(ticks) * seconds,
    )
    samples, _ = build_feedback_samples(params)
    return samples, details


def test_every_answer_says_who_wrote_it_what_it_is_worth_and_why(tmp_path: Path) -> None:
    """Of each prompt with hidden tests, as many as asked for; the same again is reused."""
    store, train = ArtifactStore(tmp_path / "store"), _train(tmp_path)
    texts = iter(["no Vox", None, *["fn twice() {}"] * 100])
    generator = Scripted(lambda request: next(texts) if "`fn twice_or_zero(" in request.prompt else _right(request))
    samples, details = _built(generator, train, store)
    rows = list(read_models(samples.path / SAMPLES, Sample))
    again, _ = _built(Scripted(lambda _: pytest.fail("asked again")), train, store)

    assert len(rows) == samples.manifest["num_samples"] == 10
    assert samples.manifest["num_prompts"] == 5
    assert samples.manifest["num_solved"] == 4
    assert sum(samples.manifest["tiers"].values()) == 10
    assert {row.adapter_sha256 for row in rows} == {"0" * 64}
    assert {row.reward.tier for row in rows} == {Tier.NOTHING, Tier.PASSED}
    (cut,) = (row for row in rows if not row.stopped)
    assert (cut.reward.value, cut.structure) == (-0.1, None)
    assert cut.reward.why.endswith("it was cut off")
    assert len({row.structure for row in rows if row.is_accepted}) == 1
    assert details[-1].startswith("5 of 5 prompts answered 2 times")
    assert again.key == samples.key
    assert list((tmp_path / "store").glob("*/.work-*")) == []


def test_best_of_n_needs_no_more_answers(tmp_path: Path) -> None:
    """The one of each prompt that is chosen without hidden tests, beside the first one and any."""
    train, asked = _train(tmp_path), dict[str, int]()

    def second_right(request: Request) -> str:
        asked[request.prompt] = asked.get(request.prompt, 0) + 1
        return _right(request) if asked[request.prompt] > 1 else "no Vox"

    samples, _ = _built(Scripted(second_right), train, ArtifactStore(tmp_path / "store"))

    solved = [samples.manifest[f"num_solved{by}"] for by in ("", "_by_first", "_by_chosen")]
    assert solved == [5, 0, 5]


def test_what_was_killed_goes_on(tmp_path: Path) -> None:
    """Nothing is asked twice, and the time that was spent counts."""
    store, train = ArtifactStore(tmp_path / "store"), _train(tmp_path)
    killed = Scripted(_right, fail_after=5)
    with pytest.raises(KeyboardInterrupt):
        _built(killed, train, store, seconds=1)
    (work,) = (tmp_path / "store").glob("*/.work-*")
    spent, num_done = json.loads((work / "spent.json").read_text())
    going_on = Scripted(_right)
    samples, _ = _built(going_on, train, store, seconds=1)

    assert (len(killed.asked), num_done) == (5, 2)
    assert spent > 0
    assert len(going_on.asked) == 10 - 5
    assert samples.manifest["num_samples"] == 10
    assert samples.manifest["seconds"] > spent


def test_time_ends_it_between_two_batches(tmp_path: Path) -> None:
    """At least one batch is asked; what a killed call had asked beyond it still counts."""
    store, train = ArtifactStore(tmp_path / "store"), _train(tmp_path)
    short = _CONFIG.model_copy(update={"sampling_minutes": 0.01})
    samples, _ = _built(Scripted(_right), train, store, short, seconds=10)
    assert (samples.manifest["num_prompts"], samples.manifest["num_left"]) == (2, 3)

    longer = _CONFIG.model_copy(update={"sampling_minutes": 1.0})
    killed = Scripted(_right, fail_after=9)
    with pytest.raises(KeyboardInterrupt):
        _built(killed, train, store, longer, seconds=1)
    samples, _ = _built(Scripted(_right), train, store, longer, seconds=40)
    assert samples.manifest["num_prompts"] == 4


def test_another_seed_asks_in_another_order(tmp_path: Path) -> None:
    """The same seed in the same, whatever else there is."""
    train = _train(tmp_path, 12)
    orders = [
        [task.id for task in prompts_of(train, _CONFIG.model_copy(update={"seed": seed}), lambda _: True)]
        for seed in (1, 1, 2)
    ]

    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(orders[2]) != orders[2] != orders[0]


def test_without_a_telling_row_there_is_nothing_to_ask(tmp_path: Path) -> None:
    """Rows without tests, too long ones, and tests that a constant passes."""
    train = _train(tmp_path, 1)
    with pytest.raises(RefusedError, match="no row with hidden tests"):
        prompts_of(train, _CONFIG, lambda _text: False)


def test_lines_that_come_again_are_counted() -> None:
    """Brackets alone are no lines."""
    assert repetition_of("") == 0
    assert repetition_of("fn f() {\n}\n}\n") == 0
    assert repetition_of("let a = 1\nlet a = 1\nlet a = 1\nlet b = 1\n") == 0.5
