"""A cache of keys, values and states for rows that come and go. Only a generation process imports this.

All rows end at the same column, so a step writes one column (or several, for a single row), and columns are as far
apart as their positions, as attention windows require. The columns are allocated once. The layers of transformers copy
all keys and values for each new token, which took over 60 % of a step of 39 rows at 100 positions.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from transformers import DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

_ATTENTION: Final = frozenset((DynamicLayer, DynamicSlidingWindowLayer))
_SPARE: Final = 4  # one column in this many is spare, so that rows seldom have to move


class SlotCache:
    """Keys, values and states of rows, in `past`, the cache to pass to a model.

    `lengths` are the positions of each row, `longest` the largest; `end` is the column after the last position of every
    row. `takes_many` is False if a layer is neither attention nor linear attention; `forgets` is True if the last
    positions of a step can be dropped, which states do not allow.
    """

    def __init__(self, model: Any, num_rows: int = 1, num_positions: int = 0) -> None:
        """Allocate room for `num_rows` rows of `num_positions` positions each; it grows when needed."""
        self._config = model.config.get_text_config()
        self._device = model.device
        self._reserved = num_rows, num_positions + num_positions // _SPARE + 1
        self.clear()
        self.takes_many = all(
            isinstance(layer, _Room) or type(layer) is LinearAttentionLayer for layer in self.past.layers
        )
        self.forgets = all(isinstance(layer, _Room) for layer in self.past.layers)

    @property
    def num_free(self) -> int:
        """Positions that a step may write after its first one before rows have to move."""
        return self.num_columns - self.end - 1

    def clear(self) -> None:
        """Drop all rows and their memory."""
        self.lengths: list[int] = []
        self.longest = self.end = 0
        self.num_rows, self.num_columns = self._reserved
        self.past = self.new_prompt()
        self.past.layers = [_Room(self) if type(layer) in _ATTENTION else layer for layer in self.past.layers]

    def new_prompt(self) -> DynamicCache:
        """Return an empty cache to read a prompt into, for `add`."""
        return DynamicCache(config=self._config)

    @staticmethod
    def share_prefix(prompt: DynamicCache, read: DynamicCache, num_positions: int) -> bool:
        """Start the cache of a prompt with the first positions of another one, which stays unchanged.

        Returns False for layers other than full attention, which do not keep single positions.
        """
        if any(type(layer) is not DynamicLayer for layer in prompt.layers):
            return False
        for layer, other in zip(prompt.layers, read.layers, strict=True):
            layer.lazy_initialization(other.keys, other.values)
            layer.keys, layer.values = (states[:, :, :num_positions] for states in (other.keys, other.values))
        return True

    @staticmethod
    def share_around(
        prompt: DynamicCache, read: DynamicCache, kept: tuple[int, int], move: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        """Start the cache of a prompt with the first and the last positions of another one, except for its very last.

        `kept` is the number of each; `move` turns keys to their new positions.
        """
        first, last = kept
        for layer, other in zip(prompt.layers, read.layers, strict=True):
            layer.lazy_initialization(other.keys, other.values)
            keys, values = (states[:, :, -1 - last : -1] for states in (other.keys, other.values))
            layer.keys = torch.cat((other.keys[:, :, :first], move(keys)), 2)
            layer.values = torch.cat((other.values[:, :, :first], values), 2)

    @staticmethod
    def reorder(prompt: DynamicCache, columns: Sequence[int]) -> None:
        """Bring the columns of the cache of a prompt into another order."""
        index = torch.tensor(columns)
        for layer in prompt.layers:
            layer.keys, layer.values = layer.keys[:, :, index], layer.values[:, :, index]

    def positions(self) -> torch.Tensor:
        """Return the position of the next token of each row; of shape `(rows, 1)`."""
        return torch.tensor(self.lengths, device=self._device)[:, None]

    def mask(self) -> torch.Tensor | None:
        """Return the attention mask of the next step, of shape `(rows, positions)`; None if no row is padded."""
        if min(self.lengths) == self.longest:
            return None
        columns = torch.arange(self.longest + 1, device=self._device)
        return (columns >= self.longest - self.positions()).long()

    def add(self, read: DynamicCache, lengths: Sequence[int], rows: Sequence[int] = (0,)) -> None:
        """Append `rows` of `read`, the cache of prompts that were read together, with padding before the shorter ones.

        `lengths` are the numbers of tokens of all prompts of `read`.
        """
        if not rows:
            return
        first = len(self.lengths)
        taken = [lengths[row] for row in rows]
        self.lengths += taken
        self.longest = max(self.longest, *taken)
        if not self.takes_many:
            self.past = read
            return
        if len(self.lengths) > self.num_rows or self.longest > self.end:
            while len(self.lengths) > self.num_rows:
                self.num_rows *= 2
            self._move(max(self.end, self.longest), first)
        index = None if len(rows) == len(lengths) else torch.tensor(rows, device=self._device)
        for place, given in enumerate(read.layers):
            ours = self.past.layers[place]
            if isinstance(ours, _Room):
                ours.write(first, given.keys, given.values, index)
                continue
            if index is not None:
                given.reorder_cache(index)
            if first:
                _join_states(ours, given)
            else:
                self.past.layers[place] = given

    def advance(self, num_positions: int = 1) -> None:
        """Keep the first positions that a step wrote in each row; the next step overwrites the others."""
        self.lengths = [length + num_positions for length in self.lengths]
        self.longest += num_positions
        self.end += num_positions
        if self.end == self.num_columns:
            self._move(self.longest, len(self.lengths))

    def release(self, gone: Sequence[int]) -> list[int]:
        """Drop some rows; return the others in their new order."""
        rows = close_gaps(len(self.lengths), gone)
        if not rows:
            self.clear()
            return rows
        for layer in self.past.layers:
            if isinstance(layer, _Room):
                for place, row in enumerate(rows):
                    if place != row:
                        layer.move_row(row, place)
            else:
                layer.reorder_cache(torch.tensor(rows, device=self._device))
        self.lengths = [self.lengths[row] for row in rows]
        self.longest = max(self.lengths)
        return rows

    def _move(self, end: int, num_taken: int) -> None:
        self.num_columns = max(self.num_columns, end + end // _SPARE + 1)
        width = min(self.end, end)
        for layer in self.past.layers:
            if isinstance(layer, _Room):
                layer.move(num_taken, slice(self.end - width, self.end), slice(end - width, end))
        self.end = end


class _Room(DynamicLayer):  # type: ignore[misc]  # the library is untyped
    """A layer of full or windowed attention; its rooms are of shape `(rows, heads, columns, size of a head)`."""

    def __init__(self, slots: SlotCache) -> None:
        super().__init__()
        self._slots = slots
        self._rooms: list[torch.Tensor] = []

    def write(self, first: int, keys: torch.Tensor, values: torch.Tensor, index: torch.Tensor | None) -> None:
        """Write keys and values that were read to the rows from `first` on; `index` selects some of them.

        Keys and values are of shape `(rows, heads, positions, size of a head)`.
        """
        slots = self._slots
        if not self._rooms:
            self.is_initialized = True
            # Zeros rather than uninitialised memory: masked values are multiplied by 0, and NaN would stay NaN.
            self._rooms = [
                states.new_zeros((slots.num_rows, states.shape[1], slots.num_columns, states.shape[-1]))
                for states in (keys, values)
            ]
        lengths = slots.lengths[first:]
        num_kept = min(keys.shape[-2], max(lengths))
        starts = torch.tensor([num_kept - length for length in lengths], device=keys.device)
        for room, states in zip(self._rooms, (keys, values), strict=True):
            kept = (states if index is None else states[index])[:, :, -num_kept:]
            if min(lengths) < num_kept:
                is_padding = torch.arange(num_kept, device=keys.device) < starts[:, None]
                kept = kept.masked_fill(is_padding[:, None, :, None], 0)
            room[first : len(slots.lengths), :, slots.end - num_kept : slots.end] = kept

    def move_row(self, row: int, place: int) -> None:
        columns = slice(self._slots.end - self._slots.lengths[row], self._slots.end)
        for room in self._rooms:
            room[place, :, columns] = room[row, :, columns]

    def move(self, num_taken: int, columns: slice, to: slice) -> None:
        size = self._slots.num_rows, self._slots.num_columns
        for number, room in enumerate(self._rooms):
            kept = room[:num_taken, :, columns]
            if (room.shape[0], room.shape[2]) == size:
                room[:num_taken, :, to] = kept.clone()
            else:
                self._rooms[number] = room.new_zeros((size[0], room.shape[1], size[1], room.shape[3]))
                self._rooms[number][:num_taken, :, to] = kept

    def get_seq_length(self) -> int:
        return self._slots.longest

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the next positions of each row; return views of as many columns as the longest row has."""
        slots = self._slots
        num_rows, begin, end = len(slots.lengths), slots.end - slots.longest, slots.end + key_states.shape[-2]
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            room[:num_rows, :, slots.end : end] = states
        self.keys, self.values = (room[:num_rows, :, begin:end] for room in self._rooms)
        return self.keys, self.values


