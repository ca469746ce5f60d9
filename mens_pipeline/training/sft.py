"""TRL's trainer with a fixed order, row weights and a loss over labelled positions only, and a check of that loss."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch
from accelerate.data_loader import prepare_data_loader
from peft.optimizers import create_loraplus_optimizer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from trl import SFTTrainer

from mens_pipeline.errors import RefusedError, describe_machine_problem
from mens_pipeline.jobs.agent import Team
from mens_pipeline.training.common_trainer import IGNORED, CommonTrainer, mean_loss, pad_rows
from mens_pipeline.training.cpu_kernels import hidden_states, is_causal, num_shared, token_losses
from mens_pipeline.training.examples import Example, ShownRows
from mens_pipeline.training.plan import Batches, Share
from mens_pipeline.training.qlora import begin_evaluation

_FEW: Final = 2
"""Rows for the first loss; with two rows of different lengths, a base of 0.5B takes seconds."""

_VALIDATED_AT_ONCE: Final = 4

_MOST_ROUNDED: Final = {"float32": 1e-3, "bfloat16": 5e-2, "int8": 5e-2}
"""Precision -> allowed difference in nats, from rounding and from a different order of operations."""
_MOST_OF_CHANCE: Final = 1.1
"""Random weights start up to a tenth above the loss of a uniform guess, ln(vocabulary)."""


def collate(examples: Sequence[Example], pad_token_id: int) -> dict[str, Any]:
    """Build a micro-batch as `pad_rows` does; without rows, two positions with gradients of zero.

    Adds `weights` (rows), float32, and `counts`: tokens without padding, and labelled positions.
    """
    rows = examples or [Example((pad_token_id, pad_token_id), ())]
    batch = pad_rows(rows, pad_token_id)
    batch["weights"] = torch.tensor([row.weight for row in rows])
    # Counted here, since reading a tensor from a GPU waits for all its work.
    batch["counts"] = (sum(map(len, examples)), int((batch["labels"][:, 1:] != IGNORED).sum()))
    return batch


def _split_batch(batch: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Split a micro-batch into parts of about the same number of rows; the first one has all counts."""
    num_rows = len(batch["input_ids"])
    if number == 1 or num_rows == 1:
        return [batch]
    size = -(-num_rows // number)
    parts: list[dict[str, Any]] = []
    for start in range(0, num_rows, size):
        cut = {name: value[start : start + size] for name, value in batch.items() if name != "counts"}
        parts.append({**cut, "counts": batch["counts"] if start == 0 else (0, 0)})
    return parts


class PlannedTrainer(CommonTrainer, SFTTrainer):  # type: ignore[misc]
    """An SFTTrainer that follows a plan and refuses gradients that are zero or not finite."""

    def __init__(
        self,
        *arguments: Any,
        batches: Batches,
        examples: ShownRows,
        accumulated: int,
        team: Team,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._batches = batches
        self._accumulated = accumulated
        self._team = team
        self._examples = examples
        self.validation: Sequence[Example] = ()
        self.lora_plus_ratio = 1.0
        self.computed_by = "the libraries"
        self.first_loss = 0.0
        self.scores_labels_alone = self.args.device.type == "cpu"
        self.num_parts = 0 if self.args.device.type == "cuda" else 1

    def create_optimizer(self, *arguments: Any) -> Any:
        """Create the optimizer, with a higher rate for the B matrices if the recipe says so.

        Source:
            LoRA+, arXiv 2402.12354.
        """
        if self.lora_plus_ratio != 1 and self.optimizer is None:
            kind, options = self.get_optimizer_cls_and_kwargs(self.args, self.model)
            self.optimizer = create_loraplus_optimizer(
                self.model,
                kind,
                loraplus_lr_ratio=self.lora_plus_ratio,
                loraplus_weight_decay=self.args.weight_decay,
                **options,
            )
        return super().create_optimizer(*arguments)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the micro-batches of this process in the order of the plan."""
        pad = self.processing_class.pad_token_id
        loader: DataLoader[Any] = DataLoader(
            self._examples,
            batch_sampler=Share(self._batches, self._accumulated, self._team, ()),
            collate_fn=lambda rows: collate(rows, pad),
        )
        if self._team.size == 1:
            return self.accelerator.prepare(loader)
        # `Share` splits the plan already; accelerate would split it once more.
        return prepare_data_loader(
            loader, self.accelerator.device, num_processes=1, process_index=0, put_on_device=True
        )

    @property
    def best_loss(self) -> float | None:
        """The lowest loss of `evaluate`; None without validation rows."""
        return self.state.best_metric if self.state.best_global_step else None

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Compute the mean loss per token on validation rows, over all processes; nan without such rows."""
        size, each = self._team.size * _VALIDATED_AT_ONCE, self._team.rank * _VALIDATED_AT_ONCE
        parts = (self.validation[at : at + _VALIDATED_AT_ONCE] for at in range(each, len(self.validation), size))
        batches = (collate(rows, self.processing_class.pad_token_id) for rows in parts)
        plain = (({**batch, "weights": torch.ones_like(batch["weights"])}, batch["counts"][1]) for batch in batches)
        loss = mean_loss(self, plain, self._team)
        self.monitor.log.write("validation", {"step": self.state.global_step, "loss": loss})
        return {"eval_loss": math.nan if loss is None else loss}

    def few_rows(self) -> dict[str, Any]:
        """Return the shortest row of each of the first micro-batches as one batch on the device, with weights of 1."""
        batches = self._batches[:_FEW]
        rows = [self._examples[min(batch, key=self._examples.lengths.__getitem__)] for batch in batches]
        found = collate(rows, self.processing_class.pad_token_id)
        found["weights"] = torch.ones(len(rows))
        device = self.model.device
        return {name: value.to(device) if torch.is_tensor(value) else value for name, value in found.items()}

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Add the gradients of a micro-batch, in as many parts as the memory of the GPU needs."""
        if not self.num_parts:
            self.num_parts = self._fitting_parts(model)
        parts = _split_batch(inputs, self.num_parts)
        total: Any = 0.0
        try:
            for number, part in enumerate(parts, start=1):
                # Processes sum their gradients once, after the last part, however many rows each of them has.
                with self.accelerator.no_sync(model) if number < len(parts) else nullcontext():
                    total = total + super().training_step(model, part, num_items_in_batch)
        except torch.OutOfMemoryError as error:
            rows, length = inputs["input_ids"].shape
            found = f"step {self.state.global_step + 1}: {rows} rows of {length} tokens in {len(parts)} part(s)"
            raise RefusedError(f"{found}: {describe_machine_problem(error)} It resumes from a checkpoint.") from error
        return total

    def _fitting_parts(self, model: Any) -> int:
        """Halve the largest micro-batch until it fits, and undo the trial; refuse a row that never fits."""
        largest = self._batches[int(self._batches.padded_tokens(self._examples.lengths).argmax())]
        rows = [self._examples[row] for row in largest]
        batch, counted = collate(rows, self.processing_class.pad_token_id), (self.num_tokens, self.num_supervised)
        parts = 1
        while not self._fits(model, _split_batch(batch, parts)[0]):
            if parts >= len(rows):
                found = f"a row of {max(map(len, rows))} tokens does not fit into GPU memory"
                raise RefusedError(f"{found}. Lower max_length, or choose a smaller base or a larger GPU.")
            parts *= 2
        self.num_tokens, self.num_supervised = counted
        if self._team.size > 1:
            found = self.accelerator.gather(torch.tensor([parts], device=self.args.device))
            parts = int(found.max())
        return parts

    def _fits(self, model: Any, batch: dict[str, Any]) -> bool:
        try:
            with torch.random.fork_rng(), self.accelerator.no_sync(model):
                super().training_step(model, batch, torch.tensor(1, device=self.args.device))
        except torch.OutOfMemoryError:
            is_fitting = False
        else:
            is_fitting = True
        model.zero_grad(set_to_none=True)
        if not is_fitting and torch.cuda.is_available():
            torch.cuda.empty_cache()
        return is_fitting

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the mean negative log-likelihood of the labelled positions of a step, each times its weight.

        `num_items_in_batch` counts the labelled positions of all micro-batches of all processes.
        """
        num_tokens, num_supervised = inputs["counts"]
        labels = inputs["labels"][:, 1:]
        if self.model.training:
            self.num_tokens += num_tokens
            self.num_supervised += num_supervised
        each = inputs["weights"][:, None].expand_as(labels)
        # No attention mask: rows are padded on the right, which labelled positions of a causal model do not see.
        if self.scores_labels_alone:
            mask = labels != IGNORED
            total = (self._label_losses(model, inputs, mask, labels) * each[mask]).sum()
        else:
            # Zero without a label. With Triton, TRL selects the labelled positions, and waits for the GPU twice.
            scored = model(input_ids=inputs["input_ids"], labels=inputs["labels"], use_cache=False, fused_lm_head=True)
            total = -(scored.log_probs * each).sum()
        loss = total / (num_supervised if num_items_in_batch is None else num_items_in_batch)
        if num_items_in_batch is not None and self._team.size > 1:
            loss *= self._team.size  # the library averages the gradients of processes; we need their sum
        return (loss, {}) if return_outputs else loss

    def _label_losses(
        self, model: Any, inputs: dict[str, Any], mask: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute the losses of labelled positions only; without Triton, TRL would project every position."""
        own = self.model
        if model is own:
            return labelled_losses(own.get_base_model(), inputs, mask, labels)
        # The wrapper that sums gradients of all processes has to see the call, and calls `forward` of the model.
        forward = own.forward

        def compute_losses() -> torch.Tensor:
            own.forward = forward
            return labelled_losses(own.get_base_model(), inputs, mask, labels)

        own.forward = compute_losses
        losses: torch.Tensor = model()
        return losses


def labelled_losses(base: Any, inputs: dict[str, Any], mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute the losses of labelled positions, float32, in the order of `mask`.

    `base` has an adapter, `inputs` is a micro-batch; `mask` and `labels`, (rows, length - 1), start with the second
    token.
    """
    ids = inputs["input_ids"]
    # Up to the first label, since each row needs the state before it.
    shared = min(num_shared(ids), int(mask.any(0).int().argmax())) if is_causal(base) else 0
    if shared:
        hidden, mask, labels = hidden_states(base.base_model, ids, shared), mask[:, shared:], labels[:, shared:]
    else:
        hidden = base.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return token_losses(hidden[:, :-1][mask], base.get_output_embeddings(), labels[mask])


def plain_loss(trainer: PlannedTrainer, *, is_new: bool) -> float:
    """Compute the mean loss per labelled token of a few rows, in nats, with PEFT and transformers only.

    A new adapter is disabled, since it changes nothing. Call this before `replace_slow_parts`.
    """
    batch, model = trainer.few_rows(), trainer.model
    labels = batch["labels"][:, 1:]
    is_wanted = labels != IGNORED
    with _without_chance(trainer), model.disable_adapter() if is_new else nullcontext():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        logits = model(**inputs, use_cache=False).logits[:, :-1][is_wanted]
    return float(cross_entropy(logits.float(), labels[is_wanted]))


def refuse_other_loss(trainer: PlannedTrainer, expected: float, base: str, dtype: str) -> None:
    """Raise `RefusedError` if the first loss differs from `plain_loss`, or `plain_loss` is worse than chance."""
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
    """Turn dropout and gradients off for the block, in the precision of training."""
    modes = {module: module.training for module in trainer.model.modules()}
    begin_evaluation(trainer.model)
    try:
        with torch.no_grad(), trainer.accelerator.autocast():
            yield
    finally:
        for module, is_training in modes.items():
            module.training = is_training
