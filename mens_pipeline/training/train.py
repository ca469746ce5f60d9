"""One training run from a job to a saved adapter. Only a training process imports this.

Before the first step, `train` finds the rows that the recipe uses (`examples`), plans the order of all micro-batches
(`plan`), loads the base, in four bits or whole, with an adapter (`qlora`), and restores the number of steps decided so
far (`step_plan`). In each step

1. the loader pads the next micro-batches of the plan (`sft.collate`), each process its own share;
2. the model computes the log-likelihood of the tokens of the response, times the weight of their row; the loss is the
   mean over all labelled tokens of the step (`PlannedTrainer.compute_loss`);
3. the gradients of the adapter add up over the micro-batches, on a GPU in parts that fit its memory (`training_step`),
   and over the processes;
4. the trainer clips the norm of the gradient, and refuses a norm that is zero or not finite (`common_trainer`);
5. AdamW updates the adapter in float32, with the rate of `step_plan.Schedule`;
6. all processes share counts, seconds and requests to stop. `common_trainer.RunMonitor` replans the rest of the run if
   its pace requires it, writes telemetry, and marks a checkpoint when one is due.

At some checkpoints the trainer measures the loss on rows of other files (`PlannedTrainer.evaluate`). After the last
step it loads the checkpoint with the lowest loss; without such rows, it keeps the adapter of the last step. Then
`train` checks that the base has not changed, and saves the adapter with tokenizer, template and system prompt.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset
from transformers import AutoTokenizer, set_seed
from trl import SFTConfig

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.agent import ALONE, ON_RAY, Team, own_team
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.jobs.progress import NOWHERE, TelemetryLog
from mens_pipeline.jobs.protocol import STOP, newest_checkpoint
from mens_pipeline.models.adapter import ADAPTER, TELEMETRY
from mens_pipeline.models.chat import format_for
from mens_pipeline.training.common_trainer import RunMonitor, StopRequest, common_arguments
from mens_pipeline.training.cpu_kernels import replace_slow_parts
from mens_pipeline.training.examples import ShownRows, open_examples, plan_examples
from mens_pipeline.training.plan import BatchPlan, step_tokens
from mens_pipeline.training.qlora import Checksums, checksums, keep_input_precision, load_base, lora_config
from mens_pipeline.training.recipe import TrainingJob, refuse_sharding
from mens_pipeline.training.sft import PlannedTrainer, collate, plain_loss, refuse_other_loss
from mens_pipeline.training.step_plan import Schedule, take_up
from mens_pipeline.training.telemetry_log import seconds_trained

SYSTEM_PROMPT: Final = "system_prompt.json"
"""File of an adapter with its system prompt."""


def train(job: TrainingJob, clock: Callable[[], float] = time.perf_counter) -> bool:
    """Train, from the newest checkpoint if there is one; return whether the run is complete.

    A complete run has `adapter/` and `result.json`; a run that stopped on request only has a checkpoint. `RefusedError`
    if the run is impossible, or failed in a way that further training would not fix.
    """
    recipe = job.recipe
    team = own_team(own_environment())
    refuse_sharding(own_environment())
    stop = StopRequest(job.run_dir / STOP if ON_RAY in own_environment() else None)
    set_seed(recipe.seed)
    # Denormal numbers slow a CPU down a hundredfold and contribute nothing.
    torch.set_flush_denormal(True)
    tokenizer = load_tokenizer(job.base_path)
    examples = open_examples(job)
    target = plan_examples(job.rows_path, examples.columns, recipe, job.continues)
    if not target.batches:
        raise RefusedError("no rows to train on. Check `not_shown` in training-preflight.json, and relax the recipe.")
    checkpoint = newest_checkpoint(job.run_dir)
    schedule = Schedule(target.num_steps, recipe.warmup_steps, recipe.lr_scheduler_type)
    accumulated = recipe.accumulation
    tokens = step_tokens(target.batches, examples.columns.lengths, accumulated)
    steps = take_up(job.run_dir, schedule, tokens, recipe.max_minutes, is_recorded=team.is_first)
    plan = target.first(steps.num_steps, accumulated) if steps.is_over else target
    log = TelemetryLog(job.run_dir / TELEMETRY if team.is_first else NOWHERE)
    monitor = RunMonitor(log, stop, steps, seconds_trained(job.run_dir / TELEMETRY), clock, team)
    trainer = _trainer(job, tokenizer, examples.train, plan, monitor, team)
    trainer.validation = examples.validation
    before = checksums(trainer.model)
    about = {**examples.account(), **_describe(job, target, trainer)}
    if not trainer.run(about, checkpoint):
        return False
    if not team.is_first:
        return True
    after = checksums(trainer.model)
    _save(job, trainer, tokenizer)
    shown = target.first(trainer.state.global_step, accumulated)
    kept = {"validation_loss": trainer.best_loss, "kept_step": trainer.state.best_global_step}
    counts = {"kinds": examples.kinds(shown.batches), "num_batches": len(shown.batches), **kept}
    trainer.write_result(job.run_dir, {**about, **counts, **_changes(before, after)})
    return True


def load_tokenizer(path: Path) -> Any:
    """Load the tokenizer of a base; without a padding token, it pads with the end of a turn."""
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = format_for(tokenizer).end
    return tokenizer


def _trainer(  # noqa: PLR0913, PLR0917 - the parts of a trainer
    job: TrainingJob,
    tokenizer: Any,
    examples: ShownRows,
    plan: BatchPlan,
    monitor: RunMonitor,
    team: Team = ALONE,
) -> PlannedTrainer:
    recipe = job.recipe
    dtype = getattr(torch, job.dtype)
    # accelerate requires a base in four bits on the GPU of its process.
    device = team.local_rank if job.device == "cuda" and team.size > 1 else job.device
    model = load_base(job.base_path, recipe, device, dtype)
    # SFTTrainer requires rows, but the plan decides which rows to show, and `evaluate` reads its own.
    rows = Dataset.from_list([{"input_ids": [0], "labels": [0]}])
    trainer = PlannedTrainer(
        model=model,
        args=SFTConfig(**build_arguments(job, plan, team)),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        peft_config=lora_config(recipe, model),
        data_collator=partial(collate, pad_token_id=tokenizer.pad_token_id),
        callbacks=[monitor],
        batches=plan.batches,
        examples=examples,
        accumulated=recipe.accumulation,
        team=team,
    )
    trainer.begin(monitor, job.continues)
    trainer.lora_plus_ratio = recipe.lora_plus_ratio
    trainer.first_loss = plain_loss(trainer, is_new=job.continues is None)
    if job.device == "cpu":
        trainer.computed_by = replace_slow_parts(trainer.model, dtype, in_eight_bits=job.compute_dtype == "int8")
    else:
        keep_input_precision(trainer.model)
        trainer.computed_by += f", base in {recipe.quantization}, layers recomputed: {recipe.recomputed_layers}"
    refuse_other_loss(trainer, trainer.first_loss, job.base_name, job.compute_dtype)
    return trainer


def build_arguments(job: TrainingJob, plan: BatchPlan, team: Team) -> dict[str, Any]:
    """Return the arguments of TRL's trainer."""
    recipe = job.recipe
    every_n = recipe.checkpoint_every_n_layers or 0
    return {
        **common_arguments(job, plan.num_steps),
        "max_length": None,
        "gradient_accumulation_steps": -(-recipe.accumulation // team.size),
        "learning_rate": recipe.learning_rate,
        "optim": "adamw_torch_fused",
        "activation_checkpointing": every_n > 0,
        "activation_checkpointing_kwargs": {"use_reentrant": False, "every_n_layers": every_n} if every_n else None,
        "save_total_limit": 2,
        "load_best_model_at_end": recipe.validation_split_ratio > 0,
        "eval_strategy": "steps" if recipe.validation_split_ratio > 0 else "no",
        "eval_steps": recipe.save_steps,
        "logging_steps": recipe.logging_steps,
        # Every step uses every matrix of the adapter; a search for unused ones would cost a pass over all of them.
        "ddp_find_unused_parameters": False,
        "ddp_broadcast_buffers": False,
        "packing": False,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "completion_only_loss": True,
    }


def _describe(job: TrainingJob, plan: BatchPlan, trainer: PlannedTrainer) -> dict[str, Any]:
    config = trainer.model.config.get_text_config()
    trained = sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad)
    return {
        "contract_digest": job.contract_digest,
        "device": job.device,
        "compute_dtype": job.compute_dtype,
        "computed_by": trainer.computed_by,
        "first_loss": trainer.first_loss,
        "planned_steps": plan.num_steps,
        "curriculum_skipped": list(plan.num_skipped),
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
        "num_trained_parameters": trained,
    }


