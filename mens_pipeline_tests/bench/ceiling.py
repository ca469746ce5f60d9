"""Whole functions: how many of HumanEval-Vox a base solves untrained with five examples, or an adapter.

`python -m mens_pipeline_tests.bench.ceiling RUN --model base|adapter [--decoding free] [--every N] [--samples N]`

RUN is a run of `mens train`; the base is the one it was trained on, and the examples come from its train set. Of
several samples, the examples that the prompt states choose one. `--python` is the published figure of the same weights
in Python, from which the transfer ratio is computed.
"""

import argparse
import tempfile
import time
from pathlib import Path

from mens_pipeline.evaluation.baselines import build_few_shot
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.scores import scores_of_model
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.inference.generate import generate
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob, Syntax, as_served
from mens_pipeline.inference.prepare import Conditions, completion_fits, prepare_generation
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import FEW_SHOT
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.bench.machine import machine_name

_HUMANEVAL_IN_PYTHON = 0.616
"""pass@1 of Qwen2.5-Coder-0.5B-Instruct, as its makers publish it (arXiv 2409.12186)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--model", choices=["base", "adapter"], default="adapter")
    parser.add_argument("--bench", type=Path, default=Path("data/heldout_bench/humaneval_vox"))
    parser.add_argument("--train", type=Path, default=Path("build/train.jsonl"), help="the train set of the run")
    parser.add_argument("--decoding", type=Syntax, choices=[*Syntax], default=Syntax.FREE)
    parser.add_argument("--every", type=int, default=1, help="ask every N-th task")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=320)
    parser.add_argument("--python", type=float, default=_HUMANEVAL_IN_PYTHON)
    options = parser.parse_args()
    adapter = Adapter.open(options.run)
    decoding = Decoding(
        max_new_tokens=options.max_tokens,
        num_samples=options.samples,
        temperature=options.temperature,
        syntax=options.decoding,
    )
    fits = completion_fits(adapter.manifest.base_model, decoding)
    tasks = [task for task in benchmark_tasks(load_benchmark(options.bench)) if fits(task.reference)][:: options.every]
    system = None
    if options.model == "base":
        few = build_few_shot(tasks, None, FEW_SHOT, options.train, adapter.manifest.train_sha256)
        assert few is not None, "asked for all"
        system = few.prompt
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mens-bench-") as folder:
        conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), Path(folder) / "lock")
        requests = [task.request for task in tasks]
        asked = prepare_generation(options.model, adapter, requests, conditions, system_prompt=system)
        job = GenerationJob(generations={"asked": asked}, run_dir=Path(folder), lock_path=conditions.lock_path)
        generate(job)
        written = tuple(read_models(job.completions("asked"), Completion))
    seconds = time.monotonic() - begin
    served = as_served(written)
    evaluated = score_completions(tasks, served)
    scores = scores_of_model(tasks, evaluated).overall
    print(machine_name(), f"{options.model}, {decoding.syntax}, {len(tasks)} tasks, {seconds:.0f} s", sep=", ")
    print(f"parse {scores.parse_rate}\nresolve {scores.resolve_rate}\nhidden tests {scores.test_rate}")
    if options.samples > 1:
        print(best_of(tasks, served, evaluated))
    print(f"transfer, Vox over Python at {options.python:.1%}: {scores.test_rate.value / options.python:.2f}")


if __name__ == "__main__":
    main()
