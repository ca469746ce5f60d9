"""Argument lists drawn for functions."""

from itertools import islice

import pytest

from mens_pipeline.corpus.behaviour.arguments import Drawing, UndrawableError, type_key
from mens_pipeline.language.ast import Function, Module
from mens_pipeline.language.interpreter import Value, VariantValue, literal_of
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.examples import parse

_TYPES = """type Person { name: str, age: int }
type Shape = | Dot | Circle(r: int) | Labelled(shape: Shape, tag: str)
type Tree = | Leaf(n: int) | Node(left: Tree, right: Tree)
type Endless { next: Endless }
type Wood { name: str, parts: List[Wood], next: Option[Wood] }
type Chain = | End | Link(next: Rest)
type Rest { head: Chain, tail: Option[Rest] }
type Half { known: int, unknown: List[Missing], other: Option[Missing] }
type Callback = | Run(f: fn(int) to int)
type Odd = | Plain | Strange(f: Unknown)
@table type Note { title: str, stars: int }
url Path { Home Task(id: int) }
"""


def _parse(signature: str, body: str = "return 1") -> tuple[Module, Function]:
    module = parse(f"{_TYPES}fn f{signature} to int {{ {body} }}")
    function = module.declarations[-1]
    assert isinstance(function, Function)
    return module, function


def _draw(signature: str, body: str = "return 1", seed: str = "s", number: int = 300) -> list[tuple[Value, ...]]:
    module, function = _parse(signature, body)
    return list(islice(Drawing(module).lists(function.params, function.generics, seed), number))


def _values(type_text: str, body: str = "return 1") -> list[Value]:
    return [values[0] for values in _draw(f"(a: {type_text})", body)]


@every(
    "case",
    [
        *((kind.__name__, kind) for kind in (int, str, bool, float)),
        *((text, list) for text in ("List[int]", "list[str]")),
        *((text, dict) for text in ("Map[str, int]", "map[str, int]", "Person", "Note")),
        *((text, VariantValue) for text in ("Shape", "Path", "Option[int]", "Result[int]")),
    ],
)
def test_values_are_of_the_type(case: tuple[str, type]) -> None:
    type_text, kind = case
    values = _values(type_text)

    assert {type(value) for value in values} == {kind}
    assert len({literal_of(value) for value in values}) > 1


def test_records_have_the_fields_of_their_type() -> None:
    for value in _values("Person"):
        assert (list(value), type(value["name"]), type(value["age"])) == (["name", "age"], str, int)


def test_all_variants_are_drawn() -> None:
    assert {value.name for value in _values("Shape")} == {"Dot", "Circle", "Labelled"}
    assert {value.name for value in _values("Option[int]")} == {"Some", "None"}
    assert {(value.name, type(value.fields[0])) for value in _values("Result[int]")} == {("Ok", int), ("Error", str)}
    assert ("Error", bool) in {(value.name, type(value.fields[0])) for value in _values("Result[int, bool]")}


def test_recursive_types_end() -> None:
    assert {value.name for value in _values("Tree")} == {"Leaf", "Node"}
    assert {value.name for value in _values("Odd")} == {"Plain"}


def test_mutually_recursive_types_end() -> None:
    assert any(value["parts"] for value in _values("Wood"))
    assert {value.name for value in _values("Chain")} == {"End", "Link"}
    assert {len(value["unknown"]) for value in _values("Half")} == {0}
    assert {value["other"].name for value in _values("Half")} == {"None"}
    assert {len(value) for value in _values("List[List[int]]")} > {0, 1}


def test_decimals_are_drawn() -> None:
    texts = {literal_of(value) for value in _values("dec", "if a > 7.35dec { return 1 } return 0")}

    assert {"7.35dec", "8.35dec", "0.00dec"} <= texts


def test_literals_of_the_code_and_their_neighbours_are_drawn() -> None:
    body = f'match a {{ 4711 => return 1 _ => return 2 }} let s = "needle" let t = "{"x" * 50}" let x = 3.25'

    assert {4710, 4711, 4712} <= set(_values("int", body))
    strings = set(_values("str", body))
    assert "needle" in strings
    assert not any("x" * 50 in text for text in strings)
    assert {3.25, 2.75, 3.75} <= set(_values("float", body))
    assert "key_of_it" in set(_values("str", "let m = { key_of_it: 1 } return 1"))
    assert {len(text.split(",")) for text in _values("str", 'return len(a.split(","))')} >= {1, 2, 3, 4}


def test_the_smallest_values_come_first() -> None:
    assert _draw("(a: int, b: str, c: bool, d: List[int], e: float)")[0] == (0, "", False, [], 0.0)


def test_arguments_depend_on_one_another() -> None:
    pairs = _draw("(xs: List[int], x: int)")
    assert sum(x in xs for xs, x in pairs) > 40
    assert sum(0 <= x < len(xs) for xs, x in pairs) > 60
    texts = _draw("(s: str, part: str)")
    assert sum(part in s for s, part in texts) > 100
    assert sum(a == b for a, b in _draw("(a: Person, b: Person)")) > 60
    people = _draw("(people: List[Person], name: str)")
    assert sum(any(person["name"] == name for person in found) for found, name in people) > 30
    shapes = _draw("(s: Shape, r: int)")
    assert sum(r in shape.fields for shape, r in shapes) > 15


def test_the_same_seed_gives_the_same_lists() -> None:
    signature = "(a: int, b: List[str])"

    assert _draw(signature) == _draw(signature) != _draw(signature, seed="other")


def test_type_parameters_are_ints() -> None:
    module, function = _parse("<T>(xs: List[T])")
    values = list(islice(Drawing(module).lists(function.params, function.generics, "s"), 50))

    assert {type(element) for (xs,) in values for element in xs} == {int}


@every(
    "annotation",
    [
        *("", ": _", ": Unknown", ": List[Missing]", ": Endless"),
        *(": fn(int) to int", ": List[fn(int) to int]", ": Callback"),
        *(": Set[int]", ": Map[int, int]", ": Option[int, int]"),
    ],
)
def test_other_types_are_not_drawn(annotation: str) -> None:
    with pytest.raises(UndrawableError):
        _draw(f"(a{annotation})")


def test_types_that_mean_the_same_have_one_key() -> None:
    _, function = _parse("(a: list[int], b: List[int], c: map[str, dec], d: _)")
    keys = [type_key(param.type) for param in function.params]

    assert keys == ["List[int]", "List[int]", "Map[str, dec]", "?"]
    assert type_key(None) == "?"
