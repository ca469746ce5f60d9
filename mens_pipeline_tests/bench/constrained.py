"""How many of a thousand constrained completions the parser accepts: all of them, if decoding keeps its promise.

`python -m mens_pipeline_tests.bench.constrained HELDOUT.jsonl [--run RUN] [--samples 1000] [--temperature 0.8]
[--budgets 64,128,256] [-o FAILED.jsonl]`; HELDOUT holds held-out pairs, RUN is a folder of `mens train`. Both shipped
benchmarks are asked as well. Without a run the base answers alone. Exit code 1 if one completion is not accepted.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks, heldout_tasks
from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.dense_model import speed_up
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generate import complete_slots, new_slot, stop_tokens
from mens_pipeline.inference.generation import Decoding, EvaluatedModel, Syntax, is_program
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.prepare import computed_in, evaluated_model
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, find_base_model
from mens_pipeline.settings import PROJECT_ROOT, load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.bench.machine import machine_name

BENCHMARKS: Final = (PROJECT_ROOT / "data" / "heldout_bench", PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox")


class Completion(BaseModel):
    """One completion, as it is written where it is not accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    task: str
    sample: int
    budget: int
    text: str
    stopped: bool
    forced: bool
    accepted: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Draw settings: requests take turns, and so do their token limits, `budgets`."""

    num_samples: int
    budgets: tuple[int, ...]
    temperature: float = 0.8
    seed: int = 1337


def main() -> None:
    options = _options()
    import torch
    from transformers import AutoTokenizer

    torch.set_flush_denormal(True)
    device = resolve_device(DeviceChoice(options.device))
    adapter = Adapter.open(options.run) if options.run is not None else None
    scored = evaluated_model("adapter", adapter, device) if adapter is not None else _base(options.base, device)
    system_prompt = adapter.manifest.system_prompt if adapter is not None else SYSTEM_PROMPT
    model = speed_up(load_evaluated(scored), 32)
    tokenizer = AutoTokenizer.from_pretrained(scored.base_path)
    asked = read_requests(options.heldout, BENCHMARKS)
    drawing = Drawing(options.samples, tuple(map(int, options.budgets.split(","))), options.temperature, options.seed)
    print(machine_name())
    print(f"{len(asked)} requests, {drawing} on {device.name}")
    begin = time.monotonic()
    drawn = draw(model, tokenizer, system_prompt, asked, drawing)
    print(build_table(drawn, time.monotonic() - begin))
    failed = [completion for completion in drawn if not completion.accepted]
    if options.output is not None:
        write_jsonl(options.output, failed)
    sys.exit(1 if failed else 0)


def read_requests(heldout: Path, benchmarks: Sequence[Path]) -> list[Task]:
    """Held-out requests and those of benchmarks, taking turns, so that any number of them is of all kinds."""
    suites = [heldout_tasks(read_pairs(heldout)), *(benchmark_tasks(load_benchmark(folder)) for folder in benchmarks)]
    ranked = [(place / len(tasks), task) for tasks in suites for place, task in enumerate(tasks)]
    return [task for _, task in sorted(ranked, key=lambda pair: pair[0])]


def draw(model: Any, tokenizer: Any, system_prompt: str, asked: Sequence[Task], drawing: Drawing) -> list[Completion]:
    stop = stop_tokens(tokenizer, model)
    planned = list(islice(zip(cycle(asked), cycle(drawing.budgets), strict=False), drawing.num_samples))
    drawn: list[Completion] = []
    for budget in sorted(set(drawing.budgets)):
        decoding = Decoding(
            max_new_tokens=budget,
            num_samples=max(2, drawing.num_samples),
            temperature=drawing.temperature,
            seed=drawing.seed,
            syntax=Syntax.CONSTRAINED,
        )
        tasks = {(task.id, sample): task for sample, (task, most) in enumerate(planned) if most == budget}
        rows = [
            new_slot(
                task.id,
                sample,
                encode_prompt(tokenizer, system_prompt, task.prompt),
                decoding,
                Constraint(tokenizer, stop, task.mode, budget),
            )
            for (_, sample), task in tasks.items()
        ]
        complete_slots(model, rows, stop, decoding.batch_tokens, lambda _row: None)
        drawn += [_completion(row, tasks[row.name, row.sample], budget, tokenizer) for row in rows]
    return drawn


def _completion(row: Slot, task: Task, budget: int, tokenizer: Any) -> Completion:
    text = tokenizer.decode(row.tokens[:-1] if row.stopped else row.tokens, skip_special_tokens=True)
    return Completion(
        source=f"{task.suite}/humaneval_vox" if "/hev_" in task.id else str(task.suite),
        task=task.id,
        sample=row.sample,
        budget=budget,
        text=text,
        stopped=row.stopped,
        forced=row.constraint is not None and row.constraint.is_forced,
        accepted=row.stopped and is_program(text, task.mode),
    )


def build_table(drawn: Sequence[Completion], seconds: float) -> str:
    lines = []
    for name in ("source", "budget"):
        every = Counter(getattr(completion, name) for completion in drawn)
        good = Counter(getattr(completion, name) for completion in drawn if completion.accepted)
        lines += [f"{name} {part}: {good[part]}/{count} accepted" for part, count in sorted(every.items())]
    num_accepted, num_forced = (sum(getattr(c, name) for c in drawn) for name in ("accepted", "forced"))
    lines.append(f"{num_accepted}/{len(drawn)} accepted, {num_forced} ended by the shortest way, {seconds:.0f} s")
    return "\n".join(lines)


def _base(name: str, device: Device) -> EvaluatedModel:
    base = find_base_model(name, None, load_settings().cache_root / "base_models")
    dtype = computed_in(device)
    return EvaluatedModel(
        base_path=base.path,
        adapter_path=None,
        quantization="none",
        double_quant=False,
        trained_in=dtype,
        device=device.kind,
        compute_dtype=dtype,
    )


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("heldout", type=Path)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--base", default=DEFAULT_CPU_MODEL)
    parser.add_argument("--device", default="best")
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--budgets", default="64,128,256")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("-o", "--output", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
