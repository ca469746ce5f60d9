"""Answers of an adapter to executable prompts of its train set, each judged; what was asked is never asked again."""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from mens_pipeline.corpus.evolution.requests import Generator, Ledger
from mens_pipeline.corpus.schema.training_pair import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.evaluate import judge_all, with_sound_tests
from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.tasks import Task, training_tasks
from mens_pipeline.evaluation.trial import answers_by
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.reward import Reward, Tier, is_telling, reward_of
from mens_pipeline.inference.generation import Answer
from mens_pipeline.language import analyze, structure_of
from mens_pipeline.storage.jsonl import write_jsonl, write_text
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details, digest_of, key_of
from mens_pipeline.storage.validation import Strict

KIND: Final = "feedback_samples"
STAGE: Final = Stage(KIND, (__name__,), by_content=True)
SAMPLES: Final = "samples.jsonl"
_LEDGER: Final = "ledger.jsonl"
_SPENT: Final = "spent.json"
_OF_SAMPLING: Final = (
    *("most_prompts", "samples", "temperature", "top_p", "max_new_tokens", "sampling_minutes", "seed"),
)
"""Fields of the configuration that decide what is asked and answered."""


class SamplesDetails(Details):
    """Measures in the manifest of samples: seconds of generation."""

    seconds: float


class Sample(Strict):
    """One answer to a training prompt, with who wrote it, what it is worth, and why."""

    task: str = Field(description="Follows from the prompt.")
    sample: int = Field(ge=0, description="Which answer to it.")
    prompt: str
    adapter_sha256: str = Field(description="Of the adapter that wrote it.")
    text: str
    program: str = Field(description="What was judged: the fenced block of the text, or all of it.")
    structure: str | None = Field(description="SHA-256 of the program without its names and literals; null for no Vox.")
    num_tokens: int = Field(ge=0, description="Tokens written.")
    stopped: bool = Field(description="It ended by itself.")
    repetition: float = Field(ge=0, le=1, description="Share of its lines that stand in it before already.")
    reward: Reward

    @property
    def is_accepted(self) -> bool:
        """Whether it is to be learnt."""
        return self.reward.tier is Tier.PASSED


def build_feedback_samples(  # noqa: PLR0913 - all that decides what is asked
    generator: Generator,
    system: str,
    train: Path,
    config: FeedbackConfig,
    store: ArtifactStore,
    *,
    fits: Callable[[str], bool],
    parents: Sequence[Artifact],
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Artifact, bool]:
    """Let an adapter answer prompts of its train set several times, and judge the answers.

    Answers are kept in a ledger as they come: what was killed goes on with the next prompts, within what is left of the
    time.

    Returns:
        The judged answers, and whether they were reused. The folder holds `samples.jsonl`.

    Raises:
        RefusedError: No row of the train set has hidden tests that tell anything, or the model cannot answer.
        ConfigurationError: The store cannot be written.
    """
    params = {
        "by": [generator.name, generator.digest, dict(generator.decoding)],
        "system": system,
        "train_sha256": digest_of(train),
        "config": config.model_dump(mode="json", include=set(_OF_SAMPLING)),
    }
    work = store.root / KIND / f".work-{key_of(STAGE.inputs(parents, params))}"

    def write(folder: Path) -> dict[str, Any]:
        tasks = prompts_of(train, config, fits)
        answers, seconds = _answered(generator, system, tasks, config, work, tell, clock)
        by_id = {task.id: task for task in tasks}
        asked = [by_id[name] for name in dict.fromkeys(answer.task for answer in answers)]
        judged = judge_all(asked, answers)
        both = zip(answers, judged, strict=True)
        samples = [_sample(by_id[answer.task], answer, judgement, generator.digest) for answer, judgement in both]
        write_jsonl(folder / SAMPLES, samples)
        chosen = best_of(asked, answers, judged)
        assert chosen is not None, "each prompt is answered at least twice"  # noqa: S101 - our own impossibility
        return {
            "num_prompts": len(asked),
            "num_left": len(tasks) - len(asked),
            "num_solved_by_chosen": sum(one.is_accepted and one.sample == chosen.chosen[one.task] for one in samples),
            **account_of(samples, seconds),
        }

    artifact, reused = STAGE.build(store, parents, params, write)
    shutil.rmtree(work, ignore_errors=True)
    return artifact, reused


