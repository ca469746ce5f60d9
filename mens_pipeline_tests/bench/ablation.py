"""Train the same few steps on parts of a train set, and compare the loss of a token on texts that do not train.

`python -m mens_pipeline_tests.bench.ablation STORE [--steps 45] [--seeds 3] [--arm no-templates] [-o RESULTS.jsonl]`

STORE is the folder of a store in which `mens run --no-train` made a split and a train set; every arm takes the same
number of steps with as many tokens. What RESULTS.jsonl holds already is not measured again. Differences are against
`all` with the same seed: mean and standard error over the seeds.
"""

import json
import math
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any, Final

from mens_pipeline.corpus.curate import heldout_split, mixed_train_set
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks, family_tasks, heldout_tasks
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.environment import training_environment
from mens_pipeline.settings import PRESETS, load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.plan import plan_run
from mens_pipeline.training.prepare import prepare_run
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline_tests.bench.machine import machine_name

_SYNTHETIC: Final = frozenset({"template", "combination", "task"})
_FAMILY_TASKS: Final = 24
"""Of each side."""

Rows = list[TrainingPair]


def _without(*kinds: str) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if row.task_family not in kinds]


def _templates(most: int) -> Callable[[Rows], Rows]:
    """The workspace and so many rows of templates and combinations: synthetic rows that state no behaviour."""

    def chosen(rows: Rows) -> Rows:
        synthetic = [row for row in rows if row.task_family in _SYNTHETIC - {"task"}]
        Random(most).shuffle(synthetic)  # noqa: S311 - a reproducible order, no secret
        return [row for row in rows if row.task_family not in _SYNTHETIC] + synthetic[:most]

    return chosen


_ARMS: Final[dict[str, Callable[[Rows], Rows]]] = {
    "all": _without(),
    "no-synthetic": _without(*_SYNTHETIC),
    "synthetic-400": _templates(400),
    "no-tasks": _without("task"),
    "no-templates": _without("template"),
}


def main() -> None:
    """Run every arm with every seed in a process of its own, and print the table."""
    options = _options()
    if options.child:
        print(json.dumps(_measured(options)))
        return
    done = _lines(options.output)
    for seed in range(1, options.seeds + 1):
        for arm in options.arm or _ARMS:
            if not any((line["arm"], line["seed"], line["steps"]) == (arm, seed, options.steps) for line in done):
                line = {"arm": arm, "seed": seed, "steps": options.steps, **_in_a_process(options, arm, seed)}
                done.append(line)
                with options.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), file=sys.stderr, flush=True)
    print(f"{machine_name()}, {options.steps} steps, seeds 1 to {options.seeds}; loss of a token")
    _print_table([line for line in done if line["steps"] == options.steps and line["seed"] <= options.seeds])


def _options() -> Namespace:
    parser = ArgumentParser(description="Measure what kinds of rows are worth.")
    parser.add_argument("store", type=Path, help="the folder of a store, such as data/store")
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arm", action="append", choices=list(_ARMS))
    parser.add_argument("-o", "--output", type=Path, default=Path("build/ablation.jsonl"))
    parser.add_argument("--child", metavar="SEED", type=int)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    return options


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _in_a_process(options: Namespace, arm: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "mens_pipeline_tests.bench.ablation", str(options.store), "--arm", arm]
    command += ["--steps", str(options.steps), "--child", str(seed)]
    result = subprocess.run(command, env=training_environment(), capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{arm}, seed {seed}: {result.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return figures


def _print_table(lines: Sequence[dict[str, Any]]) -> None:
    of = {(line["arm"], line["seed"]): line for line in lines}
    arms = [arm for arm in _ARMS if any(line["arm"] == arm for line in lines)]
    suites = list(lines[0]["losses"])
    print("| arm | tokens | " + " | ".join(suites) + " |")
    print("|---|---|" + "---|" * len(suites))
    for arm in arms:
        own = [line for line in lines if line["arm"] == arm]
        cells = []
        for suite in suites:
            value = mean(line["losses"][suite] for line in own)
            beside = [
                line["losses"][suite] - of["all", line["seed"]]["losses"][suite]
                for line in own
                if ("all", line["seed"]) in of
            ]
            error = stdev(beside) / math.sqrt(len(beside)) if len(beside) > 1 else math.nan
            difference = f" ({mean(beside):+.3f} ± {error:.3f})" if beside and arm != "all" else ""
            cells.append(f"{value:.4f}{difference}")
        print(f"| {arm} | {mean(line['tokens'] for line in own):,.0f} | " + " | ".join(cells) + " |")


def _measured(options: Namespace) -> dict[str, Any]:
    """Train one arm with one seed; returns the tokens shown, and the loss of each suite."""
    import torch
    from transformers import set_seed

    from mens_pipeline.models.chat import encode  # noqa: PLC0415 - likewise
    from mens_pipeline.training import train as module  # noqa: PLC0415 - loads the deep learning stack
    from mens_pipeline.training.examples import Example, open_examples  # noqa: PLC0415 - likewise
    from mens_pipeline_tests.bench.training import without_budget  # noqa: PLC0415 - likewise

    store = ArtifactStore(options.store)
    kinds = (heldout_split.KIND, mixed_train_set.KIND)
    split, train = (store.latest(kind) for kind in kinds)
    if split is None or train is None:
        sys.exit(f"{options.store}: no train set. Make one with `mens run --no-train`.")
    rows = _ARMS[options.arm[0]](list(read_pairs(train.path / mixed_train_set.TRAIN)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_jsonl(folder / "train.jsonl", rows)
        flags = {"max_steps": options.steps, "max_minutes": None, "seed": options.child, "save_steps": 10_000}
        device = resolve_device(DeviceChoice.CPU)
        resolved = resolve_recipe(
            load_named(PRESETS), {}, preset="cpu_demo", domain=None, environment={}, flags=flags, vram_gb=None
        )
        cache = load_settings().cache_root
        job = prepare_run(resolved, folder / "train.jsonl", folder / "run", device, cache=cache, min_rows=1).job
        set_seed(job.recipe.seed)
        torch.set_flush_denormal(True)
        tokenizer = module.tokenizer_of(job.base_path)
        examples = open_examples(job)
        plan = plan_run(examples.columns, job.recipe)
        progress = without_budget(folder, plan.num_steps)
        trainer = module._trainer(job, tokenizer, examples.train, plan, progress)
        trainer.train()
        losses = {}
        for suite, tasks in _suites(split.path).items():
            texts = [encode(tokenizer, SYSTEM_PROMPT, task.prompt, task.reference) for task in tasks]
            asked = [Example(text.prompt, text.completion) for text in texts]
            losses[suite] = module.validation_loss(trainer, sorted(asked, key=len))
    tokens = int(examples.columns.lengths[plan.batches.all_rows].sum())
    return {"rows": len(rows), "tokens": tokens, "losses": losses}


def _suites(split: Path) -> dict[str, Sequence[Task]]:
    folder = load_settings().benchmark_dir
    return {
        "HumanEval-Vox": benchmark_tasks(load_benchmark(folder / "humaneval_vox"))[::4],
        "benchmark": benchmark_tasks(load_benchmark(folder)),
        "held out": heldout_tasks(read_pairs(split / heldout_split.HELDOUT))[::2],
        "families": family_tasks(read_pairs(split / heldout_split.FAMILIES), _FAMILY_TASKS),
    }


if __name__ == "__main__":
    main()
