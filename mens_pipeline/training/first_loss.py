"""The loss before the first step, which must be that of PEFT and transformers. For a training process alone."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import torch
from torch.nn.functional import cross_entropy

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.common_trainer import IGNORED
from mens_pipeline.training.qlora import begin_evaluation
from mens_pipeline.training.sft import PlannedTrainer

_MOST_ROUNDED: Final = {"float32": 1e-3, "bfloat16": 5e-2}
"""Precision -> nats that the order of operations may take."""
_MOST_OF_CHANCE: Final = 1.1
"""Random weights begin up to a tenth above the loss of a uniform guess, ln(vocabulary)."""


def plain_loss(trainer: PlannedTrainer, *, is_new: bool) -> float:
    """Compute the mean loss of a labelled token of a few rows by PEFT and transformers alone, in nats.

    That of the base without its adapter, where that is new and changes nothing. The model is as the libraries made it.
    """
    batch, model = trainer.few_rows(), trainer.model
    labels = batch["labels"][:, 1:]
    is_wanted = labels != IGNORED
    with _without_chance(trainer), model.disable_adapter() if is_new else nullcontext():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        logits = model(**inputs, use_cache=False).logits[:, :-1][is_wanted]
    return float(cross_entropy(logits.float(), labels[is_wanted]))


def refuse_other_loss(trainer: PlannedTrainer, expected: float, base: str, dtype: str) -> None:
    """Check that training begins with the loss that `plain_loss` gave, and that this is no worse than chance.

    Raises:
        RefusedError: What is trained would not be the base, or the base is none.
    """
    vocabulary = trainer.model.config.get_text_config().vocab_size
    if not expected <= _MOST_OF_CHANCE * math.log(vocabulary):
        guess = f"a uniform guess among {vocabulary:,} tokens has {math.log(vocabulary):.2f}"
        advice = "Fetch the base again, with its own tokenizer, or choose another one."
        raise RefusedError(f"{base}: its loss on the first rows is {expected:.2f}, {guess}. {advice}")
    with _without_chance(trainer):
        found = float(trainer.compute_loss(trainer.model, trainer.few_rows()))
    if not abs(found - expected) <= _MOST_ROUNDED[dtype]:
        advice = "Report this with telemetry.jsonl and the config.json of the base."
        theirs = f"that of PEFT and transformers {expected:.4f}"
        raise RefusedError(f"{base}: the first loss of training is {found:.4f}, {theirs} on the same rows. {advice}")


@contextmanager
def _without_chance(trainer: PlannedTrainer) -> Iterator[None]:
    """Compute as training does, without dropout and gradients."""
    modes = {module: module.training for module in trainer.model.modules()}
    begin_evaluation(trainer.model)
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager():
            yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training
