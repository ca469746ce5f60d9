"""Every name finds its declaration, or is a finding at its place."""

from mens_pipeline.language import Mode
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.semantics.tables import Row, assert_row

_UNKNOWN = [
    Row("fn f() to int { return cout }\nlet count = 1", ("unknown-name cout",), "Did you mean `count`?"),
    Row("fn f() { g(1) }", ("unknown-name g",), "no name `g`"),
    Row("fn f() { await f() }", ("unknown-name await",), "like any other"),
    Row("fn f(x: int) to int { return abs(x) }", ("unknown-name abs",), "`abs` is a method: write `value.abs(...)`."),
    Row("type P { x: int }\nfn f() { P }", ("unknown-name P",), "It is a type: write a record"),
    Row('fn f() { text("hi") }', ("unknown-name text",), "A view takes what it shows in braces"),
    Row("fn f() { if true { let x = 1 } x }", ("unknown-name x",)),
    Row("fn f() { for x in [1] { x } x }", ("unknown-name x",)),
    Row("fn f() { match Some(1) { Some(n) => n None => n } }", ("unknown-name n",)),
    Row("fn f() { let x = x }", ("unknown-name x",)),
    Row("fn f() { let g = fn(n) g(n) }", ("unknown-name g",)),
    Row("fn f(a: int = b, b: int = a) { }", ("unknown-name b",)),
    Row("fn f() { a += 1 }", ("unknown-name a",)),
    Row("fn f() { xs[k] = 1 }", ("unknown-name xs", "unknown-name k")),
    Row("fn f() { let g = x => y side_effect { z } }", ("unknown-name y", "unknown-name z")),
    Row("fn f(x) { 1 + a + f(b) + g([c]) }\nfn g(x) { }", ("unknown-name a", "unknown-name b", "unknown-name c")),
    Row("fn f() { Card() }", ("unknown-name Card",)),
    Row("component Card() { view: row() { Crad() } }", ("unknown-name Crad",), "`Card`"),
    Row("component C() { effect depends_on (n): { } view: n }", ("unknown-name n", "unknown-name n")),
    Row("component C() { state n = 1 view: m }", ("unknown-name m",)),
    Row("fragment F(a: int) { b }", ("unknown-name b",)),
    Row("@require(x > 0) fn f() { }", ("unknown-name x",)),
    Row("@require(result > 0) fn f() to int { return 1 }", ("unknown-name result",)),
    Row("@ensure(result > 0, fallback: nought) fn f() to int { return 1 }", ("unknown-name nought",)),
    Row("@form F { field a: int default(b) }", ("unknown-name b",)),
    Row("state n = m", ("unknown-name m",), mode=Mode.UI),
    Row("print(x)\nlet y = 1", ("unknown-name x",), mode=Mode.SCRIPT),
    Row("@table type Note { a: str }\nfn f() { db.Nte.all() }", ("unknown-name Nte",), "Did you mean `Note`?"),
    Row("state_machine M { state Aa terminal state Bbb on Go from Aa -> Bb }", ("unknown-name Bb",), "mean `Bbb`?"),
    Row("state_machine M { state A on Go from X -> A }", ("unknown-name X",), "no state `X`"),
]
_NEARLY = [
    Row("@push { on_register: ad }\nfn add() { }", ("unknown-name ad",), "Did you mean `add`?"),
    Row("@deep_link { scheme: app on_link: opn }\nfn open() { }", ("unknown-name opn",)),
    Row("@back_button { fallback: hme }\nfn home() { }", ("unknown-name hme",)),
    Row("@form F { on_submit: sav }\nfn save() { }", ("unknown-name sav",)),
    Row('routes { "/" to Hom { "/a" to Home } }\ncomponent Home() { view: row() { } }', ("unknown-name Hom",)),
    Row('routes { "/" to A with loader: lod }\nfn load() { }\nfragment A() { 1 }', ("unknown-name lod",)),
    Row("routes { not_found: Hom }\ncomponent Home() { view: row() { } }", ("unknown-name Hom",)),
    Row("@index Noe.by_a on (a)\n@table type Note { a: str }", ("unknown-name Noe",)),
    Row("@ai(structured_output=Wether) fn f() to str\ntype Weather { a: int }", ("unknown-name Wether",)),
]
_TYPES = [
    Row("fn f(x: flaot) { }", ("unknown-type flaot",), "Did you mean `float`?"),
    Row("fn f() to Lst[int] { return [] }", ("unknown-type Lst",), "`List`"),
    Row("type P { x: Q }", ("unknown-type Q",)),
    Row("type S = | A(x: Q)", ("unknown-type Q",)),
    Row("let x: Q = 1", ("unknown-type Q",)),
    Row("fn f() { let x: Q = 1 fn(a: R) to S 1 }", ("unknown-type Q", "unknown-type R", "unknown-type S")),
    Row("fn f(g: fn(Q) to R) { }", ("unknown-type Q", "unknown-type R")),
    Row("fn f<T>(x: T) { } fn g(x: T) { }", ("unknown-type T",)),
    Row("fn f(x: List[int, str]) { }", ("wrong-argument-count List[int, str]",), "takes 1 type in brackets, found 2"),
    Row("fn f(x: Map[int, str, int]) { }", ("wrong-argument-count Map[int, str, int]",), "takes 2 types"),
    Row("@table type Note { a: str }\nfn f(x: Id[Nte]) { }", ("unknown-type Nte",)),
    Row('url U { A(x: Q) }\n@v0 "i" V { a: Q }', ("unknown-type Q", "unknown-type Q")),
    Row("state_machine M { state A(x: Q) }", ("unknown-type Q",)),
    Row("@form F { field a: Q }", ("unknown-type Q",)),
]
_VARIANTS = [
    Row("type S = | Dot | Bar(n: int)\nfn f(s: S) { match s { Dt => 1 _ => 2 } }", ("unknown-variant Dt",), "`Dot`"),
    Row("type S = | Dot | Bar(n: int)\nfn f(s) { match s { Br(n) => n _ => 2 } }", ("unknown-variant Br",), "`Bar`"),
    Row("fn f(s) { match s { (Br(n), _) => n _ => 2 } }", ("unknown-variant Br",)),
]
_DUPLICATES = [
    Row("fn f() { }\nfn f() { }", ("duplicate-declaration f",), "a second time | Rename one of them"),
    Row("let f = 1\ncomponent f() { view: 1 }", ("duplicate-declaration f",), "the component `f`"),
    Row("type S = | A\nfn A() { }", ("duplicate-declaration A",)),
    Row("type S { a: int }\n@table type S { b: int }", ("duplicate-declaration S",), "the type `S`"),
    Row("fn f(a: int, a: int) { }", ("duplicate-declaration a: int",), "the parameter `a`"),
    Row("actor A { on go() { } on go() { } }", ("duplicate-declaration go",), "the event `go`"),
    Row("component C() { state n = 1 derived n = 2 view: n }", ("duplicate-declaration n",), "the member `n`"),
    Row("state_machine M { state A state A }", ("duplicate-declaration A",), "the state `A`"),
    Row("state_machine M { state A(x: int, x: int) }", ("duplicate-field x",)),
    Row("type P { x: int, x: str }", ("duplicate-field x",)),
    Row("type S = | A(x: int, x: int)", ("duplicate-field x",)),
    Row("@form F { field a: int field a: str }", ("duplicate-field a",)),
    Row("let p = { a: 1, a: 2 }", ("duplicate-field a: 2",), "the field `a` occurs twice"),
    Row("type S = | A | A", ("duplicate-variant A",)),
]
_CONTROL = [
    Row("fn f() { let x = 1 x = 2 }", ("not-mutable x",), "variable `x` cannot be assigned to | Write `let mut x`."),
    Row("fn f(x: int) { x += 2 }", ("not-mutable x",), "the parameter `x`"),
    Row("fn f() { for x in [1] { x = 2 } }", ("not-mutable x",)),
    Row("fn f() { for x, i in [1] { i = 2 } }", ("not-mutable i",)),
    Row("fn f() { match Some(1) { Some(n) => { n = 1 } None => { 1 } } }", ("not-mutable n",)),
    Row("let x = 1\nfn f() { x = 2 }", ("not-mutable x",), "the constant `x`"),
    Row("fn f() { f = 2 }", ("not-mutable f",)),
    Row("fn f() { len = 2 }", ("not-mutable len",)),
    Row("component C() { derived n = 1 on mount: { n = 2 } view: n }", ("not-mutable n",), "derived value"),
    Row("fn f() { 1 = 2 f()[0] = 3 }", ("not-mutable 1", "not-mutable f()"), "only names"),
    Row("fn f() { let p = { a: [1] } p.a[0] = 3 }", ("not-mutable p",)),
    Row("fn f() { break }", ("outside-loop break",), "`break` is not in a loop"),
    Row("fn f() { while true { let g = fn() { continue } } }", ("outside-loop continue",)),
    Row("fn f() { loop { side_effect { break } } }", ("outside-loop break",)),
    Row("fn f() { if true { break } }", ("outside-loop break",)),
]
NAME_ROWS = (*_UNKNOWN, *_NEARLY, *_TYPES, *_VARIANTS, *_DUPLICATES, *_CONTROL)
"""Programs with mistakes in their names."""

