"""Observed functions: their examples and hidden tests, or the reason for having none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.corpus.behaviour.observe import Behaviour, observe_behaviour, passes
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze_uncached
from mens_pipeline_tests.every import every, every_row
from mens_pipeline_tests.speed import assert_below

_GRADE = """fn grade(points: int, bonus: bool) to str {
    let mut total = points
    if bonus { total = total + 5 }
    if total >= 90 { return "A" }
    if total >= 75 { return "B" }
    return "C"
}
"""
_PROGRAMS = {
    "grade": _GRADE,
    "above": """fn above(xs: List[int], limit: int) to List[int] {
    let mut out = []
    for x in xs { if x > limit { out = out.push(x) } }
    return out
}""",
    "half": 'fn half(n: int) to Result[int] { if n % 2 is 0 { return Ok(n / 2) } return Error("odd") }',
    "area": """type Shape = | Circle(r: int) | Rect(w: int, h: int)
fn area(s: Shape) to int { return match s { Circle(r) => square(r) * 3 Rect(w, h) => w * h } }
fn square(n: int) to int { return n * n }""",
    "older": """type Person { name: str, age: int }
fn older(a: Person, b: Person) to Person { if a.age > b.age { return a } return b }""",
    "price": "fn price(net: dec, member: bool) to dec { if member { return net * 0.90dec } return net + 1.50dec }",
    "shout": '@endpoint(kind: query) fn shout(s: str) to str { return s.to_upper() + "!" }',
    "step": 'activity step(n: int) to Result[int] { if n > 3 { return Ok(n) } return Error("small") }',
    "first_of": "fn first_of<T>(xs: List[T], other: T) to T { if xs.len() > 0 { return xs[0] } return other }",
    "root": """@require(n >= 0)
