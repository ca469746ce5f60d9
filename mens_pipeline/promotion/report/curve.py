"""The loss of a training run as a curve: where its lines and ticks lie."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 240
LEFT: Final = 68
RIGHT: Final = 14
TOP: Final = 12
BOTTOM: Final = 44
_MOST_POINTS: Final = 400
_TICKS: Final = 5
_SMOOTHNESS: Final = 0.1
"""Weight of a new value in the moving average."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, in units of the picture, with what stands beside it."""

    place: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A picture of WIDTH times HEIGHT.

    Attributes:
        values: Corners of the line through the values, as SVG wants them.
        average: Those of their moving average.
        x_ticks: Optimizer steps.
        y_ticks: Losses.
        summary: What it shows, for those who do not see it.
        num_left_out: Values that are no finite number.
    """

    values: str
    average: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    summary: str
    num_left_out: int


def loss_curve(losses: Mapping[int, float]) -> Curve | None:
    """Build the curve of a loss; return None when fewer than two values are finite."""
    numbers = [(step, loss) for step, loss in sorted(losses.items()) if math.isfinite(loss)]
    if len(numbers) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    average = _averaged([loss for _, loss in numbers])
    first, last = numbers[0][0], numbers[-1][0]
    low, high = min(loss for _, loss in numbers), max(loss for _, loss in numbers)
    y_values = _round_values(low, high)
    x_of = _Scale(first, last, LEFT, WIDTH - RIGHT)
    y_of = _Scale(min(low, y_values[0]), max(high, y_values[-1]), HEIGHT - BOTTOM, TOP)
    places = _thinned(range(len(numbers)))
    steps = [x for x in _round_values(first, last) if x.is_integer() and first <= x <= last]
    return Curve(
        values=" ".join(f"{x_of(numbers[n][0]):.1f},{y_of(numbers[n][1]):.1f}" for n in places),
        average=" ".join(f"{x_of(numbers[n][0]):.1f},{y_of(average[n]):.1f}" for n in places),
        x_ticks=tuple(Tick(x_of(x), f"{x:.0f}") for x in steps),
        y_ticks=tuple(Tick(y_of(y), f"{y:g}") for y in y_values),
        summary=f"Loss from {numbers[0][1]:.3f} at step {first} to {numbers[-1][1]:.3f} at step {last}, "
        f"lowest {low:.3f}",
        num_left_out=len(losses) - len(numbers),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values of a range to places of another."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) * (self.end - self.start) / ((self.high - self.low) or 1)


def _averaged(values: Sequence[float]) -> list[float]:
    """Return the exponential moving average, begun at the mean of the first values."""
    begin = values[: max(1, min(len(values), round(1 / _SMOOTHNESS)))]
    current = sum(begin) / len(begin)
    averaged = []
    for value in values:
        current += _SMOOTHNESS * (value - current)
        averaged.append(current)
    return averaged


def _thinned(places: Sequence[int]) -> list[int]:
    every = max(1, math.ceil(len(places) / _MOST_POINTS))
    return [*places[:-1:every], places[-1]]


def _round_values(low: float, high: float) -> list[float]:
    """Return about so many round numbers around a range: multiples of 1, 2 or 5 times a power of ten."""
    rough = ((high - low) or 1) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]
