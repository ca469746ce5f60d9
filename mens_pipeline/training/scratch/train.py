"""One run of the scratch lane, from a job to a saved model. For a training process alone."""
# ruff: noqa: TID253 - see above

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.utils.data import DataLoader
from transformers import GenerationConfig, Trainer, TrainingArguments, set_seed

from mens_pipeline.language.vox_tokenizer import EOS, PAD, encode
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.chat import IM_END
from mens_pipeline.training.common_trainer import CommonTrainer
from mens_pipeline.training.job import CHECKPOINTS, RESULT, newest_checkpoint, write_document
from mens_pipeline.training.plan import step_tokens
from mens_pipeline.training.progress import Progress, StopRequest
from mens_pipeline.training.schedule import Schedule
from mens_pipeline.training.scratch.data import IGNORED, JsonlDataLoader, collate
from mens_pipeline.training.scratch.job import MODEL, WEIGHTS, ScratchJob
from mens_pipeline.training.scratch.order import Order, account_of, lay_down
from mens_pipeline.training.scratch.tokenizer import VoxTokenizer
from mens_pipeline.training.scratch.transformer import VoxTransformer, config_of
from mens_pipeline.training.step_plan import take_up
from mens_pipeline.training.telemetry_log import FILE, TelemetryLog, seconds_trained, totals_of

_VALIDATED_AT_ONCE: Final = 8


def train(job: ScratchJob, listen: Callable[[dict[str, Any]], None]) -> bool:
    """Train, from the newest checkpoint on if there is one.

    Returns:
        Whether the run is complete; then `model/` and `result.json` are there. Otherwise it was asked to stop, and its
        newest checkpoint is a whole model as well.

    Raises:
        RefusedError: The run cannot be, or went wrong in a way that more of it would not mend.
    """
    recipe = job.recipe
    stop = StopRequest()
    set_seed(recipe.seed)
    # Numbers next to zero slow a CPU down a hundredfold, and teach nothing.
    torch.set_flush_denormal(True)
    loader = JsonlDataLoader(
        job.train_path,
        max_length=recipe.max_length,
        system_prompt=job.system_prompt,
        min_rating=recipe.min_rating,
        strict=job.strict,
    )
    order = lay_down(loader, recipe)
    log = TelemetryLog(job.run_dir / FILE, listen)
    checkpoint = newest_checkpoint(job.run_dir)
    schedule = Schedule(order.num_steps, recipe.warmup_steps, "cosine")
    tokens = step_tokens(order.batches, list(map(len, loader.entries)), recipe.gradient_accumulation_steps)
    steps = take_up(job.run_dir, schedule, tokens, recipe.max_minutes)
    progress = Progress(log, stop, steps, seconds_trained(job.run_dir / FILE))
    rest = order.first(steps.num_steps, recipe.gradient_accumulation_steps) if steps.is_over else order
    trainer = _trainer(job, loader, rest, progress)
    about = {**account_of(loader, order), **_about(job, order, trainer)}
    log.write("train_start", {**about, "resumed_from": None if checkpoint is None else checkpoint.name})
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if stop.is_asked and trainer.state.global_step < steps.num_steps:
        log.write("train_interrupted", {"step": trainer.state.global_step})
        return False
    validation = _validation_loss(trainer, loader, order.validation)
    trainer.model.save_pretrained(job.run_dir / MODEL)
    trainer.processing_class.save_pretrained(job.run_dir / MODEL)
    result = {
        **about,
        "num_steps": trainer.state.global_step,
        "plan": steps.account(),
        "validation_loss": validation,
        "seconds": progress.seconds,
        **totals_of(job.run_dir / FILE),
        "model_sha256": digest_of(job.run_dir / WEIGHTS),
    }
    write_document(job.run_dir / RESULT, result)
    log.write("train_complete", result)
    return True


class ScratchTrainer(CommonTrainer, Trainer):  # type: ignore[misc]
    """A Trainer that follows an order and refuses gradients that teach nothing."""

    def __init__(self, *, batches: Sequence[Sequence[int]], loader: JsonlDataLoader, **named: Any) -> None:
        super().__init__(train_dataset=loader, data_collator=collate, **named)
        self._batches = [list(batch) for batch in batches]
        self._loader = loader

    def get_train_dataloader(self) -> "DataLoader[Any]":
        """Return a loader of the micro-batches of the order, read from the file one by one."""
        batches: DataLoader[Any] = DataLoader(self._loader, batch_sampler=self._batches, collate_fn=collate)
        return self.accelerator.prepare(batches)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the library's own
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute the mean negative log-likelihood of the labelled positions of a step, all micro-batches together."""
        if model.training:
            self.num_tokens += int(inputs["attention_mask"].sum())
            self.num_supervised += int((inputs["labels"] != IGNORED).sum())
        loss = model(**inputs, num_items_in_batch=num_items_in_batch, use_cache=False).loss
        return (loss, {}) if return_outputs else loss


def _trainer(job: ScratchJob, loader: JsonlDataLoader, order: Order, progress: Progress) -> ScratchTrainer:
    model = VoxTransformer(config_of(job.recipe.shape))
    # A row ends with both; whoever asks for an answer has it when its turn is over.
    model.generation_config = GenerationConfig(pad_token_id=PAD, eos_token_id=[EOS, *encode(IM_END)])
    trainer = ScratchTrainer(
        model=model,
        args=_arguments(job, order),
        processing_class=VoxTokenizer(),
        callbacks=[progress],
        batches=order.batches,
        loader=loader,
    )
    progress.trainer = trainer
    trainer.steps = progress.steps
    return trainer


def _arguments(job: ScratchJob, order: Order) -> TrainingArguments:
    recipe = job.recipe
    is_cpu = job.device == "cpu"
    return TrainingArguments(
        output_dir=str(job.run_dir / CHECKPOINTS),
        use_cpu=is_cpu,
        bf16=job.compute_dtype == "bfloat16",
        remove_unused_columns=False,
        per_device_train_batch_size=1,  # the order decides
        gradient_accumulation_steps=recipe.gradient_accumulation_steps,
        num_train_epochs=1,  # the order holds all epochs
        max_steps=order.num_steps,
        learning_rate=recipe.rate,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        optim="adamw_torch" if is_cpu else "adamw_torch_fused",
        save_strategy="steps",
        save_steps=recipe.save_steps,
        save_total_limit=recipe.save_total_limit,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to="none",
        seed=recipe.seed,
        data_seed=recipe.seed,
        dataloader_num_workers=0,
        dataloader_pin_memory=not is_cpu,
    )


def _about(job: ScratchJob, order: Order, trainer: ScratchTrainer) -> dict[str, Any]:
    return {
        "contract_digest": job.contract_digest,
        "device": job.device,
        "compute_dtype": job.compute_dtype,
        "planned_steps": order.num_steps,
        "num_parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
    }


def _validation_loss(trainer: ScratchTrainer, loader: JsonlDataLoader, rows: Sequence[int]) -> float | None:
    """Compute the mean loss of a token on rows that did not train; None without such rows."""
    if not rows:
        return None
    trainer.model.eval()
    total = count = 0.0
    with torch.no_grad():
        for start in range(0, len(rows), _VALIDATED_AT_ONCE):
            batch = collate([loader[row] for row in rows[start : start + _VALIDATED_AT_ONCE]])
            batch = {name: tensor.to(trainer.model.device) for name, tensor in batch.items()}
            labels = int((batch["labels"] != IGNORED).sum())
            total += float(trainer.compute_loss(trainer.model, batch)) * labels
            count += labels
    return total / count
