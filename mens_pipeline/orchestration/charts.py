"""Small pictures for metadata: SVG in a data URL, as Markdown."""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Final

_ROW: Final = 16
_LABEL: Final = 130
_BAR: Final = 360


def bar_chart(title: str, values: Mapping[str, int]) -> str:
    """Horizontal bars, one a row, with their numbers.

    Args:
        title: What is counted.
        values: Name -> number, at least one; drawn in order.

    Returns:
        Markdown with one image; a few kilobytes.
    """
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
