"""The loss of a training run as a curve: where its lines and ticks lie."""

import math
from collections.abc import Mapping
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
class Curve:
    """A picture of WIDTH times HEIGHT.

    Attributes:
        values: Corners of the line through the values, as SVG wants them.
        average: Those of their exponential moving average, begun at the mean of the first values.
        x_ticks: Place on the axis -> optimizer step.
        y_ticks: Place on the axis -> value.
        summary: What it shows, for those who do not see it.
        num_left_out: Values that are no finite number.
    """

    values: str
    average: str
    x_ticks: dict[float, str]
    y_ticks: dict[float, str]
    summary: str
    num_left_out: int


def curve_of(measured: Mapping[int, float]) -> Curve | None:
    """Build the curve of losses by step; return None when fewer than two values are finite."""
    numbers = {step: value for step, value in sorted(measured.items()) if math.isfinite(value)}
    if len(numbers) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    steps, values = list(numbers), list(numbers.values())
    begin = values[: round(1 / _SMOOTHNESS)]
    averages, current = [], sum(begin) / len(begin)
    for value in values:
        current += _SMOOTHNESS * (value - current)
        averages.append(current)
    first, last, low, high = steps[0], steps[-1], min(values), max(values)
    x_values, y_values = _round_values(first, last), _round_values(low, high)
    bottom, top = min(low, y_values[0]), max(high, y_values[-1])

    def place_x(step: float) -> float:
        return LEFT + (step - first) * (WIDTH - RIGHT - LEFT) / (last - first)

    def place_y(loss: float) -> float:
        return HEIGHT - BOTTOM + (loss - bottom) * (TOP - HEIGHT + BOTTOM) / ((top - bottom) or 1)

    def corners(line: list[float]) -> str:
        every = math.ceil(len(steps) / _MOST_POINTS)
        shown = [*zip(steps, line, strict=True)]
        return " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in (*shown[:-1:every], shown[-1]))

    return Curve(
        values=corners(values),
        average=corners(averages),
        x_ticks={place_x(x): f"{x:.0f}" for x in x_values if x.is_integer() and first <= x <= last},
        y_ticks={place_y(y): f"{y:g}" for y in y_values},
        summary=f"Loss from {values[0]:.3f} at step {first} to {values[-1]:.3f} at step {last}, lowest {low:.3f}",
        num_left_out=len(measured) - len(numbers),
    )


def _round_values(low: float, high: float) -> list[float]:
    """Return about so many round numbers around a range: multiples of 1, 2 or 5 times a power of ten."""
    rough = ((high - low) or 1) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]
