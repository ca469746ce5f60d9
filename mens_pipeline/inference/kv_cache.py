"""Keys and values of a batch, in room that is taken once. For a generation process alone.

The library's own layers copy all keys and values for each new token; that copying took over 60 % of the time of a step
of 39 rows at 100 positions, and grew with the answers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin


class ReservedLayer(DynamicLayer):  # type: ignore[misc]  # the library is untyped
    """A layer whose keys and values grow in place, up to what was reserved."""

    def __init__(self, num_positions: int) -> None:
        """Reserve nothing before the first keys say how large they are."""
        super().__init__()
        self._num_positions = num_positions

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take the room; both are of shape `(rows, heads, positions, size of a head)`."""
        super().lazy_initialization(key_states, value_states)
        self._rooms = tuple(
            states.new_empty((*states.shape[:2], self._num_positions, states.shape[-1]))
            for states in (key_states, value_states)
        )

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values behind those that are there, and return all of both, as views.

        Raises:
            ValueError: There are more than was reserved.
        """
        begin = self.get_seq_length()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = begin + key_states.shape[-2]
        if end > self._num_positions:
            raise ValueError(f"{end} positions, and room was reserved for {self._num_positions}")
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            room[:, :, begin:end] = states
        self._show(end)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Keep rows in the new order of `without`, where none moves behind its place; only moved ones are copied."""
        end = self.get_seq_length()
        chosen: list[int] = beam_idx.tolist()
        for room in self._rooms:
            for place, row in enumerate(chosen):
                if place != row:
                    room[place, :, :end] = room[row, :, :end]
        self._rooms = tuple(room[: len(chosen)] for room in self._rooms)
        self._show(end)

    def _show(self, end: int) -> None:
        self.keys, self.values = (room[:, :, :end] for room in self._rooms)


class Slots:
    """The keys and values of rows that come and go, each from its first position on, for one token of each at a time.

    `cache` is what a model takes as its past.
    """

    def __init__(self, config: Any, num_positions: int, num_rows: int, device: torch.device) -> None:
        """Begin without rows, for a model all of whose layers see every position, as `sees_everything` tells."""
        self.lengths = torch.zeros(0, dtype=torch.long, device=device)
        self.cache = DynamicCache(config=config)
        self.cache.layers = [_SlotLayer(self, num_positions, num_rows) for _ in self.cache.layers]

    @property
    def longest(self) -> int:
        """Positions of the longest row so far."""
        return int(self.lengths.max())

    def mask(self) -> torch.Tensor:
        """Return the attention mask of the next step, new positions included; of shape `(rows, positions)`."""
        places = torch.arange(self.longest + 1, device=self.lengths.device)
        return (places <= self.lengths[:, None]).long()

    def add(self, read: DynamicCache) -> None:
        """Take a row in, behind the others, with the keys and values of its prompt."""
        for layer, given in zip(self.cache.layers, read.layers, strict=True):
            layer.write(len(self.lengths), given.keys, given.values)
        self.lengths = torch.cat([self.lengths, self.lengths.new_tensor([read.get_seq_length()])])

    def keep(self, rows: Sequence[int]) -> None:
        """Keep some rows, in their new order, as `without` orders them."""
        for layer in self.cache.layers:
            for place, row in enumerate(rows):
                if place != row:
                    layer.move(row, place, int(self.lengths[row]))
        self.lengths = self.lengths[list(rows)]


class _SlotLayer(DynamicLayer):  # type: ignore[misc]  # the library is untyped
    """One layer of slots."""

    def __init__(self, slots: Slots, num_positions: int, num_rows: int) -> None:
        super().__init__()
        self._slots = slots
        self._size = (num_rows, num_positions)

    def write(self, row: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write a row; both are of shape `(1, heads, positions, size of a head)`."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
            rows, positions = self._size
            # Zeros and not whatever lies in memory: what is masked is multiplied by nothing, and NaN stays NaN.
            self._rooms = tuple(
                states.new_zeros((rows, states.shape[1], positions, states.shape[-1])) for states in (keys, values)
            )
        for room, states in zip(self._rooms, (keys, values), strict=True):
            room[row, :, : states.shape[-2]] = states[0]

    def move(self, row: int, place: int, length: int) -> None:
        """Copy a row to a place before it."""
        for room in self._rooms:
            room[place, :, :length] = room[row, :, :length]

    def get_seq_length(self) -> int:
        """Return positions of the longest row."""
        return self._slots.longest

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one position of each row behind those that it has; return all, up to the longest row, as views."""
        lengths, end = self._slots.lengths, self._slots.longest + 1
        rows = torch.arange(len(lengths), device=lengths.device)
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            room[rows, :, lengths] = states[:, :, 0]
        self.keys, self.values = (room[: len(lengths), :, :end] for room in self._rooms)
        return self.keys, self.values


def sees_everything(config: Any) -> bool:
    """Return whether every layer of a model looks at every position: none sees a window, or keeps a state."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def state_positions(model: Any) -> int:
    """Return positions whose keys and values take as much memory as what a row keeps whatever its length; measured.

    Returns:
        0 for a model without layers that keep a state; 1 for one without any others.
    """
    cache = DynamicCache(config=model.config.get_text_config())
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


def reserved_cache(config: Any, num_positions: int) -> DynamicCache:
    """Build a cache for a batch whose longest row is known, prompt and answer together.

    Layers that see a window, or keep a state, stay the library's own.
    """
    cache = DynamicCache(config=config)
    cache.layers = [ReservedLayer(num_positions) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def without(num_rows: int, gone: Sequence[int]) -> list[int]:
    """Return the rows that stay: each gap is filled by the last of them, so that few of them move."""
    left = set(gone)
    staying = [row for row in range(num_rows) if row not in left]
    movers = [row for row in staying if row >= len(staying)]
    return [movers.pop() if place in left else place for place in range(len(staying))]
