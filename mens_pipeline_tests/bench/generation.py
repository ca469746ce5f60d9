"""Compare generation with a plain four-bit `generate`, in tokens/s: same model, prompts and device, greedy.

It also measures the cost of constraining: the same requests again, constrained by the parser, `--batch` at a time. The
constraint should take at most 5 % of the time.

Run it as `python -m mens_pipeline_tests.bench.generation HELDOUT.jsonl [--run RUN] [--device cuda] [--batch 32]`;
HELDOUT holds held-out pairs, RUN is a folder of `mens train`. Without a run it measures the base alone. `--steering`
skips the plain `generate`, which takes longest; `--free` skips the constrained run, for models with random weights.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest.mock import patch

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.dense_model import speed_up
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generate import complete_slots, new_slot, stop_tokens
from mens_pipeline.inference.generation import Decoding, EvaluatedModel
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.language import Mode
from mens_pipeline.models.adapter import ADAPTER
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, find_base_model
from mens_pipeline.settings import load_settings
from mens_pipeline.training.qlora import load_base
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.bench.machine import machine_name, peak_of_products
from mens_pipeline_tests.bench.ratios import note

_MOST_SHARE: Final = 0.05
"""Maximum share of the time that the constraint may take."""
_MOST_PLAIN: Final = 24
"""Maximum number of requests for the plain `generate`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one way of generating: token ids of each completion, in order of prompts; seconds exclude loading.

    `choosing` are the seconds of each choice of a token, if measured; `gflop` counts the products with weights for
    written tokens only.
    """

    completions: list[list[int]]
    seconds: float
    choosing: tuple[float, ...] = ()
    gflop: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return sum(map(len, self.completions)) / self.seconds

    def steering_share(self, free: "Outcome") -> float:
        """Return the share of the time for the constraint: choosing tokens, minus the time of free choices."""
        each = sum(free.choosing) / len(free.choosing)
        return max(0.0, sum(self.choosing) - each * len(self.choosing)) / self.seconds


def main() -> None:
    options = _options()
    import torch

    torch.set_flush_denormal(True)
    print(machine_name())
    for base in options.base:
        print(f"\n{base}")
        _measure(options, base)


def _measure(options: Any, name: str) -> None:
    from transformers import AutoTokenizer

    base = find_base_model(name, None, load_settings().cache_root / "base_models")
    device = resolve_device(DeviceChoice(options.device))
    adapter = options.run / ADAPTER if options.run is not None else None
    tokenizer = AutoTokenizer.from_pretrained(base.path)
    requests = [pair.prompt for pair in read_pairs(options.heldout)][: options.prompts]
    prompts = [encode_prompt(tokenizer, SYSTEM_PROMPT, request) for request in requests]
    print(f"{len(prompts)} requests, at most {options.max_new_tokens} tokens each, greedy, on {device.name}")
    dtype = "bfloat16" if device.kind == "cuda" else "float32"
    shared = (base.path, adapter, prompts, options.max_new_tokens, device.kind, dtype, tokenizer)
    limit = peak_of_products(device.kind)[dtype]
    ours = _ours(*shared, batch=options.batch)
    share = ours.gflop / ours.seconds / limit
    print(f"dense, packed, {options.batch} at a time, rows leave when done: {ours.rate:.1f} tokens/s")
    print(f"written tokens alone: {share:.1%} of the peak of products in {dtype}, {limit:.0f} GFLOP/s")
    note("generation, of the peak of matrix products", share)
    if not options.steering:
        few = prompts[:_MOST_PLAIN]
        plain = _plain(base.path, adapter, few, options.max_new_tokens, device.kind, dtype, tokenizer)
        same = sum(a == b for a, b in zip(plain.completions, ours.completions, strict=False))
        print(
            f"plain four-bit generate, one by one: {plain.rate:.1f} tokens/s, ours {ours.rate / plain.rate:.1f} times"
        )
        note("generation, beside plain four-bit generate", ours.rate / plain.rate)
        print(f"the same answer, token by token: {same}/{len(few)}")
    if options.free:
        return
    steered = _ours(*shared, batch=options.batch, is_constrained=True)
    note("generation, constrained beside free", steered.rate / ours.rate)
    print("\n".join(steering_lines(ours, steered, options.batch)))


def steering_lines(free: Outcome, steered: Outcome, batch: int) -> tuple[str, str, str]:
    """Format the cost of constraining completions by the parser."""
    in_order = sorted(1000 * seconds for seconds in steered.choosing)
    share = steered.steering_share(free)
    verdict = "at most" if share <= _MOST_SHARE else "more than"
    return (
        f"the same, constrained by the parser: {steered.rate:.1f} tokens/s",
        f"the constraint takes {100 * share:.1f} % of its time at batch {batch}: {verdict} {100 * _MOST_SHARE:g} %",
        f"a token of it: median {median(in_order):.2f} ms, p99 {in_order[int(0.99 * len(in_order))]:.2f} ms",
    )


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("heldout", type=Path)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--base", nargs="+", default=[DEFAULT_CPU_MODEL], help="names or folders, one after another")
    parser.add_argument("--device", default="best")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--steering", action="store_true")
    parser.add_argument("--free", action="store_true")
    return parser.parse_args()


def _plain(  # noqa: PLR0913, PLR0917 - all that both ways share
    base: Path, adapter: Path | None, prompts: list[Any], limit: int, device: str, dtype: str, tokenizer: Any
) -> Outcome:
    """Generate in the obvious way: the model as it was trained, one request after the other."""
    import torch
    from peft import PeftModel

    model: Any = load_base(base, Recipe(bnb_4bit_compute_dtype="auto"), device, getattr(torch, dtype))
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    # Training mode, without dropout: otherwise bitsandbytes computes in bfloat16 on some CPUs, and rounds.
    model.train()
    stop = sorted(stop_tokens(tokenizer, model))
    completions = []
    begin = time.monotonic()
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt], device=model.device)
            output = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                do_sample=False,
                eos_token_id=stop,
                pad_token_id=stop[0],
            )
            completions.append(output[0, ids.shape[1] :].tolist())
    return Outcome(completions, time.monotonic() - begin)


def _ours(  # noqa: PLR0913, PLR0917 - all that both ways share
    base: Path,
    adapter: Path | None,
    prompts: list[Any],
    limit: int,
    device: str,
    dtype: str,
    tokenizer: Any,
    *,
    batch: int,
    is_constrained: bool = False,
) -> Outcome:
    import torch

    # Room for `batch` rows at a time, each as long as the longest.
    decoding = Decoding(max_new_tokens=limit, batch_tokens=max(256, batch * (max(map(len, prompts)) + limit)))
    evaluated = EvaluatedModel(
        base_path=base,
        adapter_path=adapter,
        quantization="nf4",
        double_quant=True,
        trained_in=dtype,
        device=device,
        compute_dtype=dtype,
    )
    model = load_evaluated(evaluated)
    num_weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))
    model = speed_up(model, in_eight_bits=False)
    stop = stop_tokens(tokenizer, model)

    def constraint() -> Constraint | None:
        return Constraint(tokenizer, stop, Mode.SOURCE, limit) if is_constrained else None

    rows = [new_slot(str(number), 0, prompt, decoding, constraint()) for number, prompt in enumerate(prompts)]
    choosing: list[float] = []
    begin = time.monotonic()
    with (
        patch.object(Sampler, "choose_each", _time_choices(Sampler.choose_each, choosing)),
        patch.object(Slot, "choose", _time_choice(Slot.choose, choosing)),
    ):
        complete_slots(model, rows, stop, decoding.batch_tokens, lambda _row: None)
    seconds = time.monotonic() - begin
    gflop = 2 * num_weights * sum(len(row.tokens) for row in rows) / 1e9
    return Outcome([row.tokens for row in rows], seconds, tuple(choosing), gflop)


def _time_choices(choose_each: Callable[..., list[int]], seconds: list[float]) -> Callable[..., list[int]]:
    def time_one(samplers: Sequence[Sampler], scores: Any) -> list[int]:
        begin = _synchronize(scores)
        tokens = choose_each(samplers, scores)
        seconds.extend([(time.perf_counter() - begin) / len(tokens)] * len(tokens))
        return tokens

    return time_one


def _time_choice(choose: Callable[[Slot, Any], int], seconds: list[float]) -> Callable[[Slot, Any], int]:
    def time_one(slot: Slot, scores: Any) -> int:
        begin = time.perf_counter()
        token = choose(slot, scores)
        seconds.append(time.perf_counter() - begin)
        return token

    return time_one


def _synchronize(scores: Any) -> float:
    """Wait for the scores and return the time; otherwise the first choice of a step would include the model's time."""
    import torch

    if scores.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