_RIGHT = [
    Row("fn f() { let x = 1 let x = x + 1 x }"),
    Row("fn f() { let mut x = 1 x = 2 x += 3 let g = fn() { x = 4 } }"),
    Row("fn f() { let mut (a, _) = (1, 2) a = 3 }"),
    Row("fn f() { let x = 1 if true { let x = 2 x } x }"),
    Row("fn f() { loop { break } while true { continue } for x in [1] { break } }"),
    Row("fn f() { for x, i in [1] key=x { x + i } }"),
    Row("fn f() { for x in [1] { if x > 0 { break } match x { 1 => continue _ => 2 } } }"),
    Row("fn f<T>(xs: List[T]) to List[T] { let y: List[T] = xs return y }"),
    Row("type S = | A | B(n: int)\ntype R = | A\nfn f(s) to int { return match s { A => 1 B(n) => n _ => 3 } }"),
    Row("import a.b.Kind\nfn f(k: Kind) { match k { Big => Big Small(n) => n Tiny => Tiny() } db.Other.all() }"),
    Row("import std.log\nimport std.fs as files\nfn f() { log.info(files.read('x').unwrap()) }"),
    Row("import react Chart from 'x'\ncomponent C() { view: Chart(a=1) }"),
    Row("import rust:semver as semver\nfn f(v: semver) { semver.parse(v) }"),
    Row("import json\nfn f() { json.parse('') }"),
    Row("fn f() { db.Item.all() }\n@index Item.by_a on (a)\nfn g(x: Id[Item]) to List[Item] { return [] }"),
    Row("@push { on_register: elsewhere zzz: nothing }\n@form F { on_submit: elsewhere }"),
    Row('routes { "/" to Elsewhere with (loader: a, pending: b) error: Nowhere not_found: Gone }'),
    Row("import a.Page\nroutes { not_found: Page }"),
    Row("partial state_machine M { on Go from A -> B }\nstate_machine N { state A on Go from any -> A }"),
    Row("@table type Note { a: str }\n@index Note.by_a on (a, _id)"),
    Row(
        "@ensure(result > 0, fallback: g) @invariant(n > 0) fn f(n: int) to int { return n }\nfn"
        " g() to int { return 1 }"
    ),
    Row("@ai(structured_output=Elsewhere, tier_max=Local) fn f() to str"),
    Row("actor A { on go(n: int) { n } on stop() { } }\nfn f() { let a = spawn(A) a.go(1) }"),
    Row("workflow w(n: int) to int { return a1(n) }\nactivity a1(n: int) to int { return n }"),
    Row("@form F { field a: int default(1) on_submit: save }\nfn save() { }"),
    Row("component C(a: int) { state n: int = a derived m = n let k = 1 on mount: { n = 2 } view: text() { m } }"),
    Row("state n: int = 0\nderived m = n\non mount: go()\nfn go() { n = m }", mode=Mode.UI),
    Row("fn helper() to int { return 1 }\nprint(helper())\nlet x = 1\nprint(x)", mode=Mode.SCRIPT),
    Row("fn main() { }\nprint(1)", mode=Mode.SCRIPT),
    Row('@v0 from "x.png" V { a: int }\nfragment F() { V(a=1) }'),
    Row("@tokens { color a light: '#fff' dark: '#000' }"),
    Row("fn f(x: Vec[float, 3], y: dec, z: _, j: Json) { }"),
    Row("workflow w() { workflow_wait('1s') workflow.version('a', 1, 2) }"),
    Row("fn f() { let Some(x) = Some(1) x }"),
    Row("fn f() { let Kind = 1 Kind }"),
]


@every("row", [*NAME_ROWS, *_RIGHT], ids=lambda row: row.source[:60])
def test_only_mistakes_in_names_are_found(row: Row) -> None:
    assert_row(row)