def prompts_of(train: Path, config: FeedbackConfig, fits: Callable[[str], bool]) -> tuple[Task, ...]:
    """Choose the prompts that may be asked, in an order that depends on the seed and on each of them alone.

    Raises:
        RefusedError: There is none.
    """
    tasks = [task for task, pair in training_tasks(read_pairs(train)).values() if fits(pair.response)]
    tasks = [task for task in tasks if is_telling(task)]
    tasks.sort(key=lambda task: hashlib.sha256(f"{config.seed}:{task.id}".encode()).digest())
    sound, _ = with_sound_tests(tasks[: config.most_prompts])
    chosen = tuple(task for task in sound if task.tests is not None)
    if not chosen:
        advice = (
            "Extract functions with a behaviour, synthesise tasks, or raise max_new_tokens of config/feedback.yaml."
        )
        raise RefusedError(f"{train}: no row with hidden tests that an answer of this length can pass. {advice}")
    return chosen


def _answered(  # noqa: PLR0913, PLR0917 - what is asked of whom, and how long
    generator: Generator,
    system: str,
    tasks: Sequence[Task],
    config: FeedbackConfig,
    work: Path,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> tuple[list[Answer], float]:
    """Return the answers to as many prompts as there is time for, at least one batch, and the seconds that took."""
    work.mkdir(parents=True, exist_ok=True)
    ledger, spent = Ledger(work / _LEDGER), work / _SPENT
    before, num_done = json.loads(spent.read_text(encoding="utf-8")) if spent.is_file() else (0.0, 1)
    begin, answers, longest = clock(), list[Answer](), 0.0
    for start in range(0, len(tasks), config.prompts_at_once):
        seconds = before + clock() - begin
        if start >= num_done and seconds + longest > 60 * config.sampling_minutes:
            break
        some = tasks[start : start + config.prompts_at_once]
        answers += answers_by(generator, some, system, config.decoding, ledger)
        done = before + clock() - begin
        longest = max(longest, done - seconds)
        write_text(spent, json.dumps([done, max(num_done, start + len(some))]))
        tell(f"{start + len(some)} of {len(tasks)} prompts answered {config.samples} times in {done / 60:.1f} min")
    return answers, before + clock() - begin


def _sample(task: Task, answer: Answer, judgement: Judgement, adapter_sha256: str) -> Sample:
    module = analyze(judgement.program, task.mode).module
    return Sample(
        task=task.id,
        sample=answer.sample,
        prompt=task.prompt,
        adapter_sha256=adapter_sha256,
        text=answer.text,
        program=judgement.program,
        structure=structure_of(module).digest if module is not None else None,
        num_tokens=answer.num_tokens,
        stopped=answer.stopped,
        repetition=repetition_of(answer.text),
        reward=reward_of(task, judgement),
    )


def repetition_of(text: str) -> float:
    """Compute the share of the lines of a text that stand in it before already; brackets alone are no lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" \t{}()[],;")]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def account_of(samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """Count what came of some answers, in JSON types."""
    tiers = Counter(sample.reward.tier for sample in samples)
    solved = {sample.task for sample in samples if sample.is_accepted}
    return {
        "num_samples": len(samples),
        "num_tokens": sum(sample.num_tokens for sample in samples),
        "seconds": seconds,
        "mean_reward": sum(sample.reward.value for sample in samples) / len(samples),
        "stop_rate": sum(sample.stopped for sample in samples) / len(samples),
        "tiers": {str(tier): tiers[tier] for tier in Tier},
        "num_solved": len(solved),
        "num_solved_by_first": sum(sample.is_accepted and sample.sample == 0 for sample in samples),
    }