fn root(n: int) to int {
    let mut r = 0
    while (r + 1) * (r + 1) <= n { r += 1 }
    return r
}""",
    "factorial": "fn factorial(n: int) to int { if n is 0 { return 1 } return n * factorial(n - 1) }",
}


def _behaviour(name: str, source: str | None = None, seed: str = "s") -> Behaviour:
    behaviour = observe_behaviour(source or _PROGRAMS[name], name, seed=seed)
    assert isinstance(behaviour, Behaviour), behaviour
    return behaviour


@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_function_passes_its_own_sharp_tests(name: str) -> None:
    behaviour = _behaviour(name)

    assert passes(_PROGRAMS[name], behaviour.tests)
    assert 5 <= len(behaviour.hidden) <= 12
    assert behaviour.tests.count("@test") == len(behaviour.hidden)
    assert 1 <= len(behaviour.examples) <= 3
    assert len({example.result for example in behaviour.examples}) == len(behaviour.examples)
    assert not {seen.call for seen in behaviour.examples} & {seen.call for seen in behaviour.hidden}
    assert behaviour.is_sharp
    assert behaviour.num_mutants > 0


@every_row(
    ("total >= 90", "total > 90"),
    ("total >= 75", "total < 75"),
    ("total + 5", "total + 6"),
    ("if bonus", "if not bonus"),
    ('"C"', '"D"'),
    ('if total >= 75 { return "B" }', ""),
)
def test_wrong_functions_are_refused(old: str, new: str) -> None:
    assert not passes(_GRADE.replace(old, new), _behaviour("grade").tests)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_functions_that_return_a_constant_or_an_argument_are_refused(name: str) -> None:
    behaviour, source = _behaviour(name), _PROGRAMS[name]
    head = source[: source.index("{", source.index(f"{name}(") if f"{name}(" in source else source.index(f"{name}<"))]
    params = [part.split(":")[0].strip() for part in head[head.rindex(name) :].partition("(")[2].split(",")]
    results = {seen.result for seen in behaviour.hidden}

    assert len(results) > 1
    for value in (*results, *params):
        assert not passes(f"{head}{{ return {value} }}", behaviour.tests)


_SIMPLE = {
    "gcd": (
        "fn gcd(a: int, b: int) to int { if b is 0 { return a.abs() } return gcd(b, a % b) }",
        ("a", "b", "a.max(b)", "a.min(b)", "a + b", "a - b", "a * b", "a.abs()"),
    ),
    "second": (
        "fn second(xs: List[int]) to int { if len(xs) > 1 { return xs[1] } return 0 }",
        ("len(xs)", "if len(xs) > 0 { xs[0] } else { 0 }", "if len(xs) > 0 { xs[-1] } else { 0 }"),
    ),
    "joined": (
        'fn joined(a: str, b: str) to str { if a is "" { return b } return a + "-" + b }',
        ("a", "b", "a + b", "a.to_upper()", 'a + "-" + b'),
    ),
    "above": ("fn above(a: int, b: int) to bool { return a > b + 3 }", ("a > b", "a < b", "a is b", "a > 3", "b < 3")),
}


@pytest.mark.parametrize("name", _SIMPLE)
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_simpler_functions_are_refused(name: str, seed: str) -> None:
    source, others = _SIMPLE[name]
    behaviour = _behaviour(name, source, seed)
    head = source[: source.index("{")]

    assert passes(source, behaviour.tests)
    for other in others:
        assert not passes(f"{head}{{ return {other} }}", behaviour.tests), other


def test_an_equivalent_function_passes() -> None:
    other = """fn grade(p: int, extra: bool) to str {
    let t = if extra { p + 5 } else { p }
    if t < 75 { return "C" }
    if t < 90 { return "B" } else { return "A" }
}"""

    assert passes(other, _behaviour("grade").tests)


def test_all_results_are_tested_if_there_are_few() -> None:
    assert {seen.result for seen in _behaviour("grade").hidden} == {'"A"', '"B"', '"C"'}


def test_failing_calls_are_left_out() -> None:
    assert "root(-" not in _behaviour("root").tests
    assert "Error(" in _behaviour("half").tests


def test_the_same_seed_gives_the_same_behaviour() -> None:
    assert _behaviour("above") == _behaviour("above") != _behaviour("above", seed="other")


def test_arguments_can_be_given() -> None:
    arguments = [(n, False) for n in (0, 74, 75, 89, 90, 91, 100)]
    behaviour = observe_behaviour(_GRADE, "grade", seed="s", arguments=arguments)

    assert isinstance(behaviour, Behaviour)
    calls = {seen.call for seen in (*behaviour.examples, *behaviour.hidden)}
    assert calls <= {f"grade({n}, false)" for n, _ in arguments}


@every(
    "source",
    [
        "fn observed_1(n: int) to int { return observed_2(n) + 1 }\nfn observed_2(n: int) to int { return n * 2 }",
        "fn f(n: int) to int { return n + 1 }\nfn f(n: int) to int { return n * 2 }",  # the last one counts
        "fn f(a: float, b: float) to float { return a / b }",  # NaN does not equal itself
        "fn f(a: int, b: int = 2) to int { return a * b }",
    ],
)
def test_functions_pass_their_own_tests(source: str) -> None:
    assert passes(source, _behaviour(source[3 : source.index("(")], source).tests)


@every_row(
    ("fn f(p: str) to str { return std.fs.read(p) }", NoBehaviour.NOT_PURE),
    ('@ai(model="m") fn f(p: str) to str', NoBehaviour.NO_BODY),
    ("import other.part\nfn f(n: int) to int { return part.g(n) }", NoBehaviour.NOT_PURE),
    ("fn f(n: int) to int { return std.time.now_ms() + n }", NoBehaviour.NONDETERMINISTIC),
    ("fn f(n: int) to str { return std.uuid() + str(n) }", NoBehaviour.NONDETERMINISTIC),
    ("fn f(g: fn(int) to int) to int { return g(1) }", NoBehaviour.UNDRAWABLE),
    ("fn f(n) to int { return n }", NoBehaviour.UNDRAWABLE),
    ("fn f() to int { return 1 }", NoBehaviour.NO_PARAMETERS),
    ("fn f(n: int) to int { loop { } }", NoBehaviour.DOES_NOT_END),
    ("fn f(n: int) to int { return f(n + 1) }", NoBehaviour.DOES_NOT_END),
    ('fn f(n: int) to int { panic("no") }', NoBehaviour.FAILS),
    ("fn f(n: int) to fn(int) to int { return fn(m: int) to int m + n }", NoBehaviour.NO_LITERAL),
    ('fn f(n: int) to str { return "ab".repeat(500) + str(n) }', NoBehaviour.NO_LITERAL),
    ("fn f(n: int) to int { return 7 }", NoBehaviour.CONSTANT),
    ("fn f(n: int) to int { return n }", NoBehaviour.IDENTITY),
    ("fn f(a: int, b: str) to str { let c = a return b }", NoBehaviour.IDENTITY),
    ("fn f(a: bool) to int { if a { return 1 } return 2 }", NoBehaviour.TOO_FEW_INPUTS),
    (f"fn f(n: int) to int {{ return {' + '.join(['n'] * 2_000)} }}", NoBehaviour.TOO_LARGE),
)
def test_some_functions_have_no_behaviour(source: str, reason: NoBehaviour) -> None:
    assert observe_behaviour(source, "f", seed="s") is reason


def test_a_missing_function_is_refused() -> None:
    with pytest.raises(RefusedError, match="declares no function `g`"):
        observe_behaviour("fn f(n: int) to int { return n }\n@test fn g() { }", "g", seed="s")
    with pytest.raises(RefusedError, match="rejects"):
        observe_behaviour("fn f(", "f", seed="s")


def test_few_arguments_give_few_tests() -> None:
    source = "fn f(n: int) to int { return n * 3 }"
    behaviour = observe_behaviour(source, "f", seed="s", arguments=[(n,) for n in range(6)])

    assert isinstance(behaviour, Behaviour)
    assert (len(behaviour.examples), len(behaviour.hidden)) == (1, 5)


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_tests_hold_for_any_seed(seed: int) -> None:
    behaviour = _behaviour("area", seed=str(seed))

    assert passes(_PROGRAMS["area"], behaviour.tests)
    assert behaviour.is_sharp


def test_observing_is_fast() -> None:
    def work() -> None:
        for number in range(20):
            _behaviour("grade", seed=str(number))

    def parses() -> None:
        for _ in range(20):
            analyze_uncached(_GRADE)

    assert_below(work, 150, parses)
