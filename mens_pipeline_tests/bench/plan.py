"""Compare planned and actual seconds of training and of completions, for five recipes.

Run it as `python -m mens_pipeline_tests.bench.plan TRAIN.jsonl [--base NAME] [--steps 40] [--prompts 48] [--busy]`.
For each recipe a probe measures as `mens plan` does; then the same recipe trains `--steps` steps, and its base
completes `--prompts` prompts, in separate processes. With `--busy` a loop keeps one core busy all the time.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.inference.generation import Decoding, Generation, GenerationJob, Request
from mens_pipeline.inference.prepare import held_on
from mens_pipeline.inference.probe import Rates, SpeedProbe
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import Job, refuse_failure, write_job
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL
from mens_pipeline.orchestration.forecast import Rows
from mens_pipeline.settings import PRESETS, load_settings
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline_tests.bench.machine import machine_name

_RECIPES: Final[dict[str, dict[str, Any]]] = {
    "cpu_demo": {},
    "rank 8": {"lora_r": 8, "lora_alpha": 16},
    "rows of 512": {"max_length": 512},
    "steps of 512 tokens": {"tokens_per_step": 512},
    "two micro-batches": {"gradient_accumulation_steps": 2},
}
_WRITTEN: Final = 48
"""Tokens per completion."""


def main() -> None:
    """Print planned and actual seconds of each recipe, and the relative error of their sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("--base", default=DEFAULT_CPU_MODEL)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    beside = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.busy else None
    try:
        print(f"{machine_name()}, load {os.getloadavg()[0]:.1f}{', beside a busy loop' if options.busy else ''}")
        print(f"{'recipe':<20}{'training':>20}{'completions':>20}{'off by':>9}")
        for name, fields in _RECIPES.items():
            planned, actual = _compare(options, fields)
            off = sum(planned) / sum(actual) - 1
            cells = (f"{plan:.1f} / {took:.1f} s" for plan, took in zip(planned, actual, strict=True))
            print(f"{name:<20}{next(cells):>20}{next(cells):>20}{100 * off:>+8.0f} %", flush=True)
    finally:
        if beside is not None:
            beside.kill()


def _compare(options: argparse.Namespace, fields: dict[str, Any]) -> tuple[tuple[float, float], tuple[float, float]]:
    device = resolve_device(DeviceChoice.CPU)
    flags = {"model_name_or_path": options.base, "max_steps": options.steps, "max_minutes": None, **fields}
    recipe = resolve_recipe(load_named(PRESETS), {}, preset="cpu_demo", domain=None, environment={}, flags=flags)
    with tempfile.TemporaryDirectory() as folder:
        run = prepare_run(
            recipe, options.train, Path(folder) / "run", device, cache=load_settings().cache_root, min_rows=1
        )
        rates = SpeedProbe(Path(folder) / "probe", device, run_job, print).measure(run)
        tokens = sum(kind["tokens_shown"] for kind in run.preflight["kinds"].values())
        training = Rows(run.preflight["num_steps"], tokens).seconds(rates, None)
        took = _seconds(run.job, run.job.path)
        completing, wrote = _complete(options, run, rates, Path(folder) / "completions")
    return (training, completing), (took, wrote)


def _complete(options: argparse.Namespace, run: PreparedRun, rates: Rates, folder: Path) -> tuple[float, float]:
    device = resolve_device(DeviceChoice.CPU)
    held, dtype = held_on(device, run.base.num_parameters, "float32")
    pairs = [pair for pair, _ in zip(read_pairs(options.train), range(options.prompts), strict=False)]
    asked = Generation(
        base_path=run.job.base_path,
        adapter_path=None,
        base_sha256=run.base.sha256,
        adapter_sha256=None,
        quantization="nf4",
        double_quant=True,
        trained_in="float32",
        device="cpu",
        compute_dtype=dtype,
        held=held,
        system_prompt=SYSTEM_PROMPT,
        decoding=Decoding(max_new_tokens=_WRITTEN),
        requests=tuple(Request(task=str(row), prompt=pair.prompt) for row, pair in enumerate(pairs)),
    )
    job = GenerationJob(generations={"prompts": asked}, run_dir=folder, lock_path=run.job.lock_path)
    tokenizer = FileTokenizer(run.base.path)
    read = sum(len(encode_prompt(tokenizer, SYSTEM_PROMPT, pair.prompt)) for pair in pairs)
    planned = rates.generate_start + rates.completion(read, len(pairs) * _WRITTEN)
    return planned, _seconds(job, write_job(job))


def _seconds(job: Job, path: Path) -> float:
    began = perf_counter()
    refuse_failure(job.run_dir, run_job(path), "bench")
    return perf_counter() - began


if __name__ == "__main__":
    main()
