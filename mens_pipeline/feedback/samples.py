"""Completions of an adapter to executable prompts of its train set, each evaluated, and none asked for twice."""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from mens_pipeline.corpus.evolution.requests import Generator, Ledger
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.evaluate import score_completions, with_sound_tests
from mens_pipeline.evaluation.scores import Score
from mens_pipeline.evaluation.tasks import Task, training_tasks
from mens_pipeline.evaluation.trial import generate_completions
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.reward import Reward, Tier, is_telling, reward_of
from mens_pipeline.inference.generation import Completion
from mens_pipeline.language import analyze, structure_of
from mens_pipeline.storage.jsonl import write_jsonl, write_text
from mens_pipeline.storage.stage import Content, DecidedBy, Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details, key_of
from mens_pipeline.storage.validation import Strict

KIND: Final = "feedback_samples"
SAMPLES: Final = "samples.jsonl"
_LEDGER: Final = "ledger.jsonl"
_SPENT: Final = "spent.json"
_OF_SAMPLING: Final = (
    *("most_prompts", "samples", "temperature", "top_p", "max_new_tokens", "sampling_minutes", "seed"),
)
"""Fields of the configuration that decide prompts and completions."""


class SamplesDetails(Details):
    """Measures in the manifest of samples: seconds of generation."""

    seconds: float


class Sample(Strict):
    """One completion of a training prompt, with who wrote it, what it is worth, and why."""

    task: str = Field(description="Follows from the prompt.")
    sample: int = Field(ge=0, description="Which completion of it.")
    prompt: str
    adapter_sha256: str = Field(description="Of the adapter that wrote it.")
    text: str
    program: str = Field(description="What was evaluated: the fenced block of the text, or all of it.")
    structure: str | None = Field(description="SHA-256 of the program without its names and literals; null for no Vox.")
    num_tokens: int = Field(ge=0, description="Tokens written.")
    stopped: bool = Field(description="It ended by itself.")
    repetition: float = Field(ge=0, le=1, description="Share of its lines that stand in it before already.")
    reward: Reward

    @property
    def is_accepted(self) -> bool:
        """Whether it is to be learnt."""
        return self.reward.tier is Tier.PASSED


class SamplesParams(Params):
    """Parameters of sampling: adapter, train set and conditions; `fits` chooses among the prompts."""

    generator: Annotated[Generator, DecidedBy(lambda by: [by.name, by.digest, dict(by.decoding)])]
    system: str
    train: Content
    config: Annotated[
        FeedbackConfig, DecidedBy(lambda config: config.model_dump(mode="json", include=set(_OF_SAMPLING)))
    ]
    fits: Helper[Callable[[str], bool]]
    store: Helper[ArtifactStore]
    log_line: Helper[Callable[[str], None]]
    clock: Helper[Callable[[], float]] = time.monotonic

    @property
    def work(self) -> Path:
        """The folder in which completions are kept as they come."""
        return self.store.root / KIND / f".work-{key_of(STAGE.inputs(self))}"


def write_feedback_samples(folder: Path, params: SamplesParams) -> dict[str, Any]:
    """Sample an adapter on prompts of its train set, and write the evaluated completions: `samples.jsonl`."""
    tasks = prompts_of(params.train, params.config, params.fits)
    completions, seconds = _collect_completions(params, tasks)
    by_id = {task.id: task for task in tasks}
    asked = [by_id[name] for name in dict.fromkeys(completion.task for completion in completions)]
    evaluated = score_completions(asked, completions)
    both = zip(completions, evaluated, strict=True)
    samples = [
        _sample(by_id[completion.task], completion, score, params.generator.digest) for completion, score in both
    ]
    write_jsonl(folder / SAMPLES, samples)
    chosen = best_of(asked, completions, evaluated)
    assert chosen is not None, "each prompt has at least two"  # noqa: S101 - our own impossibility
    return {
        "num_prompts": len(asked),
        "num_left": len(tasks) - len(asked),
        "num_solved_by_chosen": sum(one.is_accepted and one.sample == chosen.chosen[one.task] for one in samples),
        **account_of(samples, seconds),
    }


STAGE: Final = Stage(KIND, (__name__,), write_feedback_samples)


def build_feedback_samples(params: SamplesParams) -> tuple[Artifact, bool]:
    """Return evaluated completions of an adapter to prompts of its train set, and whether they were reused.

    Completions are kept in a ledger as they come: what was killed goes on with the next prompts, within what is left of
    the time.

    Raises:
        RefusedError: No row of the train set has hidden tests that tell anything, or the model cannot complete.
    """
    artifact, reused = STAGE.build(params.store, params)
    shutil.rmtree(params.work, ignore_errors=True)
    return artifact, reused


def prompts_of(train: Path, config: FeedbackConfig, fits: Callable[[str], bool]) -> tuple[Task, ...]:
    """Choose the prompts that may be asked, in an order that depends on the seed and on each of them alone."""
    tasks = [task for task, pair in training_tasks(read_pairs(train)).values() if fits(pair.response)]
    tasks = [task for task in tasks if is_telling(task)]
    tasks.sort(key=lambda task: hashlib.sha256(f"{config.seed}:{task.id}".encode()).digest())
    sound, _ = with_sound_tests(tasks[: config.most_prompts])
    chosen = tuple(task for task in sound if task.tests is not None)
    if not chosen:
        advice = (
            "Extract functions with a behaviour, synthesise tasks, or raise max_new_tokens of config/feedback.yaml."
        )
        raise RefusedError(f"{train}: no row with hidden tests that a completion of this length can pass. {advice}")
    return chosen


def _collect_completions(params: SamplesParams, tasks: Sequence[Task]) -> tuple[list[Completion], float]:
    """Return completions of as many prompts as there is time for, at least one batch, and the seconds that took."""
    config, clock = params.config, params.clock
    params.work.mkdir(parents=True, exist_ok=True)
    ledger, spent = Ledger(params.work / _LEDGER), params.work / _SPENT
    before, num_done = json.loads(spent.read_text(encoding="utf-8")) if spent.is_file() else (0.0, 1)
    begin, completions, longest = clock(), list[Completion](), 0.0
    for start in range(0, len(tasks), config.prompts_at_once):
        seconds = before + clock() - begin
        if start >= num_done and seconds + longest > 60 * config.sampling_minutes:
            break
        some = tasks[start : start + config.prompts_at_once]
        completions += generate_completions(params.generator, some, params.system, config.decoding, ledger)
        done = before + clock() - begin
        longest = max(longest, done - seconds)
        write_text(spent, json.dumps([done, max(num_done, start + len(some))]))
        params.log_line(
            f"{start + len(some)} of {len(tasks)} prompts answered {config.samples} times in {done / 60:.1f} min"
        )
    return completions, before + clock() - begin


def _sample(task: Task, completion: Completion, score: Score, adapter_sha256: str) -> Sample:
    module = analyze(score.program, task.mode).module
    return Sample(
        task=task.id,
        sample=completion.sample,
        prompt=task.prompt,
        adapter_sha256=adapter_sha256,
        text=completion.text,
        program=score.program,
        structure=structure_of(module).digest if module is not None else None,
        num_tokens=completion.num_tokens,
        stopped=completion.stopped,
        repetition=repetition_of(completion.text),
        reward=reward_of(task, score),
    )


def repetition_of(text: str) -> float:
    """Compute the share of the lines of a text that stand in it before already; brackets alone are no lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" \t{}()[],;")]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def account_of(samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """Count what came of some completions, in JSON types."""
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