def _join_states(ours: LinearAttentionLayer, given: LinearAttentionLayer) -> None:
    for states, others in ((ours.conv_states, given.conv_states), (ours.recurrent_states, given.recurrent_states)):
        for number, state in others.items():
            if state is not None:
                states[number] = torch.cat([states[number], state])


def state_positions(model: Any) -> int:
    """Measure how many positions take as much memory as the states of a row.

    Returns 0 for a model without layers that keep a state, 1 for a model with only such layers.
    """
    cache = DynamicCache(config=model.config.get_text_config())
    if not any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in cache.layers):
        return 0
    with torch.inference_mode():
        token = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        model(input_ids=token, past_key_values=cache, use_cache=True)
    growing = fixed = 0
    for layer in cache.layers:
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            states = (*layer.conv_states.values(), *layer.recurrent_states.values())
            fixed += sum(state.nbytes for state in states if state is not None)
        else:
            growing += layer.keys.nbytes + layer.values.nbytes
    return -(-fixed // (growing or fixed or 1))


def close_gaps(num_rows: int, gone: Sequence[int]) -> list[int]:
    """Return the remaining rows, with each gap filled by the last one, so that few rows move."""
    left = set(gone)
    staying = [row for row in range(num_rows) if row not in left]
    movers = [row for row in staying if row >= len(staying)]
    return [movers.pop() if place in left else place for place in range(len(staying))]
