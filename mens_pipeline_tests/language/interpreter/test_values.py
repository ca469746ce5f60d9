"""Values are written as expressions that evaluate to them."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.language.interpreter import Features, Limits
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.running import CallableProgram
from mens_pipeline.language.interpreter.values import (
    NONE,
    UNIT,
    Value,
    VariantValue,
    equal,
    error,
    literal_of,
    ok,
    some,
)
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse

_TYPES = "type Shape = | Dot | Rect(w: int, h: int)\n"


def _evaluate(literal: str) -> Value:
    module = parse(f"{_TYPES}fn value() to int {{ return {literal} }}")
    program = CallableProgram(module, Limits(), Features())
    with program.running(5.0):
        return program.call("value", ()).value


_INTS = st.integers(-(2**63), 2**63 - 1)
_SCALARS = (
    st.booleans()
    | _INTS
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.decimals(-(10**9), 10**9, places=2)
    | st.sampled_from((NONE, UNIT, VariantValue("Dot")))
)


def _compound(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(values, max_size=3)
        | st.tuples(values, values)
        | st.tuples(values)
        | st.dictionaries(st.sampled_from(("name", "b c", "type", "Upper", "é", "x1", "")), values, max_size=3)
        | values.map(some)
        | values.map(ok)
        | values.map(error)
        | st.tuples(values, values).map(lambda fields: VariantValue("Rect", fields))
    )


@settings(deadline=None)
@given(st.recursive(_SCALARS, _compound, max_leaves=6))
def test_a_literal_evaluates_to_an_equal_value(value: Value) -> None:
    literal = literal_of(value)

    assert literal is not None
    parse(f"{_TYPES}fn same(v: int) to bool {{ return same_as(v) is {literal} }}")  # as hidden tests write it
    assert equal(Machine(Limits()), _evaluate(literal), value)


@every_row(
    (-3, "-3"),
    (-(2**63), "(-9223372036854775807 - 1)"),
    (1.0, "1.0"),
    (1e21, "1000000000000000000000.0"),
    (-math.inf, "(-1.0 / 0.0)"),
    (Decimal("1.50"), "1.50dec"),
    ('a"b\\\n', '"a\\"b\\\\\\n"'),
    ({"name": "Ann", "b c": 1, "type": True}, '{ name: "Ann", "b c": 1, "type": true }'),
    ({}, "{}"),
    ([some(1), NONE], "[Some(1), None]"),
    ((1,), "(1,)"),
    (VariantValue("Rect", (2, -3)), "Rect(2, -3)"),
)
def test_literals_are_readable(value: Value, literal: str) -> None:
    assert literal_of(value) == literal


@pytest.mark.parametrize(
    "value",
    [BUILT_INS["len"], math.nan, "\ud800", {"\ud800": 1}, {"f": BUILT_INS["len"]}, [1, math.nan], some(math.nan)],
)
def test_values_without_an_expression_have_no_literal(value: Value) -> None:
    assert literal_of(value) is None


def test_a_deep_value_has_no_literal() -> None:
    value: Value = 1
    for _ in range(30):
        value = [value]

    assert literal_of(value) is None
