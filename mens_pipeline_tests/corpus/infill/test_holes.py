"""Holes are pieces that a person writes at once."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.infill.holes import MAX_LINES, QUOTAS, Hole, draw_holes
from mens_pipeline.corpus.schema.records import HoleKind
from mens_pipeline.language import Mode, mode_of, tokenize
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.language.examples import parse

_PROGRAM = """\
@table type Guest {
    name: str
    age: int
}

// Greets.
@endpoint(kind: query)
fn greet(name: str, age: int) to str {
    let years = age + 1
    if years > 99 {
        return "Oh, " + name
    }
    return format("{} {}", name, years)
}
"""


def _draw(source: str, number: int, seed: int = 0, mode: Mode = Mode.SOURCE) -> tuple[Hole, ...]:
    module = parse(source, mode)
    return draw_holes(source, module, number, Random(seed))  # noqa: S311 - a reproducible draw


def _holes(source: str, number: int, seed: int = 0) -> list[tuple[HoleKind, str]]:
    return [(hole.kind, source[hole.start : hole.end]) for hole in _draw(source, number, seed)]


def test_there_are_holes_of_every_kind() -> None:
    drawn = Counter(kind for seed in range(40) for kind, _ in _holes(_PROGRAM, 8, seed))

    assert set(drawn) == set(HoleKind) == set(QUOTAS)
    assert drawn[HoleKind.LINE] > drawn[HoleKind.DECORATOR]


def test_holes_match_their_kind() -> None:
    found = {kind: set[str]() for kind in HoleKind}
    for seed in range(200):
        for kind, text in _holes(_PROGRAM, 8, seed):
            found[kind].add(text)

    assert 'return format("{} {}", name, years)' in found[HoleKind.STATEMENT]
    assert '"{} {}", name, years' in found[HoleKind.ARGUMENTS]
    assert "age + 1" in found[HoleKind.EXPRESSION]
    assert 'return "Oh, " + name' in found[HoleKind.BODY]
    assert "age: int" in found[HoleKind.FIELD]
    assert any(text.endswith("name\n    }") for text in found[HoleKind.STATEMENTS])
    assert all("\n" not in text for text in found[HoleKind.LINE])


def test_a_third_of_the_holes_begins_within_a_word() -> None:
    starts = {token.start for token in tokenize(_PROGRAM)}
    drawn = [hole for seed in range(200) for hole in _draw(_PROGRAM, 6, seed)]

    within = sum(hole.start not in starts for hole in drawn)

    assert 0.2 < within / len(drawn) < 0.4


@pytest.mark.parametrize(
    "path", sorted((PROJECT_ROOT / "data/golden").rglob("*.vox*"))[::7], ids=lambda path: path.name
)
def test_every_hole_holds_code(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    holes = _draw(source, 20, mode=mode_of(path.name))

    assert len({hole.start for hole in holes}) == len(holes) > 0
    for hole in holes:
        text = source[hole.start : hole.end]
        code = [token for token in tokenize(text) if not token.is_trivia]
        assert hole.start > 0
        assert text == text.rstrip()
        assert any(character.isalnum() for character in text)
        assert code
        assert text.count("\n") < MAX_LINES


def test_the_same_seed_draws_the_same_holes() -> None:
    assert _holes(_PROGRAM, 5, 3) == _holes(_PROGRAM, 5, 3)
    assert 0 < len(_holes("let x = 1\n", 50)) < 10
    assert _holes("", 5) == []


def test_no_line_ends_within_a_string() -> None:
    source = 'fn f() to str {\n    return "first\nsecond"\n}\n'

    found = {text for seed in range(30) for kind, text in _holes(source, 8, seed) if kind is HoleKind.LINE}

    assert found
    assert not any("first" in text or "second" in text for text in found)
