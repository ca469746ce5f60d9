"""Measure the mean loss per token on rows outside training, to compare recipes before anything is generated.

`python -m mens_pipeline_tests.bench.losses RUN --data DIR [--every N] [-o LOSSES.json] [--than LOSSES.json]`

RUN is a run of `mens train`, DIR holds its `train.jsonl` and `heldout.jsonl`. The rows are held-out pairs with and
without hidden tests, every second line at a cursor, and every second solution of HumanEval-Vox, up to 512 tokens.
`--than` compares with the losses of another run on the same rows, with an interval of the mean difference over rows.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.infill import find_holes, infill_decoding
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.inference.dense_model import speed_up
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.prepare import completion_fits, evaluated_model
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import Encoded, encode
from mens_pipeline.models.infill import encode_infill
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.machine import machine_name

_LONGEST: Final = 512
_HUMANEVAL: Final = Path("data/heldout_bench/humaneval_vox")


class Loss(NamedTuple):
    """Negative log-likelihood of the tokens of a completion, in nats, and their number."""

    nats: float
    num_tokens: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, default=Path("build"))
    parser.add_argument("--every", type=int, default=1, help="read every N-th row")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--than", type=Path, help="the output file of another run")
    options = parser.parse_args()
    load_settings()  # registers the cache, to find a base recorded on another machine
    adapter = Adapter.open(options.run)
    rows = [*_rows(adapter, options.data)][:: options.every]
    found = _losses(adapter, rows)
    print(machine_name(), options.run.name, sep=", ")
    others = json.loads(options.than.read_text(encoding="utf-8")) if options.than is not None else {}
    for kind, losses in found.items():
        print(_line(kind, losses, [Loss(*one) for one in others.get(kind, ())]))
    if options.output is not None:
        options.output.write_text(json.dumps(found), encoding="utf-8")


def _rows(adapter: Adapter, data: Path) -> Iterator[tuple[str, Encoded]]:
    manifest = adapter.manifest
    tokenizer = FileTokenizer(evaluated_model("adapter", adapter, resolve_device(DeviceChoice.CPU)).base_path)

    def encode_whole(kind: str, prompt: str, response: str) -> Iterator[tuple[str, Encoded]]:
        row = encode(tokenizer, manifest.system_prompt, prompt, response)
        if len(row.prompt) + len(row.completion) <= _LONGEST:
            yield kind, row

    for pair in read_pairs(data / "heldout.jsonl"):
        if pair.task_family == "vox_codegen":
            yield from encode_whole("tested" if pair.tests else "untested", pair.prompt, pair.response)
    config = EvaluationConfig(infill_holes=500, infill_lines=1)
    fits = completion_fits(manifest.base_model, infill_decoding(config))
    suite = find_holes(data / "heldout.jsonl", data / "train.jsonl", manifest, config, fits)
    assert suite is not None, "the run was shown holes"
    for hole in [hole for hole in suite.tasks if hole.kind == "line"][::2]:
        request = hole.request(suite.window, is_prefix_alone=False)
        prefix, suffix = request.view or (request.prompt, request.suffix or "")
        yield "line", encode_infill(tokenizer, prefix, suffix, hole.middle, suite.window, manifest.infill_order)
    for task in benchmark_tasks(load_benchmark(_HUMANEVAL))[::2]:
        yield from encode_whole("humaneval", task.prompt, task.reference)


def _losses(adapter: Adapter, rows: list[tuple[str, Encoded]]) -> dict[str, list[Loss]]:
    import torch
    from transformers import DynamicCache

    evaluated = evaluated_model("adapter", adapter, resolve_device(DeviceChoice.CPU))
    model = speed_up(load_evaluated(evaluated), in_eight_bits=evaluated.in_eight_bits)
    found: defaultdict[str, list[Loss]] = defaultdict(list)
    for kind, row in rows:
        ids, num = torch.tensor([[*row.prompt, *row.completion]]), len(row.completion)
        with torch.inference_mode():
            cache = DynamicCache(config=model.config)
            logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=num + 1).logits[0, :-1]
        found[kind].append(Loss(float(torch.nn.functional.cross_entropy(logits, ids[0, -num:], reduction="sum")), num))
    return found


def _line(kind: str, losses: list[Loss], others: list[Loss]) -> str:
    num = sum(loss.num_tokens for loss in losses)
    mean = sum(loss.nats for loss in losses) / num
    text = f"{kind:<10} {mean:.4f} ({len(losses)} rows, {num} tokens)"
    if [one.num_tokens for one in others] != [one.num_tokens for one in losses]:
        return text
    difference = sum(loss.nats - other.nats for loss, other in zip(losses, others, strict=True)) / num
    off = (loss.nats - other.nats - difference * loss.num_tokens for loss, other in zip(losses, others, strict=True))
    return f"{text}, {difference:+.4f} +- {1.96 * math.sqrt(sum(one**2 for one in off)) / num:.4f}"


if __name__ == "__main__":
    main()
