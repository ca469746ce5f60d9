"""Training on pairs: TRL's preference trainer on our plan, from an adapter that is there. For a training process alone.

The reference is the adapter that the run goes on from, not the base: its log-probabilities are computed once, before
the first step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset
from peft import get_peft_model
from torch.utils.data import DataLoader
from trl import DPOConfig, DPOTrainer

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.training.chat import encode
from mens_pipeline.training.common_trainer import CommonTrainer
from mens_pipeline.training.cpu_kernels import fuse_adapters
from mens_pipeline.training.examples import Example, Examples, NotShown
from mens_pipeline.training.plan import Plan
from mens_pipeline.training.preference.job import PreferenceJob, PreferencePair
from mens_pipeline.training.progress import Progress
from mens_pipeline.training.qlora import load_base, lora_config, take_over
from mens_pipeline.training.team import Team
from mens_pipeline.training.train import Method, arguments_of, train

_LOSSES: Final = ["sigmoid", "sft"]
"""The second is what keeps preferred answers likely (Pang et al. 2024, arXiv 2404.19733)."""

_REFERENCE: Final = "ref"
"""Name that TRL gives the reference adapter."""


@dataclass(frozen=True, slots=True)
class Preference(Example):
    """One pair as the model sees it; `completion` is the preferred answer, `rejected` the other one."""

    rejected: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Tokens of both rows."""
        return 2 * len(self.prompt) + len(self.completion) + len(self.rejected)


def train_on_pairs(job: PreferenceJob, listen: Callable[[dict[str, Any]], None]) -> bool:
    """Train on pairs, from the newest checkpoint on if there is one, and return what `train` does.

    Raises:
        RefusedError: As `train`; or the job goes on from no adapter, or would train in several processes.
    """
    if job.continues is None or job.recipe.devices > 1:
        raise RefusedError("pairs train from an adapter that is there, in one process. Leave `devices` out.")
    return train(job, listen, method=Method(_examples, _trainer))


def _examples(job: PreferenceJob, tokenizer: Any) -> Examples:
    examples = Examples()
    for pair in read_models(Path(job.train_path), PreferencePair):
        examples.seen += 1
        preferred = encode(tokenizer, job.system_prompt, pair.prompt, pair.response)
        rejected = encode(tokenizer, job.system_prompt, pair.prompt, pair.rejected).completion
        # What was cut off did not end: the end of the turn is no part of what is made unlikely.
        rejected = rejected if pair.rejected_stopped else rejected[:-1]
        longest = len(preferred.prompt) + max(len(preferred.completion), len(rejected))
        if longest > job.recipe.max_length or not rejected:
            examples.not_shown[NotShown.TOO_LONG] += 1
            continue
        about = (pair.difficulty, pair.category, 1.0, pair.task_family)
        examples.train.append(Preference(preferred.prompt, preferred.completion, *about, rejected=rejected))
    return examples


class PreferenceTrainer(CommonTrainer, DPOTrainer):  # type: ignore[misc]
    """A DPOTrainer that follows a plan, over rows that are encoded already."""

    def __init__(self, *arguments: Any, batches: Sequence[Sequence[int]], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._batches = [list(batch) for batch in batches]

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the micro-batches of the plan, in its order."""
        loader: DataLoader[Any] = DataLoader(
            self.train_dataset, batch_sampler=self._batches, collate_fn=self.data_collator
        )
        return self.accelerator.prepare(loader)


def _trainer(  # noqa: PLR0913, PLR0917 - what a trainer is made of
    job: PreferenceJob,
    tokenizer: Any,
    examples: Sequence[Preference],
    plan: Plan,
    progress: Progress,
    team: Team,
) -> PreferenceTrainer:
    recipe, dtype = job.recipe, getattr(torch, job.compute_dtype)
    assert job.continues is not None, "looked at before"  # noqa: S101 - our own impossibility
    base = load_base(job.base_path, recipe, job.device, dtype)
    model = get_peft_model(base, lora_config(recipe, base))
    take_over(model, job.continues)
    rows = [
        {"prompt_ids": list(row.prompt), "chosen_ids": list(row.completion), "rejected_ids": list(row.rejected)}
        for row in examples
    ]
    trainer = PreferenceTrainer(
        model=model,
        args=DPOConfig(
            **arguments_of(job, plan, team),
            loss_type=_LOSSES,
            loss_weights=[1.0] * len(_LOSSES),
            beta=job.beta,
            precompute_ref_log_probs=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[progress],
        batches=plan.batches,
    )
    trainer.model.delete_adapter(_REFERENCE)
    trainer.begin(progress, job.continues)
    if job.device == "cpu" and recipe.lora_dropout == 0:
        fuse_adapters(trainer.model, dtype)
    return trainer
