"""Keys and values of a batch, in room that is taken once. For a generation process alone.

The library's own layers copy all keys and values for each new token; that copying took over 60 % of the time of a step
of 39 rows at 100 positions, and grew with the answers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class ReservedLayer(DynamicLayer):  # type: ignore[misc]  # the library is untyped
    """A layer whose keys and values grow in place, up to what was reserved."""

    def __init__(self, num_positions: int) -> None:
        """Reserve nothing before the first keys say how large they are.

        Args:
            num_positions: Keys of a row at most.
        """
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
        """Write new keys and values behind those that are there.

        Returns:
            All of both, as views.

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
        """Keep rows; only those that change their place are copied.

        Args:
            beam_idx: The rows that stay, in their new order; none moves to a place behind its own, as `without` orders
                them.
        """
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


def reserved_cache(config: Any, num_positions: int) -> DynamicCache:
    """A cache for a batch whose longest row is known.

    Args:
        config: Of the model. Layers that see a window, or keep a state, stay the library's own.
        num_positions: Prompt and answer together, at most.
    """
    cache = DynamicCache(config=config)
    cache.layers = [ReservedLayer(num_positions) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def without(num_rows: int, gone: Sequence[int]) -> list[int]:
    """The rows that stay: each gap is filled by the last of them, so that few of them move.

    Args:
        num_rows: Rows so far.
        gone: Which of them leave.
    """
    left = set(gone)
    staying = [row for row in range(num_rows) if row not in left]
    movers = [row for row in staying if row >= len(staying)]
    return [movers.pop() if place in left else place for place in range(len(staying))]
