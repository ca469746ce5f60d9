"""Metadata of assets: columns of the rows that they hold, tables, and small pictures as Markdown."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.metadata.metadata_set import TableMetadataSet
from pydantic import BaseModel


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> dg.TableMetadataValue:
    """Return rows as a table; one that may be empty names its columns."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns]) if columns else None
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema=schema)


def columns_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the metadata by which Dagster shows the columns of an asset."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    columns = [
        dg.TableColumn(
            name,
            type=_type_of(field),
            description=field.get("description"),
            constraints=dg.TableColumnConstraints(nullable=name not in required),
        )
        for name, field in schema["properties"].items()
    ]
    return dict(TableMetadataSet(column_schema=dg.TableSchema(columns)))


def _type_of(field: dict[str, Any]) -> str:
    """Return the type of a column in the words of JSON."""
    if "anyOf" in field:
        return " or ".join(map(_type_of, field["anyOf"]))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    return str(field.get("type", "any"))


_ROW: Final = 16
_LABEL: Final = 130
_BAR: Final = 360
_HEIGHT: Final = 140
_MARGIN: Final = 50
_MOST_POINTS: Final = 24


def bar_chart(title: str, values: Mapping[str, int]) -> str:
    """Draw horizontal bars, one a row, with their numbers, as Markdown with one image of a few kilobytes."""
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
    """Draw a curve over whole numbers, with the highest and the lowest value written out.

    Args:
        title: What is shown, in a few words.
        values: Place -> value, at least one, in order; of many, each point is the mean of its neighbours.
        level: A value beside them that belongs to no place, as a dashed line; None for none.

    Returns:
        Markdown with one image; below the thousand characters from which on Dagster hides it behind a button.
    """
    places = list(values.items())
    every = -(-len(places) // _MOST_POINTS)
    groups = [places[start : start + every] for start in range(0, len(places), every)]
    points = [(fmean(x for x, _ in group), fmean(y for _, y in group)) for group in groups]
    (first, _), (last, _) = places[0], places[-1]
    known = [*values.values(), *([] if level is None else [level])]
    low, high = min(known), max(known)
    across, up = _BAR / max(1, last - first), _HEIGHT / ((high - low) or 1)
    drawn = " ".join(f"{_MARGIN + (x - first) * across:.0f},{24 + (high - y) * up:.0f}" for x, y in points)
    bottom = 24 + _HEIGHT
    dashed = ""
    if level is not None:
        y = 24 + (high - level) * up
        dashed = f'<path d="M{_MARGIN} {y:.0f}h{_BAR}" stroke="#b02" stroke-dasharray="4"/>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_MARGIN + _BAR + 20}" height="{bottom + 24}" font-size="11">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="6" y="15">{escape(title)}</text><text x="6" y="34">{high:.3g}</text>'
        f'<text x="6" y="{bottom}">{low:.3g}</text><text x="{_MARGIN}" y="{bottom + 15}">{first}</text>'
        f'<text x="{_BAR + 20}" y="{bottom + 15}">{last}</text>'
        f'<polyline points="{drawn}" fill="none" stroke="#4f5bd5"/>{dashed}</svg>'
    )
    return f"![{title}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"
