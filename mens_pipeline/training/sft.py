"""TRL's trainer with a fixed order, row weights, and a loss that scores labelled positions alone."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from peft.optimizers import create_loraplus_optimizer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from trl import SFTTrainer

from mens_pipeline.training.common_trainer import CommonTrainer
from mens_pipeline.training.examples import Example

IGNORED: Final = -100
_NO_CODE: Final = (0, 0)
_SCORED_AT_ONCE: Final = 1024
"""Positions whose logits are in memory at once, where the library would score every position."""


def collate(examples: Sequence[Example], pad_token_id: int) -> dict[str, torch.Tensor]:
    """A micro-batch: rows padded on the right to the longest.

    Args:
        examples: Its rows.
        pad_token_id: What fills the rest; it is neither attended to nor learnt.

    Returns:
        `input_ids`, `attention_mask`, `labels` (rows, length), int64, prompt and padding -100 in the last;
        `weights` (rows), float32. Where a prompt shows code that carries loss: labels there as well, `weights` (rows,
        length), and `num_unweighted`: by how much the weights of these labels fall short of 1 together.
    """
    length = max(map(len, examples))
    shape = (len(examples), length)
    batch = {
        "input_ids": torch.full(shape, pad_token_id),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
        "labels": torch.full(shape, IGNORED),
        "weights": torch.tensor([example.weight for example in examples]),
    }
    for row, example in enumerate(examples):
        end = len(example)
        batch["input_ids"][row, :end] = torch.tensor(example.prompt + example.completion)
        batch["attention_mask"][row, :end] = 1
        batch["labels"][row, len(example.prompt) : end] = torch.tensor(example.completion)
    return _with_code(batch, examples) if any(example.code != _NO_CODE for example in examples) else batch


def _with_code(batch: dict[str, torch.Tensor], examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """Label the code that prompts show, each token with its weight."""
    batch["weights"] = batch["weights"][:, None].repeat(1, batch["labels"].shape[1])
    short = 0.0
    for row, example in enumerate(examples):
        first, last = example.code
        batch["labels"][row, first:last] = batch["input_ids"][row, first:last]
        batch["weights"][row, first:last] *= example.code_weight
        short += (1 - example.code_weight) * (last - first)
    batch["num_unweighted"] = torch.tensor(short)
    return batch


class PlannedTrainer(CommonTrainer, SFTTrainer):  # type: ignore[misc]
    """An SFTTrainer that follows a plan and refuses gradients that teach nothing."""

    def __init__(
        self, *arguments: Any, batches: Sequence[Sequence[int]], examples: Sequence[Example], **named: Any
    ) -> None:
        """Take up a plan.

        Args:
            arguments: Of SFTTrainer.
            batches: Rows of each micro-batch in order.
            examples: The rows.
            named: Of SFTTrainer.
        """
        super().__init__(*arguments, **named)
        self._batches = [list(batch) for batch in batches]
        self._examples = examples
        self.num_tokens = 0
        self.num_supervised = 0
        self.lora_plus_ratio = 1.0

    def create_optimizer(self, *arguments: Any) -> Any:
        """Make the optimizer, with a higher rate for the B matrices where the recipe asks for it.

        Args:
            arguments: Of the library.

        Source:
            LoRA+, arXiv 2402.12354.
        """
        if self.lora_plus_ratio == 1:
            return super().create_optimizer(*arguments)
        kind, options = self.get_optimizer_cls_and_kwargs(self.args, self.model)
        self.optimizer = create_loraplus_optimizer(
            self.model,
            kind,
            loraplus_lr_ratio=self.lora_plus_ratio,
            loraplus_weight_decay=self.args.weight_decay,
            **options,
        )
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The micro-batches of the plan, in its order."""
        pad = self.processing_class.pad_token_id
        loader: DataLoader[Any] = DataLoader(
            self._examples,
            batch_sampler=self._batches,
            collate_fn=lambda rows: collate(rows, pad),
        )
        return self.accelerator.prepare(loader)

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, torch.Tensor]], device: torch.device) -> Any:
        """Count labelled positions as the library does, and those of code in prompts by their weight."""
        items = super()._get_num_items_in_batch(batch_samples, device)
        short = [batch["num_unweighted"] for batch in batch_samples if "num_unweighted" in batch]
        return items - sum(short).to(device) if short else items

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The mean negative log-likelihood of the labelled positions of a step, each times its weight.

        Args:
            model: The model with its adapter.
            inputs: What `collate` gave.
            return_outputs: Never asked for here.
            num_items_in_batch: Labelled positions of the whole step, all micro-batches together; those of code in
                prompts count by their weight.
        """
        inputs = dict(inputs)
        weights = inputs.pop("weights")
        inputs.pop("num_unweighted", None)
        labels = inputs["labels"][:, 1:]
        mask = labels != IGNORED
        if self.model.training:
            self.num_tokens += int(inputs["attention_mask"].sum())
            self.num_supervised += int(mask.sum())
        if mask.device.type == "cpu":
            losses = self._scored(model, inputs, mask, labels)
        else:
            losses = -model(**inputs, use_cache=False, fused_lm_head=True).log_probs[mask]
        each = weights[:, None].expand_as(labels) if weights.dim() == 1 else weights[:, 1:]
        total = (losses * each[mask]).sum()
        loss = total / (mask.sum() if num_items_in_batch is None else num_items_in_batch)
        return (loss, {}) if return_outputs else loss

    def _scored(self, model: Any, inputs: dict[str, Any], mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Losses of the labelled positions; the library would project every position where there is no Triton."""
        base = model.get_base_model()
        # No mask: rows are padded on the right, where a causal model never looks from a labelled position.
        hidden = base.base_model(input_ids=inputs["input_ids"], use_cache=False).last_hidden_state[:, :-1][mask]
        head = base.get_output_embeddings()
        pieces = zip(hidden.split(_SCORED_AT_ONCE), labels[mask].split(_SCORED_AT_ONCE), strict=True)
        return torch.cat([cross_entropy(head(states).float(), wanted, reduction="none") for states, wanted in pieces])
