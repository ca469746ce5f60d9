"""Answers of a model, many at once. For a generation process alone.

A row leaves its batch as soon as it has ended, and draws its tokens from a generator of its own: what a model answers
to a request does not depend on what else is asked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mens_pipeline.evaluation.generation import Decoding
from mens_pipeline.evaluation.kv_cache import reserved_cache, without
from mens_pipeline.evaluation.sampling import Sampler


@dataclass
class Row:
    """One answer in the making.

    Attributes:
        name: What it answers.
        sample: Which of the answers to it, from 0.
        prompt: The ids that are given.
        tokens: The ids written so far.
        stopped: Whether the end of the turn was written.
    """

    name: str
    sample: int
    prompt: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The ids that steer decoding.

    Attributes:
        stop: Any of them ends the turn.
        pad: Fills a batch on the left.
    """

    stop: frozenset[int]
    pad: int


def decode(
    model: Any, rows: Sequence[Row], vocabulary: Vocabulary, decoding: Decoding, done: Callable[[Row], None]
) -> None:
    """Write all answers; long requests first, so that memory is at its highest at once.

    Args:
        model: A causal language model in evaluation mode.
        rows: What is answered; their tokens are filled in.
        vocabulary: The ids that steer decoding.
        decoding: How tokens are drawn, and how many.
        done: Takes each row when its answer has ended.
    """
    ordered = sorted(rows, key=lambda row: (-len(row.prompt), row.name, row.sample))
    with torch.inference_mode():
        for batch in _batches(ordered, decoding):
            _decode_batch(model, batch, vocabulary, decoding, done)


def _batches(rows: Sequence[Row], decoding: Decoding) -> Iterator[list[Row]]:
    start = 0
    while start < len(rows):
        size = max(1, decoding.batch_tokens // (len(rows[start].prompt) + decoding.max_new_tokens))
        yield list(rows[start : start + size])
        start += size


def _decode_batch(
    model: Any, rows: list[Row], vocabulary: Vocabulary, decoding: Decoding, done: Callable[[Row], None]
) -> None:
    width = max(len(row.prompt) for row in rows)
    padded = [[vocabulary.pad] * (width - len(row.prompt)) + list(row.prompt) for row in rows]
    ids = torch.tensor(padded, device=model.device)
    lengths = torch.tensor([[len(row.prompt)] for row in rows], device=model.device)
    mask = (torch.arange(width, device=model.device) >= width - lengths).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    samplers = [_sampler(row, decoding) for row in rows]
    cache = reserved_cache(model.config.get_text_config(), width + decoding.max_new_tokens)
    while rows:
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        scores = output.logits[:, -1].float()
        chosen = [sampler.choose(row_scores) for sampler, row_scores in zip(samplers, scores, strict=True)]
        for row, token in zip(rows, chosen, strict=True):
            row.tokens.append(token)
            row.stopped = token in vocabulary.stop
        gone = [n for n, row in enumerate(rows) if row.stopped or len(row.tokens) >= decoding.max_new_tokens]
        for n in gone:
            done(rows[n])
        if gone:
            going = without(len(rows), gone)
            kept = torch.tensor(going, device=model.device, dtype=torch.long)
            cache.reorder_cache(kept)  # the one selection that layers of linear attention know as well
            mask, positions = mask[kept], positions[kept]
            rows, samplers = [rows[n] for n in going], [samplers[n] for n in going]
        ids = torch.tensor([[row.tokens[-1]] for row in rows], device=model.device)
        positions = positions[:, -1:] + 1
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)


def _sampler(row: Row, decoding: Decoding) -> Sampler:
    return Sampler(decoding.temperature, decoding.top_p, f"{decoding.seed}:{row.name}:{row.sample}")
