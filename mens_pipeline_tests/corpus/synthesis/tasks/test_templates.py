"""The files of tasks: what they may say, and that every fragment of them works."""

from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.tasks.templates import (
    BANKS,
    Hole,
    Row,
    draw_holes,
    fill,
    load_tasks,
)
from mens_pipeline.errors import ConfigurationError

_BANKS = """banks:
  tests:
    - {name: even, code: "$x % 2 is 0", is: even}
    - {name: above, code: "$e > $k", does: is above $k, do: are above $k, holes: {k: 3..9}}
  changes:
    - {name: plus, code: "$e + $other", done: increased by `$other`}
"""
_ATOM = """atoms:
  - name: test
    level: 0
    holes: {n: [n], p: "@tests"}
    fn: ["is_${p.name}"]
    takes: "$n: int"
    gives: bool
    says: ["tells whether `$n` ${p.does}", "is true if `$n` ${p.does}"]
    code: ["return ${p:$n}"]
"""


def _random(seed: int = 0) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def _folder(folder: Path, banks: str = _BANKS, atoms: str = _ATOM) -> Path:
    (folder / BANKS).write_text(banks, encoding="utf-8")
    (folder / "some_atoms.yaml").write_text(atoms, encoding="utf-8")
    return folder


def test_references_are_filled_from_the_inside() -> None:
    """An expression gets brackets where `$x` needs them; text alone never has attributes."""
    scope: dict[str, str | Row] = {
        "n": "price",
        "p": {"name": "even", "code": "$x % 2 is 0"},
        "c": {"name": "plus", "code": "$e + 3"},
    }

    assert fill("is_${p.name}($n) is ${p:$n}", scope) == "is_even(price) is price % 2 is 0"
    assert fill("${p:${c:$n}}", scope) == "(price + 3) % 2 is 0"
    assert fill("${p.name:len(xs)} ${p:len(xs)} ${p:xs[1]}", scope) == "even len(xs) % 2 is 0 xs[1] % 2 is 0"
    assert fill("$p, $x and $e", scope) == "even, $x and $e"
    with pytest.raises(KeyError, match=r"n\.code"):
        fill("${n:1}", scope)


def test_holes_are_filled_in_their_order(tmp_path: Path) -> None:
    """Ranges may begin at others, equal holes differ, and lists of one length belong together."""
    _, banks = load_tasks(_folder(tmp_path))
    holes: dict[str, Hole] = {
        "low": "2..5",
        "high": "low+1..low+2",
        "a": "@tests",
        "b": "@tests",
        "c": ["x", "y"],
        "d": ["1$c", "2$c"],
    }
    for seed in range(40):
        scope = draw_holes(holes, _random(seed), {}, banks)
        a, b = scope["a"], scope["b"]

        assert 1 <= int(str(scope["high"])) - int(str(scope["low"])) <= 2
        assert isinstance(a, dict)
        assert isinstance(b, dict)
        assert {a["name"], b["name"]} == {"even", "above"}
        assert {a["do"][:4], b["do"][:4]} == {"are "}
        assert (scope["c"], scope["d"]) in {("x", "1x"), ("y", "2y")}


def test_holes_that_cannot_differ_are_equal() -> None:
    assert draw_holes({"a": "3..3", "b": "3..3"}, _random(), {}, {}) == {"a": "3", "b": "3"}


def test_large_numbers_are_mostly_round() -> None:
    drawn = [int(str(draw_holes({"k": "41..900"}, _random(seed), {}, {})["k"])) for seed in range(200)]

    assert sum(number % 5 == 0 for number in drawn) > 100
    assert any(number % 5 for number in drawn)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("${p.does}", "${p.says}", r"some_atoms\.yaml: atoms\.test: `\$\{p\.says\}` in .* refers to nothing"),
        ("${p:$n}", "${p:$m}", r"`\$\{m\}` in .* refers to nothing"),
        ("${p:$n}", "${n.code}", r"`\$\{n\.code\}` in .* refers to nothing"),
        ("${p:$n}", "${p:$N}", r"has a `\$` without a reference"),
        ("{n: [n], ", "{n: [$q], ", r"`\$\{q\}` in '\$q' refers to nothing"),
        ("@tests", "@other", r"hole p is '@other', which is not a range of ints such as `2\.\.9`, a bank"),
        ("@tests", "2..m+4", r"hole p is '2\.\.m\+4', which is not a range"),
        ("@tests", "@changes", r"hole p, @changes plus: `\$\{other\}` in .* refers to nothing"),
        ("{n: [n], ", "{n: [n], e: [n], ", r"a hole is called e, as arguments are\. Rename it"),
        ("level: 0", "level: 9", r"some_atoms\.yaml: atoms\.0\.level: Input should be less than or equal to 5"),
        ("gives: bool", "returns: bool", r"atoms\.0\.gives: Field required"),
    ],
)
def test_mistakes_are_refused_with_their_place(tmp_path: Path, old: str, new: str, found: str) -> None:
    with pytest.raises(ConfigurationError, match=found):
        load_tasks(_folder(tmp_path, atoms=_ATOM.replace(old, new)))


def test_two_atoms_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"atoms\.test: there are two atoms of this name\. Rename one"):
        load_tasks(_folder(tmp_path, atoms=_ATOM + _ATOM.removeprefix("atoms:\n")))
