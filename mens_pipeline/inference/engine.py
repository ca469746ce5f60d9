"""An engine that writes many completions at once, each in a slot; when one ends, the next one gets its slot.

1. It reads each prompt alone, in pieces if other completions continue in between. On a GPU, which waits for the
   launches of small kernels, it reads the prompts of a step together. While somebody types, a CPU reads only the new
   tokens: the text after the cursor keeps its keys and values.
2. One forward pass gives every completion its next token. A single completion may get several, if the engine correctly
   guessed a repetition (prompt lookup decoding, Saxena 2023).
3. A completion that has ended, is cancelled or is late leaves its slot at once.

Each completion has its own random generator, so it does not depend on the other requests. Evaluation, the proof of a
merge and the server all use this engine.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from mens_pipeline.inference.constraint import BegunWord, Constraint, InsertConstraint
from mens_pipeline.inference.sampling import LikelyTokens, Sampler, log_probabilities

if TYPE_CHECKING:
    import torch

End = Literal["stop", "length", "late", "cancelled"]
"""Why a completion ended: end of the turn, token limit, deadline or cancellation."""


@dataclass(eq=False)
class Slot:
    """A completion in progress.

    `log_probability` is the sum over its tokens; None: not requested. `deadline` is on the monotonic clock. `word` is
    the word before the cursor, which it must spell first. `end` is the reason for its end. Tokens of `also_stop`, such
    as line ends, end it and belong to it. `sample` is its number among the samples of the task `name`, from 0.
    The text after a cursor has `num_after` tokens, between its mark and the last token of the prompt.
    """

    prompt: tuple[int, ...]
    sampler: Sampler
    max_tokens: int
    constraint: Constraint | InsertConstraint | None = None
    log_probability: float | None = None
    deadline: float = inf
    word: BegunWord | None = None
    tokens: list[int] = field(default_factory=list)
    end: End | None = None
    also_stop: frozenset[int] = frozenset()
    name: str = ""
    sample: int = 0
    num_after: int = 0

    @property
    def stopped(self) -> bool:
        """Whether it ended its turn."""
        return self.end == "stop"

    @property
    def num_positions(self) -> int:
        """Positions to reserve, for the prompt and `max_tokens`."""
        return len(self.prompt) + self.max_tokens

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return False

    def end_unwanted(self, now: float) -> None:
        """End it if it is cancelled or late; `now` is on the monotonic clock."""
        if self.is_cancelled:
            self.end = "cancelled"
        elif now >= self.deadline:
            self.end = "late"

    def guess(self, most: int) -> tuple[int, ...]:
        """Guess up to `most` next tokens from an earlier occurrence of the last tokens."""
        text = (*self.prompt, *self.tokens)[-_LOOKED_BACK:]
        for length in _LOOKED_UP:
            key = text[-length:]
            for place in range(len(text) - length - 1, -1, -1):
                if text[place : place + length] == key:
                    return text[place + length :][:most]
        return ()

    def narrow(self, scores: "torch.Tensor") -> "torch.Tensor":
        """Exclude tokens that do not spell the word before the cursor."""
        return scores if self.word is None else self.word.narrow(scores)

    def choose(self, scores: "torch.Tensor | LikelyTokens") -> int:
        """Choose the next token, under the constraint if there is one."""
        if self.constraint is None:
            return self.sampler.choose(scores)
        return self.constraint.choose(scores, self.sampler)

    def take(self, token: int, scores: "torch.Tensor", stop: frozenset[int]) -> None:  # noqa: ARG002 - the server's
        """Append a chosen token; tokens of `stop` end the turn."""
        self.tokens.append(token)
        if self.word is not None:
            self.word.take(token)
        if token in stop:
            self.end = "stop"
        elif len(self.tokens) >= self.max_tokens or token in self.also_stop:
            self.end = "length"


_LOOKED_UP: Final = (3, 2)  # lengths of the last tokens to look up, in this order
_GUESSED: Final = 5  # tokens to guess; each makes a step a little slower, right or wrong
_LOOKED_BACK: Final = 1024  # newest tokens to search; a long prompt costs no more
_MOST_READ: Final = 8_192  # most prompt tokens, padding included, to read in one pass
_MOST_TYPED: Final = 96  # new tokens before the text after a cursor until that is read again
_MOST_REPLACED: Final = 5  # tokens that typing replaces: the mark, and others that grow

SomeSlot = TypeVar("SomeSlot", bound=Slot)


@dataclass(eq=False, slots=True)
class _Prompt(Generic[SomeSlot]):
    slot: SomeSlot
    cache: Any
    num_read: int = 0
    num_typed: int = 0


class Engine(Generic[SomeSlot]):
    """Writes the completions of slots, which may join and leave at any step."""

    def __init__(  # noqa: PLR0913 - the model, and how prompts are read
        self,
        model: Any,
        stop: frozenset[int],
        num_slots: int,
        *,
        num_positions: int = 0,
        piece: int | None = None,
        num_read: int = 1,
    ) -> None:
        """Start with all slots free, for a causal model in evaluation mode; tokens of `stop` end a turn.

        `num_positions` are reserved for each slot, which grows if necessary. `piece` tokens of a prompt are read
        between two tokens of the other completions; None reads whole prompts, `num_read` in one pass, up to 8,192
        tokens with padding. With `num_read` 1, a pass skips the tokens that a prompt shares with the previous one.
        """
        from mens_pipeline.inference.kv_cache import SlotCache  # noqa: PLC0415 - loads torch

        self._model = model
        self._stop = stop
        self._piece = piece
        self._num_read = num_read
        self._cache = SlotCache(model, num_slots if num_positions else 1, num_positions)
        self.num_slots = num_slots if self._cache.takes_many else 1
        self._reading: deque[_Prompt[SomeSlot]] = deque()
        self._writing: list[SomeSlot] = []
        self._read_last: _Prompt[SomeSlot] | None = None

    @property
    def slots(self) -> tuple[SomeSlot, ...]:
        """Completions that are being read or written."""
        return (*(prompt.slot for prompt in self._reading), *self._writing)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free."""
        return len(self._reading) + len(self._writing) < self.num_slots

    def admit(self, slot: SomeSlot) -> None:
        """Give a completion a free slot; the next step starts to read its prompt."""
        self._reading.append(_Prompt(slot, self._cache.new_prompt()))

    def step(self) -> list[SomeSlot]:
        """Read prompts, add a token to each completion whose prompt is read, and return the completions that ended."""
        import torch

        with torch.inference_mode():
            ended = self._drop_unwanted()
            if self._num_read > 1:
                ended += self._read_together()
            for _ in range(len(self._reading) if self._piece is None else min(1, len(self._reading))):
                ended += self._read_piece()
            if self._writing:
                ended += self._write()
        return ended

    def clear(self) -> None:
        """Drop all completions."""
        self._reading, self._writing, self._read_last = deque(), [], None
        self._cache.clear()

    def _drop_unwanted(self) -> list[SomeSlot]:
        now = time.monotonic()
        for slot in self.slots:
            slot.end_unwanted(now)
        dropped = [prompt.slot for prompt in self._reading if prompt.slot.end is not None]
        self._reading = deque(prompt for prompt in self._reading if prompt.slot.end is None)
        return [*dropped, *self._release()]

    def _read_piece(self) -> list[SomeSlot]:
        import torch

        prompt = self._reading.popleft()
        slot, ids = prompt.slot, prompt.slot.prompt
        if not prompt.num_read:
            if (scores := self._read_typed(prompt)) is not None:
                self._read_last = prompt
                return self._begin([slot], prompt.cache, scores)
            prompt.num_read = self._share_prefix(prompt)
        begin, end = prompt.num_read, min(len(ids), prompt.num_read + (self._piece or len(ids)))
        device = self._model.device
        output = self._model(
            input_ids=torch.tensor([ids[begin:end]], device=device),
            position_ids=torch.arange(begin, end, device=device)[None],
            past_key_values=prompt.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        prompt.num_read = end
        if end < len(ids):
            self._reading.append(prompt)
            return []
        self._read_last = prompt
        return self._begin([slot], prompt.cache, output.logits[:, -1])

    def _read_together(self) -> list[SomeSlot]:
        import torch

        ended = list[SomeSlot]()
        slots = sorted((prompt.slot for prompt in self._reading), key=lambda slot: -len(slot.prompt))
        self._reading = deque()
        while slots:
            width = len(slots[0].prompt)
            num_read = max(1, min(self._num_read, _MOST_READ // width))
            batch, slots = slots[:num_read], slots[num_read:]
            ids = [(*[0] * (width - len(slot.prompt)), *slot.prompt) for slot in batch]
            padding = torch.tensor([[width - len(slot.prompt)] for slot in batch], device=self._model.device)
            places = torch.arange(width, device=self._model.device) - padding
            cache = self._cache.new_prompt()
            output = self._model(
                input_ids=torch.tensor(ids, device=self._model.device),
                attention_mask=(places >= 0).long() if len(batch[-1].prompt) < width else None,
                position_ids=places.clamp(min=0),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            ended += self._begin(batch, cache, output.logits[:, -1])
        return ended

    def _begin(self, slots: Sequence[SomeSlot], read: Any, scores: "torch.Tensor") -> list[SomeSlot]:
        take_tokens(slots, scores.float(), self._stop)
        going = [row for row, slot in enumerate(slots) if slot.end is None]
        self._cache.add(read, [len(slot.prompt) for slot in slots], going)
        self._writing += [slots[row] for row in going]
        return [slot for slot in slots if slot.end is not None]

    def _share_prefix(self, prompt: _Prompt[SomeSlot]) -> int:
        last, new = self._read_last, prompt.slot.prompt
        if last is None:
            return 0
        num_shared = _count_equal(new[:-1], last.slot.prompt)
        if not self._cache.share_prefix(prompt.cache, last.cache, num_shared):
            return 0
        if num_shared >= len(new) - prompt.slot.num_after:  # it shares kept text, too
            prompt.num_typed = last.num_typed
        return num_shared

    def _read_typed(self, prompt: _Prompt[SomeSlot]) -> "torch.Tensor | None":
        """Read only the tokens that were typed since the last prompt, the mark at the cursor, and the last token.

        The model finds the cursor at the mark. The text after it keeps its keys and values, computed before the typing.
        Returns logits of shape `(1, tokens)`, or None if more has changed.
        """
        import torch

        last, num_after = self._read_last, prompt.slot.num_after
        if last is None or not num_after or not hasattr(self._model, "move_keys"):
            return None
        new, old = prompt.slot.prompt, last.slot.prompt
        begin = _count_equal(new, old)
        num_kept = min(_count_equal(new[begin:][::-1], old[begin:][::-1]) - 1, num_after)
        num_new, num_replaced = (len(ids) - 1 - num_kept - begin for ids in (new, old))
        num_typed = last.num_typed + num_new
        if num_kept < 1 or num_typed > _MOST_TYPED or num_replaced > _MOST_REPLACED:
            return None
        prompt.num_typed = num_typed
        move = partial(self._model.move_keys, num_positions=len(new) - len(old))
        self._cache.share_around(prompt.cache, last.cache, (begin, num_kept), move)
        # The order in the cache is free, since positions are given: new tokens come after the kept ones for now.
        end = begin + num_kept
        mask = torch.ones(num_new + 1, end + num_new + 1, dtype=torch.bool).tril(end)
        mask[:-1, begin:end] = False
        output = self._model(
            input_ids=torch.tensor([[*new[begin : begin + num_new], new[-1]]]),
            attention_mask=mask[None, None],
            position_ids=torch.tensor([[*range(begin, begin + num_new), len(new) - 1]]),
            past_key_values=prompt.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache.reorder(prompt.cache, [*range(begin), *range(end, end + num_new), *range(begin, end), -1])
        return output.logits[:, -1]

    def _write(self) -> list[SomeSlot]:
        import torch

        if len(self._writing) == 1 and (guess := self._guess(self._writing[0])):
            return self._write_guessed(self._writing[0], guess)
        output = self._model(
            input_ids=torch.tensor([[slot.tokens[-1]] for slot in self._writing], device=self._model.device),
            attention_mask=self._cache.mask(),
            position_ids=self._cache.positions(),
            past_key_values=self._cache.past,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache.advance()
        take_tokens(self._writing, output.logits[:, -1].float(), self._stop)
        return self._release()

    def _guess(self, slot: SomeSlot) -> tuple[int, ...]:
        return slot.guess(min(_GUESSED, self._cache.num_free)) if self._cache.forgets else ()

    def _write_guessed(self, slot: SomeSlot, guess: tuple[int, ...]) -> list[SomeSlot]:
        import torch

        begin = self._cache.longest
        output = self._model(
            input_ids=torch.tensor([[slot.tokens[-1], *guess]], device=self._model.device),
            position_ids=torch.arange(begin, begin + 1 + len(guess), device=self._model.device)[None],
            past_key_values=self._cache.past,
            use_cache=True,
        )
        num_written = 0
        for scores, guessed in zip(output.logits[0], (*guess, None), strict=True):
            take_tokens([slot], scores.float()[None], self._stop)
            num_written += 1
            if slot.end is not None or slot.tokens[-1] != guessed:
                break
        self._cache.advance(num_written)
        return self._release()

    def _release(self) -> list[SomeSlot]:
        gone = [place for place, slot in enumerate(self._writing) if slot.end is not None]
        ended = [self._writing[place] for place in gone]
        if gone:
            self._writing = [self._writing[place] for place in self._cache.release(gone)]
        return ended


def _count_equal(new: Sequence[int], old: Sequence[int]) -> int:
    pairs = enumerate(zip(new, old, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(new), len(old)))


def take_tokens(slots: Sequence[Slot], scores: "torch.Tensor", stop: frozenset[int]) -> None:
    """Add the next token to each slot, fetching the data for all slots from the device at once.

    `scores` has a row for each slot; tokens of `stop` end a turn.
    """
    import torch

    if any(slot.word is not None for slot in slots):
        scores = torch.stack([slot.narrow(row) for slot, row in zip(slots, scores, strict=True)])
    samplers = [slot.sampler for slot in slots]
    if all(slot.constraint is None for slot in slots):
        tokens = Sampler.choose_each(samplers, scores)
    else:
        tokens = [slot.choose(likely) for slot, likely in zip(slots, Sampler.look(samplers, scores), strict=True)]
    if any(slot.log_probability is not None for slot in slots):
        for slot, value in zip(slots, log_probabilities(scores, tokens), strict=True):
            if slot.log_probability is not None:
                slot.log_probability += value
    for slot, token, row in zip(slots, tokens, scores, strict=True):
        slot.take(token, row, stop)
