"""Answers of a model, many at once. For a generation process alone.

A row leaves as soon as it has ended, and the next one takes its place; each draws its tokens from a generator of its
own: what a model answers to a request does not depend on what else is asked.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.kv_cache import Slots, reserved_cache, sees_everything, state_positions, without
from mens_pipeline.inference.sampling import Sampler, log_probability


@dataclass
class Row:
    """One answer in the making.

    Attributes:
        name: What it answers.
        sample: Which of the answers to it, from 0.
        stopped: Whether the end of the turn was written.
        constraint: What the answer may become; None for anything.
        log_probability: Of all tokens together; None where it is not asked for.
    """

    name: str
    sample: int
    prompt: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    stopped: bool = False
    constraint: Constraint | None = None
    log_probability: float | None = None

    def choose(self, scores: torch.Tensor, sampler: Sampler) -> int:
        """Choose the next token: any, or one that the program may go on with."""
        return sampler.choose(scores) if self.constraint is None else self.constraint.choose(scores, sampler)


def _choose(rows: Sequence[Row], samplers: Sequence[Sampler], scores: torch.Tensor) -> list[int]:
    """Return the next token of each row; together where none is constrained, which takes one look at the device."""
    if all(row.constraint is None for row in rows):
        tokens = Sampler.choose_each(samplers, scores)
    else:
        tokens = [row.choose(*drawn) for row, *drawn in zip(rows, scores, samplers, strict=True)]
    for row, row_scores, token in zip(rows, scores, tokens, strict=True):
        if row.log_probability is not None:
            row.log_probability += log_probability(row_scores, token)
    return tokens


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The ids that steer decoding: any of `stop` ends the turn, `pad` fills a batch on the left."""

    stop: frozenset[int]
    pad: int


def decode(
    model: Any, rows: Sequence[Row], vocabulary: Vocabulary, decoding: Decoding, done: Callable[[Row], None]
) -> None:
    """Write all answers into their rows; long requests first, so that memory is at its highest at once.

    The model is in evaluation mode; `done` takes each row when its answer has ended.
    """
    ordered = sorted(rows, key=lambda row: (-len(row.prompt), row.name, row.sample))
    config = model.config.get_text_config()
    with torch.inference_mode():
        if not sees_everything(config):
            for batch in _batches(ordered, decoding, state_positions(model) if rows else 0):
                _decode_batch(model, batch, vocabulary, decoding, done)
        elif rows:
            for band in _bands(ordered, decoding):
                _decode_band(model, band, vocabulary, decoding, done)


def _bands(rows: Sequence[Row], decoding: Decoding) -> Iterator[list[Row]]:
    """Yield rows of like length: each row of a band fills at least half of the room that its longest row reserves."""
    band: list[Row] = []
    for row in rows:
        if band and 2 * (len(row.prompt) + decoding.max_new_tokens) < len(band[0].prompt) + decoding.max_new_tokens:
            yield band
            band = []
        band.append(row)
    yield band


def _decode_band(
    model: Any, rows: Sequence[Row], vocabulary: Vocabulary, decoding: Decoding, done: Callable[[Row], None]
) -> None:
    """Answer rows, as many at a time as fit; the place of one that ends is filled at once."""
    num_positions = len(rows[0].prompt) + decoding.max_new_tokens
    num_rows = max(1, decoding.batch_tokens // num_positions)
    slots = Slots(model.config.get_text_config(), num_positions, num_rows, model.device)
    prompts, waiting = _PromptReader(model), deque(rows)
    going: list[tuple[Row, Sampler]] = []

    def takes(row: Row, token: int) -> bool:
        """Write the next token of a row; whether it goes on."""
        row.tokens.append(token)
        row.stopped = row.tokens[-1] in vocabulary.stop
        if row.stopped or len(row.tokens) >= decoding.max_new_tokens:
            done(row)
            return False
        return True

    while waiting or going:
        while waiting and len(going) < num_rows:
            row, sampler = waiting[0], _sampler(waiting.popleft(), decoding)
            (token,) = _choose([row], [sampler], prompts.read(row.prompt)[None])
            if takes(row, token):
                slots.add(prompts.cache)
                going.append((row, sampler))
        if not going:
            continue
        output = model(
            input_ids=torch.tensor([[row.tokens[-1]] for row, _ in going], device=model.device),
            attention_mask=slots.mask(),
            position_ids=slots.lengths[:, None],
            past_key_values=slots.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        slots.lengths += 1
        scores = output.logits[:, -1].float()
        tokens = _choose([row for row, _ in going], [sampler for _, sampler in going], scores)
        gone = [place for place, (row, _) in enumerate(going) if not takes(row, tokens[place])]
        if gone:
            staying = without(len(going), gone)
            slots.keep(staying)
            going = [going[place] for place in staying]


class _PromptReader:
    """Reads prompts one by one; what the next one has in common with the one before is not read again."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._ids: tuple[int, ...] = ()
        self.cache = DynamicCache(config=model.config.get_text_config())

    def read(self, ids: tuple[int, ...]) -> torch.Tensor:
        """Return the logits of the token behind a prompt; the prompt's keys and values are then in `cache`."""
        pairs = enumerate(zip(ids[:-1], self._ids, strict=False))
        shared = next((place for place, (new, old) in pairs if new != old), min(len(ids) - 1, len(self._ids)))
        self.cache.crop(shared - len(self._ids))
        output = self._model(
            input_ids=torch.tensor([ids[shared:]], device=self._model.device),
            position_ids=torch.arange(shared, len(ids), device=self._model.device)[None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._ids = ids
        scores: torch.Tensor = output.logits[0, -1].float()
        return scores


def _batches(rows: Sequence[Row], decoding: Decoding, state: int) -> Iterator[list[Row]]:
    """Yield rows that fit at once, where each also keeps a state as large as so many positions, whatever its length."""
    start = 0
    while start < len(rows):
        size = max(1, decoding.batch_tokens // (len(rows[start].prompt) + decoding.max_new_tokens + state))
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
        for row, token in zip(rows, _choose(rows, samplers, scores), strict=True):
            row.tokens.append(token)
            row.stopped = row.tokens[-1] in vocabulary.stop
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
