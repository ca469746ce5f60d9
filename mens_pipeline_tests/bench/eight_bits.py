"""Measure products in eight bits, their effect on a loss, and the effect of keeping the text after a cursor.

`python -m mens_pipeline_tests.bench.eight_bits RUN FILE.vox ...`

RUN is a run of `mens train` with the prefix first, and each FILE a held-out program. The first table has the time of
the linear layers of Qwen2.5-Coder-0.5B, for several numbers of positions. The second has the loss on the programs. The
third compares the next token while a person types 30 lines of the first program with a fresh reading of the prompt.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - a bench
from transformers import AutoTokenizer, DynamicCache  # noqa: TID253 - a bench

from mens_pipeline.inference.dense_model import EightLinear, PackedLinear, speed_up
from mens_pipeline.inference.engine import Engine, Slot, _Prompt
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.prepare import evaluated_model
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.infill import PREFIX_FIRST, count_after, encode_infill_prompt
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.completion import choose_pauses

if TYPE_CHECKING:
    from collections.abc import Callable

_SHAPES = ((1152, 896), (896, 896), (9728, 896), (896, 4864))
_LAYERS, _COPIES, _TOKENS, _WINDOW = 24, 6, 400, 192


class HalfLinear(torch.nn.Module):  # type: ignore[misc]  # the library is untyped
    """A linear layer with weights in float16."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self._packed = torch.ops.quantized.linear_prepack_fp16(linear.weight.detach(), linear.bias)

    def forward(self, rows: torch.Tensor) -> Any:
        """Multiply rows."""
        return torch.ops.quantized.linear_dynamic_fp16(rows, self._packed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    load_settings()
    with torch.inference_mode():
        compare_layers()
        compare_losses(options.run, options.files)
        compare_kept(options.run, options.files[0])


def compare_layers() -> None:
    """Print the milliseconds of all linear layers, without head and adapter."""
    layers = [torch.nn.Linear(inputs, outputs, bias=False) for outputs, inputs in _SHAPES * _COPIES]
    kinds = {kind.__name__: [kind(layer) for layer in layers] for kind in (PackedLinear, HalfLinear, EightLinear)}
    for num_positions in (1, 7, 32, 49, 1024):
        rows = {width: torch.randn(num_positions, width) for width in (896, 4864)}
        inputs = [rows[layer.in_features] for layer in layers]
        times = {name: _time(held, inputs) * _LAYERS / _COPIES for name, held in kinds.items()}
        print(num_positions, ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in times.items()))


def _time(held: list[Any], inputs: list[torch.Tensor]) -> float:
    seconds = []
    for _ in range(6):
        begin = time.perf_counter()
        for layer, rows in zip(held, inputs, strict=True):
            layer(rows)
        seconds.append(time.perf_counter() - begin)
    return median(seconds[1:])


def compare_losses(run: Path, files: list[Path]) -> None:
    """Print the loss of a token, and how often the likeliest token is that of float32."""
    evaluated = evaluated_model("adapter", Adapter.open(run), resolve_device(DeviceChoice.CPU))
    tokenizer = AutoTokenizer.from_pretrained(evaluated.base_path)
    programs = [torch.tensor([tokenizer.encode(path.read_text(encoding="utf-8"))[:_TOKENS]]) for path in files]
    loads: dict[str, Callable[[Any], Any]] = {
        "transformers": load_evaluated,
        "float32": lambda one: speed_up(load_evaluated(one), in_eight_bits=False),
        "eight bits": lambda one: speed_up(load_evaluated(one), in_eight_bits=True),
    }
    first = None
    for name, load in loads.items():
        model = load(evaluated)
        passes = [model(input_ids=ids, past_key_values=DynamicCache(config=model.config)).logits[0] for ids in programs]
        losses = [
            torch.nn.functional.cross_entropy(logits[:-1].float(), ids[0, 1:], reduction="none")
            for logits, ids in zip(passes, programs, strict=True)
        ]
        likeliest = torch.cat(passes).argmax(-1)
        first = likeliest if first is None else first
        same = (likeliest == first).float().mean()
        print(f"{name}: loss {torch.cat(losses).mean():.4f}, likeliest token the same {same:.3f} of {len(likeliest)}")


def compare_kept(run: Path, file: Path) -> None:
    """Print the KL divergence of the next token from a fresh reading."""
    evaluated = evaluated_model("adapter", Adapter.open(run), resolve_device(DeviceChoice.CPU))
    model = speed_up(load_evaluated(evaluated), in_eight_bits=True)
    tokenizer = AutoTokenizer.from_pretrained(evaluated.base_path)
    pauses = [*choose_pauses(file.read_text(encoding="utf-8"), 30)][:25]
    for name, more in (("all but the last mark", 1), ("without the suffix mark", 0), ("without two tokens more", -2)):
        engine, distances, num_same = Engine[Slot](model, frozenset(), 1), list[float](), 0
        for pause in pauses:
            ids = encode_infill_prompt(tokenizer, pause.prefix, pause.suffix, _WINDOW, PREFIX_FIRST)
            slot = Slot(ids, Sampler(0.0, 1.0, ""), 1, num_after=count_after(tokenizer, ids) + more)
            fresh, prompt = DynamicCache(config=model.config), _Prompt(slot, DynamicCache(config=model.config))
            expected = model(input_ids=torch.tensor([ids]), past_key_values=fresh, logits_to_keep=1).logits[0, -1]
            if (scores := engine._read_typed(prompt)) is None:
                prompt.cache = fresh
            else:
                one, other = expected.log_softmax(-1), scores[0].log_softmax(-1)
                distances.append(float((one.exp() * (one - other)).sum()))
                num_same += int(one.argmax() == other.argmax())
            engine._read_last = prompt
        print(f"{name}: median {median(distances):.4f}, largest {max(distances):.2f}, same {num_same}/{len(distances)}")


if __name__ == "__main__":
    main()
