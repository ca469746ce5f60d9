"""Small charts for pages of the UI: Markdown with an embedded SVG image."""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from statistics import fmean
from typing import Final

_ROW: Final = 16
_LABEL: Final = 120
_BAR: Final = 200
_HEIGHT: Final = 140
_MARGIN: Final = 40
_MOST_POINTS: Final = 24


def bar_chart(title: str, values: Mapping[str, int]) -> str:
    """Draw horizontal bars with their values, as Markdown with an image of a few kilobytes."""
    most = max(1, *values.values())
    rows = []
    for number, (name, value) in enumerate(values.items()):
        y = 24 + number * _ROW
        width = _BAR * value / most
        rows.append(
            f'<text x="{_LABEL - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LABEL}" y="{y + 2}" width="{width:.1f}" height="11" fill="#4f5bd5"/>'
            f'<text x="{_LABEL + width + 5:.1f}" y="{y + 11}">{value}</text>'
        )
    height = 30 + len(values) * _ROW
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABEL + _BAR + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="#333"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="6" y="15" font-weight="bold">{escape(title)}</text>{"".join(rows)}</svg>'
    )
    return f"![{title}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def line_chart(title: str, values: Mapping[int, float], level: float | None = None) -> str:
    """Draw a curve over whole numbers, labelled with the highest and lowest value drawn.

    `values` are in order and not empty; neighbours are averaged if there are many. `level` is drawn as a dashed line.
    The text has under 1,000 characters, because Dagster hides longer texts behind a button.
    """
    places = list(values.items())
    every = -(-len(places) // _MOST_POINTS)
    groups = [places[start : start + every] for start in range(0, len(places), every)]
    points = [(fmean(x for x, _ in group), fmean(y for _, y in group)) for group in groups]
    (first, _), (last, _) = places[0], places[-1]
    known = [*(y for _, y in points), *([] if level is None else [level])]
    low, high = min(known), max(known)
    across, up = _BAR / max(1, last - first), _HEIGHT / ((high - low) or 1)
    drawn = " ".join(f"{_MARGIN + (x - first) * across:.0f},{24 + (high - y) * up:.0f}" for x, y in points)
    bottom = 24 + _HEIGHT
    dashed = ""
    if level is not None:
        y = 24 + (high - level) * up
        dashed = f'<path d="M{_MARGIN} {y:.0f}h{_BAR}" stroke="#b02" stroke-dasharray="4"/>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_MARGIN + _BAR + 20}" height="{bottom + 24}" font-size="11" '
        'font-family="sans-serif"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="6" y="15">{escape(title)}</text><text x="6" y="34">{high:.3g}</text>'
        f'<text x="6" y="{bottom}">{low:.3g}</text><text x="{_MARGIN}" y="{bottom + 15}">{first}</text>'
        f'<text x="{_BAR + 20}" y="{bottom + 15}">{last}</text>'
        f'<polyline points="{drawn}" fill="none" stroke="#4f5bd5"/>{dashed}</svg>'
    )
    return f"![{title}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"
