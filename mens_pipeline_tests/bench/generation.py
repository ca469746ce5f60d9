"""Tokens a second of generation, ours beside a plain four-bit `generate`: same model, prompts, device, greedy.

And what it costs to let the parser steer: the same requests once more, constrained.

Run it as `python -m mens_pipeline_tests.bench.generation HELDOUT.jsonl [--run RUN] [--device cuda]`; HELDOUT holds
held-out pairs, RUN is a folder of `mens train`. Without a run the base answers alone.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from mens_pipeline.corpus.jsonl import read_pairs
from mens_pipeline.evaluation.constraint import Constraint
from mens_pipeline.evaluation.decode import Row, decode
from mens_pipeline.evaluation.generate import vocabulary_of
from mens_pipeline.evaluation.generation import Decoding, GenerationJob
from mens_pipeline.evaluation.model import load_judged
from mens_pipeline.evaluation.packed_linear import pack_linear
from mens_pipeline.evaluation.sampling import Sampler
from mens_pipeline.language import Mode
from mens_pipeline.language.requests import SYSTEM_PROMPT
from mens_pipeline.settings import load_settings
from mens_pipeline.training.base_model import find_base_model
from mens_pipeline.training.chat import encode_prompt
from mens_pipeline.training.devices import DeviceChoice, resolve_device
from mens_pipeline.training.job import ADAPTER
from mens_pipeline.training.qlora import load_base
from mens_pipeline.training.recipe import DEFAULT_CPU_MODEL, Recipe
from mens_pipeline_tests.bench.machine import machine_name


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way of generating gave.

    Attributes:
        answers: Ids of each answer, in the order of the prompts.
        seconds: Without loading.
        steering: Seconds that the parser took for each token; empty where it had no say.
    """

    answers: list[list[int]]
    seconds: float
    steering: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return sum(map(len, self.answers)) / self.seconds


def main() -> None:
    """Measure both ways and print their ratio and their agreement."""
    options = _options()
    import torch
    from transformers import AutoTokenizer

    torch.set_flush_denormal(True)
    base = find_base_model(options.base, None, load_settings().cache_root / "base_models")
    device = resolve_device(DeviceChoice(options.device))
    adapter = options.run / ADAPTER if options.run is not None else None
    tokenizer = AutoTokenizer.from_pretrained(base.path)
    requests = [pair.prompt for pair in read_pairs(options.heldout)][: options.prompts]
    prompts = [encode_prompt(tokenizer, SYSTEM_PROMPT, request) for request in requests]
    print(machine_name())
    print(f"{len(prompts)} requests, at most {options.max_new_tokens} tokens each, greedy, on {device.name}")
    dtype = "bfloat16" if device.kind == "cuda" else "float32"
    plain = _plain(base.path, adapter, prompts, options.max_new_tokens, device.kind, dtype, tokenizer)
    print(f"plain four-bit generate, one by one: {plain.rate:.1f} tokens/s")
    ours = _ours(base.path, adapter, prompts, options.max_new_tokens, device.kind, dtype, tokenizer)
    same = sum(a == b for a, b in zip(plain.answers, ours.answers, strict=True))
    print(f"dense, packed, batched, rows leave when done: {ours.rate:.1f} tokens/s, {ours.rate / plain.rate:.1f} times")
    print(f"the same answer, token by token: {same}/{len(prompts)}")
    steered = _ours(
        base.path, adapter, prompts, options.max_new_tokens, device.kind, dtype, tokenizer, is_constrained=True
    )
    in_order = sorted(1000 * seconds for seconds in steered.steering)
    share = sum(steered.steering) / steered.seconds
    print(f"the same, constrained by the parser: {steered.rate:.1f} tokens/s, {100 * share:.1f} % of the time its own")
    print(f"a token of it: median {median(in_order):.2f} ms, p99 {in_order[int(0.99 * len(in_order))]:.2f} ms")


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("heldout", type=Path)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--base", default=DEFAULT_CPU_MODEL)
    parser.add_argument("--device", default="best")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    return parser.parse_args()


def _plain(  # noqa: PLR0913, PLR0917 - all that both ways share
    base: Path, adapter: Path | None, prompts: list[Any], limit: int, device: str, dtype: str, tokenizer: Any
) -> Outcome:
    """What one writes without a thought: the model as it was trained, one request after the other."""
    import torch
    from peft import PeftModel

    model: Any = load_base(base, Recipe(bnb_4bit_compute_dtype="auto"), device, getattr(torch, dtype))
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    # Training mode, without dropout: bitsandbytes computes in bfloat16 on some CPUs otherwise, and rounds.
    model.train()
    end = vocabulary_of(tokenizer, model)
    answers = []
    begin = time.monotonic()
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt], device=model.device)
            output = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                do_sample=False,
                eos_token_id=sorted(end.stop),
                pad_token_id=end.pad,
            )
            answers.append(output[0, ids.shape[1] :].tolist())
    return Outcome(answers, time.monotonic() - begin)


class _Timed(Constraint):
    """A constraint that measures what it takes."""

    def __init__(self, seconds: list[float], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seconds = seconds

    def choose(self, scores: Any, sampler: Sampler) -> int:
        begin = time.perf_counter()
        token = super().choose(scores, sampler)
        self._seconds.append(time.perf_counter() - begin)
        return token


def _ours(  # noqa: PLR0913, PLR0917 - all that both ways share
    base: Path,
    adapter: Path | None,
    prompts: list[Any],
    limit: int,
    device: str,
    dtype: str,
    tokenizer: Any,
    *,
    is_constrained: bool = False,
) -> Outcome:
    decoding = Decoding(max_new_tokens=limit)
    with tempfile.TemporaryDirectory() as folder:
        job = GenerationJob(
            base_path=base,
            adapter_path=adapter,
            quantization="nf4",
            double_quant=True,
            trained_in=dtype,
            device=device,
            compute_dtype=dtype,
            system_prompt=SYSTEM_PROMPT,
            decoding=decoding,
            requests=(),
            run_dir=Path(folder),
            lock_path=Path(folder) / "lock",
        )
        model = load_judged(job)
    pack_linear(model)
    vocabulary = vocabulary_of(tokenizer, model)
    steering: list[float] = []

    def constraint() -> Constraint | None:
        return _Timed(steering, tokenizer, vocabulary.stop, Mode.SOURCE, limit) if is_constrained else None

    rows = [Row(str(number), 0, prompt, constraint=constraint()) for number, prompt in enumerate(prompts)]
    begin = time.monotonic()
    decode(model, rows, vocabulary, decoding, lambda _row: None)
    return Outcome([row.tokens for row in rows], time.monotonic() - begin, tuple(steering))


if __name__ == "__main__":
    main()
