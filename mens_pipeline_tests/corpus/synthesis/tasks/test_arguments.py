"""Arguments of tasks: of their type, and as the request promises."""

import pytest

from mens_pipeline.corpus.synthesis.tasks.arguments import arguments_for, parsed_inputs
from mens_pipeline.language import analyze
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.interpreter.values import Value, Variant


def _drawn(head: str, inputs: str) -> list[tuple[Value, ...]]:
    module = analyze(f"{head} {{ return 40 }}").module
    assert module is not None
    function = module.declarations[-1]
    assert isinstance(function, Function)
    return list(arguments_for(module, function, parsed_inputs(inputs), "seed"))


def test_inputs_are_parsed() -> None:
    """Parameter, equals sign, what it takes."""
    assert parsed_inputs("n=0..40, line=csv, len(xs)=2") == {"n": "0..40", "line": "csv", "len(xs)": "2"}
    assert parsed_inputs("") == {}


def test_ints_lie_in_their_range() -> None:
    """Those of lists, options and records as well; what is not named takes anything."""
    ints = [n for (n,) in _drawn("fn f(n: int) to int", "n=3..9")]
    nested = [x for (xs,) in _drawn("fn f(xs: List[int]) to int", "xs=0..5, len(xs)=2") for x in xs]
    free = [n for (n,) in _drawn("fn f(n: int) to int", "")]
    records = _drawn("type P { x: int, on: bool }\nfn f(p: P, on: bool) to int", "x=0..5, on=0..1")

    assert set(ints) == set(range(3, 10))
    assert min(nested) >= -9
    assert {41, -1} <= set(free)
    assert all(0 <= p["x"] <= 5 and type(p["on"]) is bool and type(on) is bool for p, on in records)


def test_lists_have_their_fewest_elements() -> None:
    """Where the request says so."""
    assert min(len(xs) for (xs,) in _drawn("fn f(xs: List[int]) to int", "len(xs)=3")) == 3
    assert min(len(xs) for (xs,) in _drawn("fn f(xs: List[int]) to int", "")) == 0


def test_fields_of_variants_go_by_their_names() -> None:
    """And what Some, Ok and Error hold by the name of the parameter."""
    head = "type S = | A(left: int, right: int) | B\nfn f(s: S, o: Option[int]) to int"
    for shape, option in _drawn(head, "left=0..3, right=50..60, o=7..8"):
        assert isinstance(shape, Variant)
        assert shape.name == "B" or (0 <= shape.fields[0] <= 3 and 50 <= shape.fields[1] <= 60)
        assert option.fields == () or option.fields[0] in {7, 8}


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("phrase", r"\S+( \S+)*"),
        ("wordlist", r"[^,\s]+(,[^,\s]+)*"),
        ("csv", r"-?\d+(,-?\d+)*"),
        ("integer", r"-?\d+"),
        ("tea|Oslo", r"tea|Oslo"),
        ("padded", r"[\s\S]*"),
    ],
)
def test_texts_are_of_their_kind(kind: str, pattern: str) -> None:
    """Words between single spaces, numbers between commas, one of a few."""
    import re  # noqa: PLC0415 - this test alone

    texts = [text for (text,) in _drawn("fn f(t: str) to int", f"t={kind}")]

    assert all(re.fullmatch(pattern, text) for text in texts)
    assert len(set(texts)) > 1