def _changes(before: Checksums, after: Checksums) -> dict[str, Any]:
    """Count the adapter matrices that training changed; refuse a run that changed none, and a changed base."""
    changed = [name for name, digest in after.trained.items() if digest != before.trained[name]]
    if before.frozen_sha256 != after.frozen_sha256:
        raise RefusedError("the base model changed while its adapter was trained. Report this with telemetry.jsonl.")
    if not changed:
        raise RefusedError("training did not change the adapter. Report this with telemetry.jsonl.")
    return {
        "frozen_sha256": after.frozen_sha256,
        "num_adapter_matrices": len(after.trained),
        "num_changed_matrices": len(changed),
    }


def _save(job: TrainingJob, trainer: PlannedTrainer, tokenizer: Any) -> None:
    folder = job.run_dir / ADAPTER
    for config in trainer.model.peft_config.values():
        config.base_model_name_or_path, config.revision = job.base_name, job.base_revision
        # The library writes a set, whose order varies.
        config.target_modules = sorted(config.target_modules)
    trainer.model.save_pretrained(folder, save_embedding_layers=False)
    tokenizer.chat_template = format_for(tokenizer).template()
    tokenizer.save_pretrained(folder)
    (folder / SYSTEM_PROMPT).write_text(json.dumps({"system_prompt": job.system_prompt}) + "\n", encoding="utf-8")
