"""Renamed copies have the same structure; other changes make another structure."""

import pytest

from mens_pipeline.language import analyze
from mens_pipeline.language.outline import declaration_structures, structure_of
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import golden_programs, parse

_PROGRAM = """
// Adds up.
type Term = | Add(left: int, right: int) | Nothing
@table type Entry { text: str, priority: int }
@embed(model: "small", dimensions: 3)
fn total<T>(term: Term, entries: List[Entry]) to int {
    let mut sum = 10
    for entry, place in entries { sum = sum + (entry.priority * place) }
    let double = (x) => x * 2
    return match term {
        Add(a, 3) => total(Nothing, entries) + a
        _ => if sum > 5 { double(sum) } else { -1 }
    }
}
@test("adds") fn adds() { assert(total(Nothing, []) is 10 and "a" isnt "b" and true and 1.5 < 2.5 and 3dec > 1dec) }
"""

_COPY = """
@table type Row { words: str, rank: int }
type Sum = | Both(first: int, second: int) | Empty

@embed(model: "large", dimensions: 7)
fn whole<K>(sum: Sum, rows: List[Row]) to int {
    // Another comment.
    let mut result = 11
    for row, i in rows {
        result = result + row.rank * i
    }
    let twice = (n) => (n * 4)
    return match sum {
        Both(p, 4) => whole(Empty, rows) + p
        _ => if (result > 6) { twice(result) } else { -2 }
    }
}
@test("sums") fn sums() { assert(whole(Empty, []) is 12 and "c" isnt "d" and false and 2.5 < 3.5 and 4dec > 2dec) }
"""


def test_a_copy_with_other_names_literals_and_spacing_has_the_same_structures() -> None:
    original = declaration_structures(parse(_PROGRAM))
    copy = declaration_structures(parse(_COPY))

    assert sorted(s.digest for s in original) == sorted(s.digest for s in copy)
    assert {s.num_nodes for s in original} == {s.num_nodes for s in copy}


def test_a_whole_text_has_a_structure_too() -> None:
    reformatted = _PROGRAM.replace(
        "{ sum = sum + (entry.priority * place) }", "{\n\n  sum = sum + entry.priority*place\n}"
    )

    assert structure_of(parse(reformatted)) == structure_of(parse(_PROGRAM))
    assert structure_of(parse(_COPY)) != structure_of(parse(_PROGRAM))


@every_row(
    ("fn f(a: int) to int { return a + 1 }", "fn f(a: int) to int { return a - 1 }"),
    ("fn f(a: int) to int { return -a }", "fn f(a: bool) to int { return not a }"),
    ("fn f(a: int) { }", "fn f(a: str) { }"),
    ("fn f(a: List[int]) { }", "fn f(a: Set[int]) { }"),
    ("fn f(a: str) to str { return a.trim() }", "fn f(a: str) to str { return a.upper() }"),
    ("fn f(a: str) { print(a) }", "fn f(a: str) { log(a) }"),
    ("fn f(a: int, b: int) to int { return a }", "fn f(a: int, b: int) to int { return b }"),
    ("fn f() to int { return 1 }", 'fn f() to int { return "1" }'),
    ("fn f() { g(1) }", "fn f() { g(1, 2) }"),
    ("fn f() { g(1, h(2)) }", "fn f() { g(1, h(2, 3)) }"),
    ("fn f() { return }", "fn f() { break }"),
    ("fn f() { }", "pub fn f() { }"),
    ("@pure fn f() { }", "@deprecated fn f() { }"),
    ("@endpoint(kind: query) fn f() { }", "@endpoint(kind: mutation) fn f() { }"),
    ("component C() { view: row() { 1 } }", "component C() { view: column() { 1 } }"),
    ("component C() { view: row(gap=1) { 1 } }", "component C() { view: row(pad=1) { 1 } }"),
    ("component C() { view: text(gap=1) }", "component C() { view: text(pad=1) }"),
    ("component C() { state n = 1 view: row() { n } }", "component C() { derived n = 1 view: row() { n } }"),
)
def test_other_changes_make_another_structure(one: str, other: str) -> None:
    assert structure_of(parse(one)) != structure_of(parse(other))


def test_a_name_like_a_word_of_the_language_is_only_a_name() -> None:
    one = parse("type T = | Add(a: int) | B\nfn f(t: T) to int { return match t { Add(a) => a + a  _ => 1 } }")
    other = parse("type T = | Plus(a: int) | B\nfn f(t: T) to int { return match t { Plus(a) => a + a  _ => 1 } }")

    assert structure_of(one) == structure_of(other)


def test_a_declaration_alone_keeps_the_names_of_others() -> None:
    one, other = parse("type A { n: int }\nfn f(a: A) { }"), parse("type B { n: int }\nfn f(a: B) { }")

    assert structure_of(one.declarations[1]) != structure_of(other.declarations[1])
    assert declaration_structures(one) == declaration_structures(other)


def test_numbers_of_workflows_and_decorators_are_literals() -> None:
    head = "@distributed_train(strategy=ring_allreduce, peers={0})\n"
    program = head + 'workflow w() {{ let v = workflow.version("a", {0}, 9) }}\n'

    assert structure_of(parse(program.format(4))) == structure_of(parse(program.format(8)))


@pytest.mark.parametrize(
    "source",
    [
        "let x = a[" + "1 + (" * 3000 + "1" + ")" * 3000 + "]",
        "let x = " + "a[" * 3000 + "1" + "]" * 3000,
        "let x: " + "L[" * 3000 + "int" + "]" * 3000 + " = 1",
    ],
    ids=["below an index", "indexes", "types"],
)
def test_deeply_nested_programs_have_a_structure(source: str) -> None:
    assert structure_of(parse(source)).num_nodes > 3000


def test_different_golden_programs_have_different_structures() -> None:
    modules = [analyze(text).module for name, text in golden_programs().items() if name.endswith(".vox")]
    structures = [structure_of(module).digest for module in modules if module is not None]

    assert len(structures) > 200
    assert len(set(structures)) >= 0.99 * len(structures)
