"""`@forall`: a hundred cases, the same for the same program and seed."""

import pytest

from mens_pipeline.language.interpreter import Outcome, run_tests
from mens_pipeline_tests.language.interpreter.verdicts import only_result, verdict

_KINDS = (
    "@forall fn t(i: int, f: float, b: bool, s: str, xs: List[int], ys: list[str], o: Option[float], n) {\n"
    '    assert(type_of(i) + type_of(f) + type_of(b) + type_of(s) is "intfloatboolstr")\n'
    '    assert(type_of(n) is "int" and len(xs) <= 8 and s.chars_count() <= 8)\n'
    '    for y in ys { assert(type_of(y) is "str") }\n'
    '    assert(o is None or type_of(o.unwrap()) is "float")\n'
    "    print(i, f, b, s, xs, ys, n)\n"
    "}"
)


def test_each_kind_is_drawn() -> None:
    result = only_result(_KINDS)

    assert (verdict(result), result.message) == ("pass", "")
    assert len(set(result.output.splitlines())) > 90


def test_the_first_case_is_the_smallest() -> None:
    assert only_result(_KINDS).output.startswith("0 0 false  [] [] 0\n")


def test_the_same_seed_gives_the_same_cases() -> None:
    outputs = [run_tests(_KINDS, seed=seed).tests[0].output for seed in (1, 1, 2)]

    assert outputs[0] == outputs[1] != outputs[2]


def test_a_counterexample_is_reported() -> None:
    result = only_result("@forall fn t(a: int) {\n    assert(a * 2 > a)\n}")

    assert result.outcome is Outcome.FAILED
    assert result.message == "with a = 0: expected `left > right` (left: 0, right: 0)"
    assert result.line == 2


def test_a_property_may_have_no_parameters() -> None:
    result = only_result("@forall fn t() { assert(false) }")

    assert result.message == "the assertion is false"


def test_a_property_may_return_an_error() -> None:
    assert verdict(only_result('@forall fn t(a: int) to Result[Unit] { return Error("x") }')) == "fail"


@pytest.mark.parametrize("annotation", ["dec", "Shape", "Map[str, int]", "Set[int]", "fn(int) to int", "List[Shape]"])
def test_other_types_cannot_be_drawn(annotation: str) -> None:
    result = only_result(f"@forall fn t(a: {annotation}) {{ assert(true) }}")

    assert verdict(result) == "unsupported:forall-type"
