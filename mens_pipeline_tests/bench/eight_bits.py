"""Speed and rounding of products in eight bits.

`python -m mens_pipeline_tests.bench.eight_bits BASE` times all linear layers of Qwen2.5-Coder-0.5B, in float32, with
weights in float16 and in eight bits (`ONEDNN_MAX_CPU_ISA=AVX512_CORE` and `AVX2` hide instructions), and compares the
logits of a base, on programs, with those of its linear layers in eight bits. The last word of its lines is the way:
rows, or rows and so many columns in float32, which are the largest ones of other programs.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch  # noqa: TID253 - a bench of it
from torch.nn.functional import cross_entropy  # noqa: TID253 - likewise
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: TID253 - likewise

from mens_pipeline.models.eight_bits import EightBits, round_rows
from mens_pipeline_tests.bench.machine import machine_name

_LAYERS = ((896, 1152, 1), (896, 896, 1), (896, 4864, 2), (4864, 896, 1))  # inputs, outputs, how often in a block
_BLOCKS = 24


def time_products() -> None:
    """Print milliseconds of all blocks for some numbers of positions."""
    for positions in (1, 8, 49, 400):
        total = dict.fromkeys(("float32", "float16", "eight bits"), 0.0)
        for num_inputs, num_outputs, often in _LAYERS:
            rows, weight = torch.randn(positions, num_inputs), torch.randn(num_outputs, num_inputs)
            half, eight = torch.ops.quantized.linear_prepack_fp16(weight, None), EightBits(weight)
            ways: dict[str, Callable[[], Any]] = {
                "float32": partial(torch.matmul, rows, weight.t()),
                "float16": partial(torch.ops.quantized.linear_dynamic_fp16, rows, half),
                "eight bits": partial(_multiply, eight, rows),
            }
            for name, way in ways.items():
                total[name] += often * _BLOCKS * _seconds(way)
        print(positions, {name: f"{1000 * seconds:.0f} ms" for name, seconds in total.items()})


def _multiply(weight: EightBits, rows: torch.Tensor) -> torch.Tensor:
    return weight.multiply(round_rows(rows))


def _seconds(way: Callable[[], Any]) -> float:
    times = []
    for _ in range(14):
        begin = time.perf_counter()
        way()
        times.append(time.perf_counter() - begin)
    return median(times[2:])


def compare_logits(base: str) -> None:
    """Print losses, changed likeliest tokens and the distance of the logits."""
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base).float().eval()
    paths = sorted(Path("data/golden").rglob("*.vox"))
    shown, others = ([tokenizer(p.read_text()).input_ids[:256] for p in some] for some in (paths[::60], paths[30::60]))
    layers = {
        name: each for name, each in model.named_modules() if type(each) is torch.nn.Linear and "head" not in name
    }
    largest: dict[str, torch.Tensor] = {}
    with ExitStack() as hooks, torch.no_grad():
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_pre_hook(_note(largest, name)).remove)
        for ids in others[:4]:
            model(torch.tensor([ids]))
    expected = _logits(model, shown)
    print("float32", f"{_loss(expected, shown):.4f}")
    for num_columns in (0, 4, 16, 64):
        with _rounded(layers, largest, num_columns):
            found = _logits(model, shown)
        both = torch.cat(found), torch.cat(expected)
        changed = (both[0].argmax(-1) != both[1].argmax(-1)).float().mean()
        off = (both[0] - both[1]).norm() / both[1].norm()
        print(f"{_loss(found, shown):.4f}, {changed:.1%} of the likeliest tokens, logits {off:.1%} off", num_columns)


def _note(largest: dict[str, torch.Tensor], name: str) -> Any:
    def note(_layer: Any, given: Any) -> None:
        found = given[0].flatten(0, -2).abs().amax(0)
        largest[name] = torch.maximum(largest.get(name, found), found)

    return note


@contextmanager
def _rounded(layers: dict[str, Any], largest: dict[str, torch.Tensor], num_columns: int) -> Iterator[None]:
    """Multiply in eight bits within the block, but for some columns."""
    with ExitStack() as ends:
        for name, layer in layers.items():
            columns = largest[name].topk(num_columns).indices
            rest = layer.weight.detach().clone()
            rest[:, columns] = 0

            def forward(
                rows: torch.Tensor,
                layer: Any = layer,
                columns: torch.Tensor = columns,
                rest: EightBits = EightBits(rest),  # noqa: B008 - of this layer
            ) -> torch.Tensor:
                flat = rows.flatten(0, -2)
                few = flat.index_fill(1, columns, 0)
                product = rest.multiply(round_rows(few)) + flat[:, columns] @ layer.weight[:, columns].t()
                return (product if layer.bias is None else product + layer.bias).view(*rows.shape[:-1], -1)

            layer.forward = forward
            ends.callback(delattr, layer, "forward")
        yield


def _logits(model: Any, texts: list[list[int]]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0] for ids in texts]


def _loss(logits: list[torch.Tensor], texts: list[list[int]]) -> float:
    wanted = torch.cat([torch.tensor(ids[1:]) for ids in texts])
    return float(cross_entropy(torch.cat([each[:-1] for each in logits]), wanted))


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(machine_name())
    time_products()
    compare_logits(sys.argv[1])
