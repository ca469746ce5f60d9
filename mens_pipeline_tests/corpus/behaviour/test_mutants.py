"""Changed bodies, and probes."""

from mens_pipeline.corpus.behaviour.mutants import PROBE, Probes, build_mutants
from mens_pipeline.language.ast import Declaration, Module
from mens_pipeline.language.interpreter import UNIT, CallableProgram, Features, Limits, Machine, Native, Value, some
from mens_pipeline_tests.language.examples import parse

_LIMITS = Limits(max_steps=5_000)


def _call(module: Module, declaration: Declaration, *arguments: Value) -> str:
    program = CallableProgram(module, _LIMITS, Features())
    program.redefine(declaration)
    with program.running(5.0):
        result = program.call("f", arguments)
    return str(result.value) if result.returned else str(result.reason)


def _mutant_results(source: str, *arguments: Value) -> set[str]:
    module = parse(source)
    mutants = build_mutants(module.declarations[0], 100, "s")
    assert module.declarations[0] not in mutants
    return {_call(module, mutant, *arguments) for mutant in mutants}


def test_comparisons_are_flipped_and_moved_by_one() -> None:
    assert _mutant_results("fn f(n: int) to bool { return n < 5 }", 5) == {"True", "False"}
    assert _mutant_results("fn f(n: int) to bool { return n is 5 }", 5) == {"False"}


def test_constants_of_all_kinds_change() -> None:
    assert _mutant_results("fn f() to int { return 7 }") == {"8", "6"}
    assert _mutant_results("fn f() to int { return 0 }") == {"1"}
    assert _mutant_results('fn f() to str { return "a" }') == {"ax"}
    assert _mutant_results("fn f() to bool { return true }") == {"False"}
    assert _mutant_results("fn f() to float { return 1.5 }") == {"2.5", "0.5"}
    assert _mutant_results("fn f() to dec { return 1.5dec }") == {"2.5"}
    assert "no" in _mutant_results('fn f(n: int) to str { return match n { 3 => "yes" _ => "no" } }', 3)
    assert "no" in _mutant_results('fn f(n: str) to str { return match n { "a" => "yes" _ => "no" } }', "a")


def test_operators_are_swapped() -> None:
    assert _mutant_results("fn f(a: bool, b: bool) to bool { return a and b }", *[True, False]) == {"True"}
    assert _mutant_results("fn f(a: int, b: int) to int { return a + b }", 5, 3) == {"2"}
    assert _mutant_results('fn f(s: str) to str { return "<" + s }', "a") == {"a<", "<xa"}
    assert _mutant_results("fn f(a: bool) to bool { return not a }", *[True]) == {"True"}
    assert _mutant_results("fn f(s: str) to str { return s.to_upper() }", "aB") == {"ab"}
    assert _mutant_results("fn f(s: str) to str { return s.trim() }", "aB") == set()
    assert _mutant_results("fn f(n: int) to int { return n |> g }", 1) == set()


def test_branches_and_statements_are_dropped_and_swapped() -> None:
    both = 'fn f(b: bool) to str { if b { return "yes" } else { return "no" } }'
    assert {"no"} <= _mutant_results(both, *[True])
    assert {"yes"} <= _mutant_results(both, *[False])
    assert "3" in _mutant_results("fn f(b: bool) to int { if b { return 1 } return 3 }", *[True])
    swapped = "fn f(o: Option[int]) to int { return match o { Some(n) => n None => 2 } }"
    assert _mutant_results(swapped, some(5)) == {"2", "5"}
    statements = "fn f(n: int) to int { let mut x = n x = x + 1 x = x * 2 return x }"
    assert {"10", "6"} <= _mutant_results(statements, 5)


def test_loops_are_mutated_inside() -> None:
    source = "fn f(n: int) to int { let mut i = 0 while i < n { i += 1 } return i }"

    assert {"4", "StepLimit"} <= _mutant_results(source, 3)


def test_no_more_mutants_than_requested_are_drawn() -> None:
    module = parse('fn f(n: int) to str { if n > 1 and n < 100 { return "a" + "b" } return "c" + "d" + "e" }')
    chosen = build_mutants(module.declarations[0], 4, "s")

    assert len(chosen) == 4
    assert chosen == build_mutants(module.declarations[0], 4, "s")
    assert len({build_mutants(module.declarations[0], 4, seed) for seed in "abcdefgh"}) > 1


def test_the_function_inside_a_wrapper_is_changed() -> None:
    module = parse("@endpoint(kind: query) fn f(n: int) to int { return n + 1 }")
    mutants = build_mutants(module.declarations[0], 10, "s")

    assert {type(mutant).__name__ for mutant in mutants} == {"Endpoint"}
    assert {_call(module, mutant, 5) for mutant in mutants} == {"4", "7", "5"}


_BRANCHES = """fn f(n: int) to int {
    if n > 10 { return 1 }
    let kind = match n { 0 => "zero" 1 => { "one" } _ => "many" }
    let mut total = 0
    while total < n { total += 5 }
    for x in [1, 2] { total = total + x }
    loop { if total > 3 { break } else { total += 1 } }
    if kind is "one" { total + 100 } else if n is 2 { 7 } else { total }
}"""


def test_probes_distinguish_branches_and_change_no_result() -> None:
    module = parse(_BRANCHES)
    plain = CallableProgram(module, _LIMITS, Features())
    observed = CallableProgram(module, _LIMITS, Features())
    reached: set[int] = set()

    def reach(_machine: Machine, number: int) -> Value:
        reached.add(number)
        return UNIT

    observed.define(Native(PROBE, reach, 1, 1))
    observed.redefine(Probes().inside(module.declarations[0]))
    branches = {}
    for n in (0, 1, 2, 7, 11):
        reached.clear()
        with plain.running(5.0), observed.running(5.0):
            assert observed.call("f", (n,)).value == plain.call("f", (n,)).value
        branches[n] = frozenset(reached)

    assert len(set(branches.values())) == 5
    assert len(frozenset.union(*branches.values())) == 14
    assert PROBE not in _BRANCHES
