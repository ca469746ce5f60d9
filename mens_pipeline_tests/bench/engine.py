"""Check that the engine writes the same tokens as the plain loop of `transformers`.

`python -m mens_pipeline_tests.bench.engine [--model FOLDER]`; without a folder it uses tiny models with full, linear
and sliding-window attention.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from mens_pipeline.inference.engine import Engine, Slot
from mens_pipeline.inference.sampling import Sampler

_PROMPT_LENGTHS: Final = (40, 6, 41, 1, 23, 9)
_SIZES: Final = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
_TINY: Final[dict[str, dict[str, Any]]] = {
    "llama": {"num_key_value_heads": 2},
    "qwen3_5_text": {"num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    "gemma3_text": {"head_dim": 16, "sliding_window": 12},
}
"""Type of a model -> fields of its configuration besides the common sizes."""


def main() -> None:
    """Compare the engine with the plain loop of `transformers`; exit with 1 if completions differ."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", help="folder of a model; by default tiny models with random weights")
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    models = (
        {options.model: AutoModelForCausalLM.from_pretrained(options.model).eval()}
        if options.model
        else {kind: tiny_model(kind) for kind in _TINY}
    )
    num_different = 0
    for name, model in models.items():
        prompts = random_prompts(model)
        begin = time.perf_counter()
        ours = complete_staggered(model, prompts, options.tokens)
        middle = time.perf_counter()
        plain = [complete_plainly(model, prompt, options.tokens) for prompt in prompts]
        together = complete_staggered(model, prompts, options.tokens, is_together=True)
        num_same = sum(one == two == three for one, two, three in zip(ours, plain, together, strict=True))
        num_different += len(prompts) - num_same
        rates = [len(prompts) * options.tokens / seconds for seconds in (middle - begin, time.perf_counter() - middle)]
        line = f"{name}: {num_same}/{len(prompts)} the same; {rates[0]:.0f} tokens/s, one by one {rates[1]:.0f}"
        print(line)
    sys.exit(1 if num_different else 0)


def tiny_model(kind: str) -> Any:
    """Return a model with fixed random weights, large enough for the next token to depend on the prompt."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **_SIZES, num_attention_heads=4, initializer_range=0.2, **_TINY[kind])
    return AutoModelForCausalLM.from_config(config).eval()


def random_prompts(model: Any) -> list[tuple[int, ...]]:
    """Return prompts of different lengths; some begin alike."""
    import torch

    generator = torch.Generator().manual_seed(0)
    longest = torch.randint(model.config.get_text_config().vocab_size, (max(_PROMPT_LENGTHS),), generator=generator)
    return [tuple(longest[length // 2 if length % 2 else 0 :][:length].tolist()) for length in _PROMPT_LENGTHS]


def complete_staggered(
    model: Any, prompts: Sequence[tuple[int, ...]], num_tokens: int, *, is_together: bool = False
) -> list[list[int]]:
    """Return greedy completions by the engine; each starts two steps after the previous one.

    With `is_together`, up to three start at once, and the engine reads their prompts as one batch.
    """
    slots = [Slot(prompt, Sampler(0.0, 1.0, ""), num_tokens) for prompt in prompts]
    piece, num_read = (None, 3) if is_together else (8, 1)
    engine, waiting = Engine[Slot](model, frozenset(), 3, piece=piece, num_read=num_read), deque(slots)
    num_steps = 0
    while waiting or engine.slots:
        while waiting and engine.has_room and num_steps % 2 == 0:
            engine.admit(waiting.popleft())
            if not is_together:
                break
        engine.step()
        num_steps += 1
    return [slot.tokens for slot in slots]


def complete_plainly(model: Any, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    """Return a greedy completion by the loop of `transformers`."""
    import torch

    ids = torch.tensor([prompt], device=model.device)
    written = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_tokens, do_sample=False, eos_token_id=-1
    )
    tokens: list[int] = written[0, ids.shape[1] :].tolist()
    return tokens


if __name__ == "__main__":
    main()
