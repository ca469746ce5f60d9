"""One run of the scratch lane, from a job to a saved model. Only a training process imports this."""
# ruff: noqa: TID253 - see above

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import newest_checkpoint
from mens_pipeline.models.adapter import ADAPTER, TELEMETRY
from mens_pipeline.models.chat import IM_END
from mens_pipeline.scratch.data import JsonlDataLoader, count_shown, plan_order
from mens_pipeline.scratch.recipe import Shape
from mens_pipeline.scratch.run import MODEL, WEIGHTS, ScratchJob
from mens_pipeline.scratch.tokenizer import EOS, PAD, encode, transformers_tokenizer
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.common_trainer import (
    IGNORED,
    CommonTrainer,
    RunMonitor,
    StopRequest,
    common_arguments,
    mean_loss,
    pad_rows,
)
from mens_pipeline.training.plan import BatchPlan, step_tokens
from mens_pipeline.training.step_plan import Schedule, take_up
from mens_pipeline.training.telemetry_log import seconds_trained

_VALIDATED_AT_ONCE: Final = 8


def train(job: ScratchJob) -> bool:
    """Train, from the newest checkpoint if there is one; return whether the run is complete.

    A complete run has `model/` and `result.json`; with a base also `adapter/`, which is merged into `model/`. A run
    that stopped on request only has a checkpoint, a whole model or an adapter.
    """
    recipe = job.recipe
    stop = StopRequest()
    set_seed(recipe.seed)
    # Denormal numbers slow a CPU down a hundredfold and contribute nothing.
    torch.set_flush_denormal(True)
    loader = JsonlDataLoader(
        job.train_path,
        max_length=recipe.max_length,
        system_prompt=job.system_prompt,
        min_rating=recipe.min_rating,
        strict=job.strict,
    )
    order = plan_order(loader, recipe.plan())
    log = TelemetryLog(job.run_dir / TELEMETRY)
    checkpoint = newest_checkpoint(job.run_dir)
    schedule = Schedule(order.num_steps, recipe.warmup_steps, "cosine")
    tokens = step_tokens(
        order.batches, np.array([*map(len, loader.entries)], np.uint32), recipe.gradient_accumulation_steps
    )
    steps = take_up(job.run_dir, schedule, tokens, recipe.max_minutes)
    monitor = RunMonitor(log, stop, steps, seconds_trained(job.run_dir / TELEMETRY))
    rest = order.first(steps.num_steps, recipe.gradient_accumulation_steps) if steps.is_over else order
    trainer = _trainer(job, loader, rest, monitor)
    about = {
        **count_shown(loader, order),
        "contract_digest": job.contract_digest,
        "device": job.device,
        "compute_dtype": job.compute_dtype,
        "planned_steps": order.num_steps,
        "num_parameters": recipe.shape.num_parameters,
        "num_trained": sum(one.numel() for one in trainer.model.parameters() if one.requires_grad),
    }
    if not trainer.run(about, checkpoint):
        return False
    validation = _validation_loss(trainer, loader, order.validation)
    if job.base_path is not None:
        trainer.model.save_pretrained(job.run_dir / ADAPTER)
        trainer.model = trainer.model.merge_and_unload()
    trainer.model.save_pretrained(job.run_dir / MODEL)
    trainer.processing_class.save_pretrained(job.run_dir / MODEL)
    about |= {"validation_loss": validation, "model_sha256": digest_of(job.run_dir / WEIGHTS)}
    trainer.write_result(job.run_dir, about)
    return True


class ScratchTrainer(CommonTrainer, Trainer):  # type: ignore[misc]
    """A Trainer that follows an order and refuses gradients that are zero or not finite."""

    def __init__(self, *, batches: Sequence[Sequence[int]], loader: JsonlDataLoader, **named: Any) -> None:
        super().__init__(train_dataset=loader, data_collator=partial(pad_rows, pad_token_id=PAD), **named)
        self._batches = [list(batch) for batch in batches]

    def get_train_dataloader(self) -> "DataLoader[Any]":
        """Return a loader of the micro-batches of the order, read from the file one by one."""
        batches: DataLoader[Any] = DataLoader(
            self.train_dataset, batch_sampler=self._batches, collate_fn=self.data_collator
        )
        return self.accelerator.prepare(batches)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        """Compute the mean loss of the labelled positions of a step, all micro-batches together, and count tokens."""
        if model.training:
            self.num_tokens += int(inputs["attention_mask"].sum())
            self.num_supervised += int((inputs["labels"] != IGNORED).sum())
        return super().compute_loss(model, {**inputs, "use_cache": False}, *arguments, **named)


def build_model(shape: Shape) -> GPT2LMHeadModel:
    """Make a model with random weights."""
    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.max_position_embeddings,
        n_embd=shape.hidden_size,
        n_layer=shape.num_hidden_layers,
        n_head=shape.num_attention_heads,
        n_inner=shape.intermediate_size,
        attn_pdrop=shape.dropout,
        resid_pdrop=shape.dropout,
        embd_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    model = GPT2LMHeadModel(config)
    # A row ends with both; a completion ends when its turn is over.
    model.generation_config = GenerationConfig(pad_token_id=PAD, eos_token_id=[EOS, *encode(IM_END)])
    return model


def _load_adapted(base: Path, rank: int) -> PeftModel:
    lora = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=["c_attn", "c_proj", "c_fc"],
        fan_in_fan_out=True,
        task_type="CAUSAL_LM",
    )
    model: PeftModel = get_peft_model(GPT2LMHeadModel.from_pretrained(base, use_safetensors=True), lora)
    return model


def _trainer(job: ScratchJob, loader: JsonlDataLoader, plan: BatchPlan, monitor: RunMonitor) -> ScratchTrainer:
    recipe = job.recipe
    arguments = TrainingArguments(
        **common_arguments(job, plan.num_steps),
        gradient_accumulation_steps=recipe.gradient_accumulation_steps,
        learning_rate=recipe.rate,
        optim="adamw_torch" if job.device == "cpu" else "adamw_torch_fused",
        save_total_limit=recipe.save_total_limit,
        logging_steps=1,
    )
    trainer = ScratchTrainer(
        model=_load_adapted(job.base_path, recipe.lora_r) if job.base_path is not None else build_model(recipe.shape),
        args=arguments,
        processing_class=transformers_tokenizer(),
        callbacks=[monitor],
        batches=plan.batches,
        loader=loader,
    )
    trainer.follow(monitor)
    return trainer


def _validation_loss(trainer: ScratchTrainer, loader: JsonlDataLoader, rows: Sequence[int]) -> float | None:
    parts = (rows[start : start + _VALIDATED_AT_ONCE] for start in range(0, len(rows), _VALIDATED_AT_ONCE))
    batches = (pad_rows([loader[row] for row in part], PAD) for part in parts)
    return mean_loss(trainer, ((batch, int((batch["labels"] != IGNORED).sum())) for batch in batches))
