"""Pictures in metadata."""

import xml.etree.ElementTree as ET
from base64 import b64decode

import pytest

from mens_pipeline.orchestration.charts import line_chart

_SVG = "{http://www.w3.org/2000/svg}"


def _parse_chart(chart: str) -> tuple[list[str], list[tuple[float, float]]]:
    svg = ET.fromstring(b64decode(chart.split("base64,")[1].removesuffix(")")))  # noqa: S314 - our own picture
    (line,) = svg.iter(f"{_SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    return [element.text for element in svg.iter(f"{_SVG}text") if element.text], [(x, y) for x, y in points]


def test_a_curve_shows_its_highest_and_lowest_value() -> None:
    chart = line_chart("loss <by> step", {1: 2.5, 2: 0.125, 5: 1.0})
    texts, points = _parse_chart(chart)

    assert "sans-serif" in b64decode(chart.split("base64,")[1].removesuffix(")")).decode()
    assert chart.startswith("![loss <by> step](data:image/svg+xml;base64,")
    assert texts == ["loss <by> step", "2.5", "0.125", "1", "5"]
    assert points[0][1] < points[2][1] < points[1][1]
    assert [(x - points[0][0]) / (points[2][0] - points[0][0]) for x, _ in points] == pytest.approx(
        [0, 0.25, 1], abs=0.01
    )


@pytest.mark.parametrize("values", [{7: 3.0}, {7: 3.0, 8: 3.0}, {7: 0.0}])
def test_a_curve_may_be_flat_or_a_single_point(values: dict[int, float]) -> None:
    texts, points = _parse_chart(line_chart("loss", values))

    assert texts == ["loss", f"{values[7]:g}", f"{values[7]:g}", "7", str(max(values))]
    assert len(points) == len(values)
    assert len({y for _, y in points}) == 1


@pytest.mark.parametrize("number", [299, 602, 1001, 10_000])
def test_long_curves_are_thinned_out(number: int) -> None:
    values = dict.fromkeys(range(1, number + 1), 1.0) | {2: 9.0, 4: 0.5}
    chart = line_chart("loss", values)
    texts, points = _parse_chart(chart)

    assert texts[3:] == ["1", str(number)]
    assert 1 < float(texts[1]) < 9
    assert float(texts[2]) == 1
    assert {min(y for _, y in points), max(y for _, y in points)} == {24, 164}
    assert 2 < len(points) <= 30
    assert max(y for _, y in points) <= 164
    assert len(chart) < 1_000


def test_a_level_is_drawn_beside_the_curve() -> None:
    chart = line_chart("loss by step, validation 9.12 dashed", dict.fromkeys(range(1, 602), 1.0), 9.125)
    svg = b64decode(chart.split("base64,")[1].removesuffix(")")).decode()
    texts, points = _parse_chart(chart)

    assert texts[1:3] == ["9.12", "1"]
    assert 'd="M40 24h200"' in svg
    assert 'width="260"' in svg
    assert {y for _, y in points} == {164}
    assert len(chart) < 1_000
