"""Compare the speed of training with a plain TRL script: same base, rows, device and steps, in one run.

`python -m mens_pipeline_tests.bench.training TRAIN_JSONL [--base FOLDER] [--device cpu] [--steps 8]`

With `--beside qwen2.5-coder-0.5b` it measures this pipeline alone, on the base and on others: folders, names, or shapes
of `random_base.py` with random weights.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Final

import numpy as np

from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.environment import training_environment
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, find_base_model
from mens_pipeline.settings import PRESETS, load_settings
from mens_pipeline.training.plan import Batches, plan_run
from mens_pipeline.training.prepare import prepare_run
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline.training.step_plan import Schedule, take_up
from mens_pipeline_tests.bench.machine import machine_name, peak_of_products
from mens_pipeline_tests.bench.random_base import SHAPES
from mens_pipeline_tests.bench.random_base import main as random_base
from mens_pipeline_tests.bench.ratios import note

_VARIANTS = {
    "plain": "plain TRL script, its defaults",
    "packed": "... with rows packed and kept apart",
    "wrapped": "... with rows packed one behind the other",
    "ours": "this pipeline",
    "float32": "... computing in float32",
    "checkpointing": "... with activation checkpointing",
    "every-second": "... with that of every second layer",
    "kept": "... without activation checkpointing",
    "random": "... with batches of 8 random rows",
}
_LIBRARY_VARIANTS = ("plain", "packed", "wrapped")
_CHECKPOINTED: Final = {"checkpointing": 1, "every-second": 2, "kept": 0}
"""Variant -> number of layers of which one recomputes its activations; 0: none."""

_GPU_VARIANTS = (*_LIBRARY_VARIANTS, "ours", "every-second", "kept", "float32", "random")
"""Variants on a GPU: there each layer recomputes by default, and the library itself scores only labelled positions."""


def main() -> None:
    options = _options()
    if options.variant:
        _child(options)
        return
    print(f"{machine_name()}, {options.device}, {options.steps} steps each, the first not counted")
    print()
    if options.beside:
        _compare_bases(options)
        return
    peak = _in_child("peak")
    print(f"products of large matrices: {peak['float32']:.0f} GFLOP/s in float32, {peak['bfloat16']:.0f} in bfloat16")
    print()
    columns = f"{'variant':<44}{'tokens/s':>10}{'of plain':>10}{'of peak':>9}{'padding':>9}{'peak MB':>9}"
    print(f"{columns}  loss of each step")
    plain: float | None = None
    usual = [name for name in _VARIANTS if name != "kept"] if options.device == "cpu" else _GPU_VARIANTS
    for variant in options.variants or usual:
        name = _VARIANTS[variant]
        try:
            figures = _in_child(variant)
        except SystemExit as error:
            if variant != "packed":
                raise
            # The library does not keep rows apart in linear attention if a kernel package is missing.
            print(f"{name:<44}  refused: {str(error.code).strip().splitlines()[-1]}", flush=True)
            continue
        rate = figures["tokens"] / figures["seconds"]
        plain = rate if variant == "plain" else plain
        beside = f"{rate / plain:.1f}x" if plain else "-"
        share = figures["gflop"] / figures["seconds"] / max(peak.values())
        if variant == "ours" and plain:
            note("training, beside a plain TRL script", rate / plain)
            note("training, of the peak of matrix products", share)
        padding = 1 - figures["tokens"] / figures["positions"]
        losses = " ".join(f"{loss:.2f}" for loss in figures["losses"])
        memory = f"{padding:>9.1%}{figures['peak_mb']:>9.0f}"
        print(f"{name:<44}{rate:>10.1f}{beside:>10}{share:>9.1%}{memory}  {losses}", flush=True)


def _options() -> Namespace:
    parser = ArgumentParser(description="Measure training.")
    parser.add_argument("train", type=Path, help="a train set, JSON lines")
    parser.add_argument("--base", help="base model: a folder or a name", default=DEFAULT_CPU_MODEL)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--beside", nargs="+", help="further bases, or shapes of random_base.py, to measure")
    parser.add_argument("--variants", nargs="+", choices=_VARIANTS, help="variants to measure, in this order")
    parser.add_argument("--variant", choices=["peak", *_VARIANTS])
    return parser.parse_args()


def _compare_bases(options: Namespace) -> None:
    print(f"{'base':<44}{'tokens/s':>10}{'GFLOP/s':>10}{'peak':>8}{'of peak':>9}{'peak MB':>9}  loss of each step")
    for name in (options.base, *options.beside):
        with tempfile.TemporaryDirectory() as folder:
            if name in SHAPES:
                random_base(name, Path(folder))
            peak = max(_in_child("peak").values())
            figures = _in_child("ours", "--base", folder if name in SHAPES else name)
        speed = figures["gflop"] / figures["seconds"]
        rates = f"{figures['tokens'] / figures['seconds']:>10.1f}{speed:>10.1f}{peak:>8.0f}{speed / peak:>9.1%}"
        losses = " ".join(f"{loss:.2f}" for loss in figures["losses"])
        print(f"{name[-44:]:<44}{rates}{figures['peak_mb']:>9.0f}  {losses}", flush=True)


def _in_child(variant: str, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "mens_pipeline_tests.bench.training", *sys.argv[1:], *more, "--variant", variant]
    environment = training_environment()
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{variant}: {result.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return figures


def _child(options: Namespace) -> None:
    if options.variant == "peak":
        print(json.dumps(peak_of_products(options.device)))
        return
    with tempfile.TemporaryDirectory() as folder:
        is_plain = options.variant in _LIBRARY_VARIANTS
        trainer = _plain(options, Path(folder)) if is_plain else _ours(options, Path(folder))
        watch = _Watch(trainer)
        trainer.train()
    print(json.dumps(watch.figures()))


def _gflop(model: Any, num_tokens: int, num_labelled: int) -> float:
    """Return the operations that training requires, in billions.

    They are products with frozen matrices, forwards and for gradients of inputs, with matrices of the adapter, also for
    their own gradients, and with the head at labelled positions.
    """
    from bitsandbytes.nn import Linear4bit

    frozen = sum(
        module.in_features * module.out_features for module in model.modules() if isinstance(module, Linear4bit)
    )
    adapter = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    head: int = model.get_output_embeddings().weight.numel()
    return float((4 * frozen + 6 * adapter) * num_tokens + 4 * head * num_labelled) / 1e9


class _Watch:
    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.laps: list[tuple[int, int, int, float]] = []
        self.step = trainer.training_step
        trainer.training_step = self.measured

    def measured(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        labels = inputs["labels"]
        mask = inputs.get("attention_mask", labels.new_ones(labels.shape))  # packed rows have none, and no padding
        started = perf_counter()
        loss = self.step(model, inputs, *arguments, **named)
        if mask.device.type == "cuda":
            import torch

            torch.cuda.synchronize()
        labelled = int((labels[:, 1:] != -100).sum())
        self.laps.append((int(mask.sum()), mask.numel(), labelled, perf_counter() - started))
        return loss

    def figures(self) -> dict[str, Any]:
        from mens_pipeline.training.common_trainer import _peak_memory_mb  # noqa: PLC0415 - loads the deep learning stack

        accumulated = self.trainer.args.gradient_accumulation_steps
        laps = self.laps[accumulated:]
        losses = [entry["loss"] for entry in self.trainer.state.log_history if "loss" in entry]
        tokens, positions, labelled = (sum(int(lap[column]) for lap in laps) for column in range(3))
        return {
            "tokens": tokens,
            "positions": positions,
            "gflop": _gflop(self.trainer.accelerator.unwrap_model(self.trainer.model), tokens, labelled),
            "seconds": sum(seconds for *_, seconds in laps),
            "losses": [float(loss) for loss in losses],
            "peak_mb": _peak_memory_mb(self.trainer.args.device.type),
        }


def _plain(options: Namespace, folder: Path) -> Any:
    """Train by TRL as its documentation shows: prompt and completion, NF4, LoRA on all linear layers.

    If rows are packed, a CPU gets one pack at a time, which has about as many tokens as eight rows.
    """
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, set_seed
    from trl import SFTConfig, SFTTrainer

    set_seed(42)
    is_packed = options.variant != "plain"
    base = find_base_model(options.base, None, load_settings().cache_root / "base_models")
    rows = [json.loads(line) for line in options.train.read_text(encoding="utf-8").splitlines()]
    data = Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": row["prompt"]}],
                "completion": [{"role": "assistant", "content": row["response"]}],
            }
            for row in rows
        ]
    )
    return SFTTrainer(
        model=str(base.path),
        args=SFTConfig(
            output_dir=str(folder),
            use_cpu=options.device == "cpu",
            packing=is_packed,
            packing_strategy="wrapped" if options.variant == "wrapped" else "bfd",
            per_device_train_batch_size=1 if is_packed and options.device == "cpu" else 8,
            max_steps=options.steps,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            report_to="none",
        ),
        train_dataset=data,
        quantization_config=BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32 if options.device == "cpu" else torch.bfloat16,
        ),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def _random_batches(num_rows: int, seed: int, most: int) -> Batches:
    rows = Random(seed).sample(range(num_rows), num_rows)[: 8 * most]  # noqa: S311 - a reproducible order, no secret
    return Batches(np.array(rows, np.uint32), np.append(np.arange(0, len(rows), 8), len(rows)))


def without_budget(folder: Path, num_steps: int) -> Any:
    """Return the callback of a run without a time budget."""
    from mens_pipeline.training.common_trainer import RunMonitor, StopRequest  # noqa: PLC0415 - loads the deep learning stack

    steps = take_up(folder, Schedule(num_steps, 0, "linear"), [1] * num_steps, None)
    return RunMonitor(TelemetryLog(folder / TELEMETRY), StopRequest(), steps)


def _ours(options: Namespace, folder: Path) -> Any:
    import torch
    from transformers import AutoTokenizer, set_seed

    from mens_pipeline.training import train as module  # noqa: PLC0415 - likewise
    from mens_pipeline.training.examples import open_examples  # noqa: PLC0415 - likewise

    flags: dict[str, Any] = {"model_name_or_path": options.base, "max_steps": options.steps, "warmup_steps": 0}
    flags |= {"learning_rate": 2e-5, "save_steps": 10_000, "lr_scheduler_type": "linear"}
    flags["quantization"] = "nf4"  # the same as the plain trainer
    if options.variant in _CHECKPOINTED:
        flags["checkpoint_every_n_layers"] = _CHECKPOINTED[options.variant]
    if options.variant == "float32":
        flags["bnb_4bit_compute_dtype"] = "float32"
    preset = "cpu_demo" if options.device == "cpu" else "auto"
    device = resolve_device(DeviceChoice(options.device))
    presets = load_named(PRESETS)
    resolved = resolve_recipe(
        presets, {}, preset=preset, domain=None, environment={}, flags=flags, vram_gb=device.memory_gb
    )
    run = prepare_run(resolved, options.train, folder, device, cache=load_settings().cache_root, min_rows=1)
    recipe = run.job.recipe
    set_seed(recipe.seed)
    torch.set_flush_denormal(True)
    tokenizer = AutoTokenizer.from_pretrained(run.job.base_path)
    examples = open_examples(run.job)
    plan = plan_run(examples.columns, recipe)
    if options.variant == "random":
        plan = replace(plan, batches=_random_batches(len(examples.train), recipe.seed, len(plan.batches)))
    progress = without_budget(folder, plan.num_steps)
    return module._trainer(run.job, tokenizer, examples.train, plan, progress)


if __name__ == "__main__":
    main()
