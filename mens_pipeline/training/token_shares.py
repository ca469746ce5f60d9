"""The order of rows when kinds have shares of the tokens that are shown: any beginning of a run has these shares.

How many steps a run takes is not known when it begins, so no part of the order may lack a kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, Protocol

_WINDOW: Final = 256
"""Rows among which micro-batches are formed: many enough to find rows of like length, and a small part of a run."""

MOST_PASSES: Final = 4
"""How often an epoch shows a kind at most; up to four passes repeated data is nearly as good as new (Muennighoff et al.
2023, arXiv:2305.16264)."""


class Dealt(Protocol):
    """Fields of a row that the shares need; its length is in tokens."""

    @property
    def kind(self) -> str:
        """Kind of the row: `task`, `vox_codegen`, `mutation`."""
        ...

    @property
    def difficulty(self) -> int:
        """1 to 10."""
        ...

    def __len__(self) -> int:
        """Tokens."""
        ...


def shares_of(tokens: Mapping[str, int], named: Mapping[str, float]) -> dict[str, float]:
    """Return the share of the shown tokens that each kind gets.

    Args:
        tokens: Of each kind that there is.
        named: Shares asked for, at most 1 together. The other kinds share the rest in proportion to their tokens. What
            is asked for a kind that is not there goes to all others in proportion.

    Returns:
        Kind -> share; 1 together, unless every kind that is there was given 0.
    """
    others = sum(count for kind, count in tokens.items() if kind not in named)
    rest = max(0.0, 1 - sum(named.values()))
    wanted = {kind: named[kind] if kind in named else rest * count / others for kind, count in tokens.items()}
    whole = sum(wanted.values())
    return {kind: share / whole if whole else 0.0 for kind, share in wanted.items()}


class Dealer:
    """Deals the rows of each kind pass by pass, each pass in a new order, and mixes the kinds by their shares."""

    def __init__(
        self, examples: Sequence[Dealt], weights: Sequence[float], named: Mapping[str, float], seed: int
    ) -> None:
        """Take the rows, how often each comes in a pass on average, and the shares as `shares_of` does."""
        self._examples = examples
        self._weights = weights
        self._named = named
        self._seed = seed
        self._queues: dict[str, list[int]] = {}
        self._passes: dict[str, int] = {}

    def windows(self, rows: Sequence[int], *, easy_first: bool) -> Iterator[list[int]]:
        """Yield the rows of an epoch in windows, in each of which every kind has its share of the tokens.

        An epoch has as many tokens as its rows have. A kind that runs out begins anew until it was shown `MOST_PASSES`
        times; then it is missing, and the epoch is so much shorter. What an epoch does not show comes in the next one.

        Where easy rows come first, each epoch begins the passes of all kinds anew.
        """
        kinds: dict[str, list[int]] = {}
        for row in rows:
            kinds.setdefault(self._examples[row].kind, []).append(row)
        tokens = {kind: sum(len(self._examples[row]) for row in kinds[kind]) for kind in sorted(kinds)}
        whole = sum(tokens.values())
        places: list[tuple[float, int]] = []
        for kind, share in shares_of(tokens, self._named).items():
            if easy_first:
                self._queues.pop(kind, None)
            quota = share * whole
            dealt = self._dealt(kind, kinds[kind], min(quota, MOST_PASSES * tokens[kind]))
            if easy_first:
                dealt.sort(key=lambda row: self._examples[row].difficulty)
            before = 0
            for row in dealt:
                length = len(self._examples[row])
                places.append(((before + length / 2) / quota, row))
                before += length
        order = [row for _, row in sorted(places, key=lambda place: place[0])]
        count = max(1, round(len(order) / _WINDOW))
        for number in range(count):
            window = order[number * len(order) // count : (number + 1) * len(order) // count]
            if window:
                yield window

    def _dealt(self, kind: str, rows: Sequence[int], tokens: float) -> list[int]:
        """Deal the next rows of a kind, as many as come nearest to a number of tokens."""
        queue = self._queues.setdefault(kind, [])
        dealt: list[int] = []
        count = 0.0
        while True:
            if not queue:
                queue += self._pass(kind, rows)
            length = len(self._examples[queue[-1]])
            if count + length / 2 > tokens:
                return dealt
            count += length
            dealt.append(queue.pop())

    def _pass(self, kind: str, rows: Sequence[int]) -> list[int]:
        number = self._passes[kind] = self._passes.get(kind, -1) + 1
        random = Random(f"{self._seed}:{kind}:{number}")  # noqa: S311 - a reproducible order, no secret
        drawn = draw(rows, self._weights, random)
        random.shuffle(drawn)
        return drawn


def draw(rows: Sequence[int], weights: Sequence[float], random: Random) -> list[int]:
    """Return each row as often as its weight asks for: the whole part always, the rest by chance."""
    drawn = []
    for row in rows:
        rest = weights[row] % 1
        drawn += [row] * (int(weights[row]) + (rest > 0 and random.random() < rest))
    return drawn
