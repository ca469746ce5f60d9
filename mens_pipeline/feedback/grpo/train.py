"""Training on rewards: TRL's GRPO trainer on our plan, with our reward, from an adapter that is there.

For a training process alone. The reward is what `reward.py` says of an answer to a row of the train set, judged and run
as everywhere. Each step asks new prompts of the plan, and learns once from each answer.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from peft import get_peft_model
from torch.utils.data import Sampler
from trl import GRPOConfig, GRPOTrainer

from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.evaluate import judge_all
from mens_pipeline.evaluation.tasks import Task, training_tasks
from mens_pipeline.feedback.grpo.job import REWARDS, GrpoJob
from mens_pipeline.feedback.reward import Reward, reward_of
from mens_pipeline.inference.generation import Answer
from mens_pipeline.training.chat import IM_END, encode
from mens_pipeline.training.common_trainer import CommonTrainer
from mens_pipeline.training.examples import Example, Examples, NotShown
from mens_pipeline.training.plan import Plan
from mens_pipeline.training.progress import Progress
from mens_pipeline.training.qlora import load_base, lora_config
from mens_pipeline.training.team import Team
from mens_pipeline.training.train import Method, arguments_of, train


@dataclass(frozen=True, slots=True)
class Asked(Example):
    """One prompt as the model sees it; `completion` is the response of its row, which nobody shows.

    Attributes:
        num_tokens: Of all answers of a step, prompts included, at most.
    """

    task: Task | None = None
    num_tokens: int = 0

    def __len__(self) -> int:
        """Tokens that a step may take for it."""
        return self.num_tokens


def train_on_rewards(job: GrpoJob, listen: Callable[[dict[str, Any]], None]) -> bool:
    """Train on rewards, from the newest checkpoint on if there is one, and return what `train` does.

    Raises:
        RefusedError: As `train`; or the job goes on from no adapter, or would train in several processes.
    """
    if job.continues is None or job.recipe.devices > 1:
        raise RefusedError("rewards train an adapter that is there, in one process. Leave `devices` out.")
    return train(job, listen, method=Method(_examples, _trainer))


def _examples(job: GrpoJob, tokenizer: Any) -> Examples:
    examples = Examples()
    for task, pair in training_tasks(read_pairs(job.train_path)).values():
        examples.seen += 1
        encoded = encode(tokenizer, job.system_prompt, pair.prompt, pair.response)
        if len(encoded.prompt) + job.max_new_tokens > job.recipe.max_length:
            examples.not_shown[NotShown.TOO_LONG] += 1
            continue
        tokens = job.num_generations * (len(encoded.prompt) + job.max_new_tokens)
        about = (pair.difficulty, pair.category, 1.0, pair.task_family)
        examples.train.append(Asked(encoded.prompt, encoded.completion, *about, task=task, num_tokens=tokens))
    return examples


def _whole(rows: list[int], prompts: int) -> list[int]:
    """Fill the last step up with the first rows: the library knows whole ones alone."""
    return rows + list(islice(cycle(rows), -len(rows) % prompts))


class _Order(Sampler[int]):  # type: ignore[misc]
    """Prompts of a plan as the library wants them: those of a step once for each micro-batch, each several times."""

    def __init__(self, rows: Sequence[int], prompts: int, answers: int) -> None:
        self._steps = [rows[start : start + prompts] for start in range(0, len(rows), prompts)]
        self._answers = answers

    def __len__(self) -> int:
        return sum(len(step) ** 2 for step in self._steps) * self._answers

    def __iter__(self) -> Iterator[int]:
        for step in self._steps:
            for _ in step:
                for row in step:
                    yield from [row] * self._answers


class RewardTrainer(CommonTrainer, GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer that follows a plan, over prompts that are encoded already."""

    attended = ("prompt_mask", "completion_mask")
    may_stand_still = True

    def __init__(self, *arguments: Any, prompts: Sequence[Asked], order: Sequence[int], **named: Any) -> None:
        """Take up a plan: an order of the prompts, for a whole number of steps."""
        self._prompts = {str(place): prompt for place, prompt in enumerate(prompts)}
        self._order = order
        super().__init__(*arguments, **named)

    def _get_train_sampler(self, dataset: Any = None) -> _Order:
        return _Order(self._order, self.args.gradient_accumulation_steps, self.num_generations)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return [list(self._prompts[place].prompt) for place in prompts], None, {}


@dataclass(frozen=True, slots=True)
class _Judge:
    """Reward of answers, as the library asks for it."""

    prompts: Sequence[Asked]
    tokenizer: Any
    path: Path
    __name__ = "vox"

    def __call__(
        self, *, prompts: list[str], completion_ids: list[list[int]], trainer_state: Any, **_: Any
    ) -> list[float]:
        """Judge and run answers, and keep what they are worth."""
        rewards = self._rewards(prompts, completion_ids)
        line = {
            "step": trainer_state.global_step + 1,
            "mean_reward": fmean(reward.value for _, reward in rewards),
            "answers": [{**answer, **reward.model_dump(mode="json")} for answer, reward in rewards],
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return [reward.value for _, reward in rewards]

    def _rewards(self, prompts: list[str], completions: list[list[int]]) -> list[tuple[Mapping[str, Any], Reward]]:
        end = self.tokenizer.convert_tokens_to_ids(IM_END)
        tasks, answers = {}, []
        for number, (place, ids) in enumerate(zip(prompts, completions, strict=True)):
            task = self.prompts[int(place)].task
            assert task is not None, "every prompt has one"  # noqa: S101 - our own impossibility
            tasks[task.id] = task
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
            answers.append(
                Answer(
                    task=task.id, sample=number, text=text, num_tokens=len(ids), stopped=bool(ids) and ids[-1] == end
                )
            )
        judged = judge_all(list(tasks.values()), answers)
        return [
            ({"task": answer.task, "text": answer.text}, reward_of(tasks[answer.task], judgement))
            for answer, judgement in zip(answers, judged, strict=True)
        ]


def _trainer(  # noqa: PLR0913, PLR0917 - what a trainer is made of
    job: GrpoJob,
    tokenizer: Any,
    examples: Sequence[Asked],
    plan: Plan,
    progress: Progress,
    team: Team,
) -> RewardTrainer:
    recipe, dtype = job.recipe, getattr(torch, job.compute_dtype)
    assert job.continues is not None, "looked at before"  # noqa: S101 - our own impossibility
    base = load_base(job.base_path, recipe, job.device, dtype)
    model = get_peft_model(base, lora_config(recipe, base))
    arguments = arguments_of(job, plan, team)
    for name in ("max_length", "activation_checkpointing", "activation_checkpointing_kwargs"):
        del arguments[name]  # those of the library's other trainers
    trainer = RewardTrainer(
        model=model,
        args=GRPOConfig(
            **{**arguments, "per_device_train_batch_size": job.num_generations},
            gradient_checkpointing=job.device != "cpu",
            num_generations=job.num_generations,
            temperature=job.temperature,
            top_p=job.top_p,
            max_completion_length=job.max_new_tokens,
            loss_type="dr_grpo",
            scale_rewards="none",
            beta=0.0,
            mask_truncated_completions=True,
        ),
        reward_funcs=_Judge(examples, tokenizer, job.run_dir / REWARDS),
        train_dataset=Dataset.from_list([{"prompt": str(place)} for place in range(len(examples))]),
        processing_class=tokenizer,
        callbacks=[progress],
        prompts=examples,
        order=_whole([row for batch in plan.batches for row in batch], recipe.gradient_accumulation_steps),
    )
    trainer.begin(progress, job.continues)
    return trainer
