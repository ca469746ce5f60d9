"""The files of tasks: their syntax, and the errors of bad ones."""

from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.tasks.templates import BANKS, Hole, Row, draft_task, draw_holes, fill, load_tasks
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
    ("old", "new", "missing"),
    [
        ("${p.does}", "${p.says}", "says"),
        ("${p:$n}", "${p:$m}", "m"),
        ("${p:$n}", "${n:1}", "n.code"),
        ("{n: [n], ", "{n: [$q], ", "q"),
        ('"@tests"', "tests", "tests"),
        ('"@tests"', "2..k+4", "k"),
        ('"@tests"', '"@no"', "no"),
        ('"@tests"', '"@changes"', "other"),
    ],
)
def test_unknown_references_and_holes_are_refused_with_their_atom(
    tmp_path: Path, old: str, new: str, missing: str
) -> None:
    (atom,), banks = load_tasks(_folder(tmp_path, atoms=_ATOM.replace(old, new)))

    with pytest.raises(ConfigurationError, match=f"^task test: '{missing}' refers to nothing. Correct it"):
        [draft_task(atom, banks, _random(seed), "0") for seed in range(20)]


def test_invalid_values_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"some_atoms\.yaml: atoms\.0\.level: Input should be less than"):
        load_tasks(_folder(tmp_path, atoms=_ATOM.replace("level: 0", "level: 9")))


def test_two_atoms_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"atoms\.test: there are two atoms of this name\. Rename one"):
        load_tasks(_folder(tmp_path, atoms=_ATOM + _ATOM.removeprefix("atoms:\n")))
