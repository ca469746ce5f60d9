"""Outputs of functions of several programs for the same arguments."""

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers, Responder, compute_outputs

_TWICE = "fn f(n: int) to int { return n * 2 }"
_SUM = "fn f(n: int) to int { return n + n }"
_WRONG = "fn f(n: int) to int { return n + 2 }"
_HUNGRY = """fn f(n: int) to int {
    let re = std.regex.compile("(a+)+$").unwrap()
    if re.matches("a".repeat(60) + "b") { return 1 }
    return 2
}"""


def _outputs(*programs: str) -> list[list[str | None]]:
    return [compute_outputs(programs, number, "f", "seed") for number in range(len(programs))]


def test_programs_that_do_the_same_return_the_same() -> None:
    twice, added, wrong = _outputs(_TWICE, _SUM, _WRONG)

    assert twice == added
    assert len(twice) > 10
    assert None not in twice
    assert twice != wrong
    assert sum(a == b for a, b in zip(twice, wrong, strict=True)) < len(twice) / 2


def test_arguments_are_drawn_from_every_program() -> None:
    guarded = 'fn f(s: str) to bool { return s.starts_with("unusual-") }'
    plain = "fn f(s: str) to bool { return false }"
    of_both, of_plain = _outputs(guarded, plain)

    assert "true" in of_both
    assert set(of_plain) == {"false"}


def test_calls_that_do_not_return_have_no_output() -> None:
    failing = "fn f(n: int) to int { return 1 / (n - n) }"
    found = _outputs(_TWICE, failing, "fn f(a: str, b: int) to int { return b }", "fn g() to int { return 1 }", "fn (")

    assert set(found[0]) > {None}
    assert set(found[2]) > {None}
    assert [a for a, b in zip(found[0], found[2], strict=True) if a is not None and b is not None] == []
    assert [set(outputs) for outputs in (found[1], *found[3:])] == [{None}] * 3
    assert len({len(outputs) for outputs in found}) == 1


def test_nothing_is_compared_if_no_arguments_can_be_drawn() -> None:
    assert _outputs("fn f(n) { return n }") == [[]]


def test_the_order_of_fields_does_not_matter() -> None:
    one = "fn f(n: int) { return Ok([{ a: n, b: (1, { c: n, d: 2 }) }]) }"
    other = "fn f(n: int) { return Ok([{ b: (1, { d: 2, c: n }), a: n }]) }"
    long = 'fn f(n: int) to str { return "a".repeat(2000) }'
    deep = "fn f(n: int) { let mut x = [n] for i in range(0, 60) { x = [x] } return x }"
    first, second, third, fourth = _outputs(one, other, long, deep)

    assert first == second
    assert None not in first
    assert set(third) == set(fourth) == {None}


def test_a_program_that_stops_its_worker_has_no_outputs() -> None:
    with BehaviourWorkers(1, seconds=1) as workers:
        found = list(workers.outputs([_TWICE, _HUNGRY, _SUM], "f", "seed"))

    assert found[0] == found[2] != []
    assert found[1] is None or set(found[1]) == {None}


def test_a_worker_responds_with_the_outputs_of_the_function() -> None:
    request = {"kind": "outputs", "programs": [_TWICE, _WRONG], "number": 1, "function": "f", "seed": "seed"}

    assert Responder().respond(request) == _outputs(_TWICE, _WRONG)[1]
