"""Mistakes in types are found."""

from mens_pipeline.language import Code, Mode
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.semantics.tables import NOTE, POINT, SEMANTIC_CODES, SHAPE, Row, assert_row
from mens_pipeline_tests.language.semantics.test_names import NAME_ROWS

_FIELDS = [
    Row("fn f() { { a: 1, b: 2, c: 3, d: 4, e: 5 }.f }", ("unknown-field f",), "c: int, d: int, ... }`"),
    Row(POINT + "fn f(p: P) to int { return p.y }", ("unknown-field y",), "`P` has no field `y`"),
    Row(POINT + "fn f(p: P) to str { return p.nam }", ("unknown-field nam",), "Did you mean `name`?"),
    Row("fn f() { { a: 1 }.b }", ("unknown-field b",), "`{ a: int }` has no field `b`"),
    Row("fn f(s: str) { s.size }", ("unknown-field size",), "`str` has no fields, so no `.size`"),
    Row("fn f(o: Option[int]) { o.value }", ("unknown-field value",), "`match` or `?`"),
    Row(SHAPE + "fn f(s: S) { s.n }", ("unknown-field n",), "Look inside with `match`."),
    Row("fn f() { std.jsn }", ("unknown-name jsn",), "`std` has no member `jsn` | Did you mean `json`?"),
    Row(POINT + "fn f() to P { return { x: 1 } }", ("missing-field { x: 1 }",), "`P` needs `name`, which"),
    Row(POINT + "fn f() to P { return { } }", ("missing-field { }",), "needs `x` and `name`"),
    Row(POINT + 'fn f() to P { return { x: 1, name: "a", z: 2 } }', ("unknown-field z",), "`P` has no field `z`"),
    Row(POINT + "fn f() to P { return { x: 1, name: 2 } }", ("type-mismatch 2",), "the field `name` of `P` is `str`"),
    Row(POINT + "fn f(p: P) to bool { return p is { x: 1 } }", ("missing-field { x: 1 }",)),
    Row(POINT + 'fn f(p: P) { p["y"] p[1] }', ("type-mismatch 1",), "the key of a record is `str`"),
    Row("fn f(xs: List[int]) { xs[true] }", ("type-mismatch true",), "the index of a list is `int`"),
    Row("fn f(s: str) { s[0] }", ("type-mismatch s[0]",), "`.char_at(k)`"),
    Row("fn f(n: int) { n[0] }", ("type-mismatch n[0]",), "`int` has no elements"),
    Row("@index Note.by on (titel)\n" + NOTE, ("unknown-field titel",), "Did you mean `title`?"),
]
_METHODS = [
    Row(
        "import std.log\nimport std.json as j\nfn f() { log.inform('') j.parse(1) }",
        ("unknown-method inform", "type-mismatch 1"),
    ),
    Row("fn f(s: str) { s.to_int() }", ("unknown-method to_int",), "`str` has no method `to_int`"),
    Row("fn f(xs: List[int]) { xs.sort() }", ("unknown-method sort",), "`List[int]` has no method"),
    Row(
        "fn f(n: int) { n.sqrt() 1.5.sqr() true.x() }",
        ("unknown-method sqrt", "unknown-method sqr", "unknown-method x"),
    ),
    Row(
        "fn f(o: Option[int]) { o.unwrap_or(1) Ok(1).is_some() }",
        ("unknown-method unwrap_or", "unknown-method is_some"),
    ),
    Row(POINT + "fn f(p: P) { p.show() { a: 1 }.len() }", ("unknown-method show", "unknown-method len")),
    Row(SHAPE + "fn f(s: S) { s.area() }", ("unknown-method area",), "`S` has no method `area`"),
    Row("fn f() { f.x() }", ("unknown-method x",), "`fn() to _` has no method"),
    Row("fn f() { std.json.prse('') std.lg.info('') }", ("unknown-method prse", "unknown-name lg"), "mean `parse`?"),
    Row("fn f(j: Json) { j.fold() }", ("unknown-method fold",), "`Json` has no method `fold`"),
    Row("actor A { on go(n: int) to int { return n } }\nfn f() { spawn(A).og(1) }", ("unknown-method og",), "Actor[A]"),
    Row(NOTE + "fn f() { db.Note.fnd(1) }", ("unknown-method fnd",), "no method `fnd` | Did you mean `find`?"),
    Row(NOTE + "fn f() { db.Note.all().srt() }", ("unknown-method srt",), "`Rows[Note]`"),
    Row(NOTE + "fn f() { db.Note.find(1).map(1) }", ("unknown-method map",), "`Option[Note]`"),
]
_CALLS = [
    Row("fn f(a: int, b: str) { f(1) }", ("wrong-argument-count f(1)",), "Its parameters are (a: int, b: str)."),
    Row("fn f(a: int, b: int = 1) { f() }", ("wrong-argument-count f()",), "`f` takes 1 to 2 arguments, found 0"),
    Row(SHAPE + "fn f() { Bar(1, 2) Dot(1) }", ("wrong-argument-count Bar(1, 2)", "wrong-argument-count Dot(1)")),
    Row(SHAPE + "fn f() { Dot(1) }", ("wrong-argument-count Dot(1)",), "no fields, found 1 argument | Write `Dot`"),
    Row("fn f() { len() range(1, 2, 3) }", ("wrong-argument-count len()", "wrong-argument-count range(1, 2, 3)")),
    Row("fn f(s: str) { s.slice() s.trim(1) }", ("wrong-argument-count s.slice()", "wrong-argument-count s.trim(1)")),
    Row("fn f() { Some() }", ("wrong-argument-count Some()",), "`Some` takes 1 argument, found 0"),
    Row("fn f() { (fn(a) a)(1, 2) }", ("wrong-argument-count (fn(a) a)(1, 2)",), "this function takes 1 argument"),
    Row("fn f(j: Json) { j.get_str() }", ("wrong-argument-count j.get_str()",)),
    Row("fn f(a: int, b: int) { f(b=1, a=2) }", ("wrong-argument-name b=1", "wrong-argument-name a=2"), "called `a`"),
    Row("fn f() { len(x=[]) }", ("wrong-argument-name x=[]",), "argument 1 of `len` has no name"),
    Row('fn f(a: int) { f("x") }', ('type-mismatch "x"',), "the argument `a` of `f` is `int`, found `str`"),
    Row('fn f(s: str) { s.repeat("x") }', ('type-mismatch "x"',), "argument 1 of `repeat` is `int`"),
    Row(SHAPE + 'fn f() { Bar("x") }', ('type-mismatch "x"',)),
    Row("fn f(n: int) { n() }", ("not-callable n()",), "`n` is `int` and cannot be called"),
    Row("fn f() { 1(2) }", ("not-callable 1(2)",), "this function is `int`"),
    Row("fn f(n: int) { 1 |> n }", ("not-callable n",), "`int` cannot be called"),
    Row('fn f(n: int) { "x" |> f }', ('type-mismatch "x"',)),
    Row('fn f(n: int) { "x" |> (fn(a: int) a) }', ('type-mismatch "x"',), "of this function"),
    Row("fn f(n: int) { len(n) len(1) }", ("type-mismatch n", "type-mismatch 1"), "`len` does not take `int`"),
    Row("fn f(xs: List[int]) { xs.map(s => s.trim()) }", ("unknown-method trim",)),
    Row("fn f(xs: List[int]) { xs.filter(n => n) }", ("type-mismatch n => n",)),
    Row("fn f(xs: List[int]) { xs.map(fn(a, b) a) }", ("type-mismatch fn(a, b) a",)),
    Row("fn f(g: fn(int) to str) { f(fn(s: str) s) f(1) }", ("type-mismatch fn(s: str) s", "type-mismatch 1")),
    Row("fn f<T>(a: T, b: T) to T { return a }\nfn g() to str { return f(1, 2) }", ("type-mismatch f(1, 2)",)),
    Row('fn f<T>(a: T, b: T) to T { return a }\nfn g() { f(1, "x") }', ('type-mismatch "x"',)),
    Row("fn f<T>(xs: List[T], g: fn(T) to bool) { }\nfn h() { f([1], s => s.trim() is '') }", ("unknown-method trim",)),
    Row("@test fn t(x: int) { }", ("wrong-argument-count x: int",), "no parameters, found 1 | Use `@forall`."),
    Row("actor A { on go(n: int) { } }\nfn f() { let a = spawn(A) a.go('x') }", ("type-mismatch 'x'",)),
    Row("fn dot(a: int) { }\nfn f() { table() }\nfn table(n: int) { }", ("wrong-argument-count table()",)),
    Row(SHAPE + 'fn f() { Box(w="x", name="a") }', ('type-mismatch "x"',)),
]
_VIEWS = [
    Row(
        "component C(a: int, b: str = '') { view: 1 }\nfragment F() { C(b=1, c=2) }",
        ("wrong-argument-count C", "type-mismatch 1", "wrong-argument-name c=2"),
        "`C` needs `a`, which this view lacks",
    ),
    Row('@v0 "i" V { a: int b?: str }\nfragment F() { V(b=1) { "x" } }', ("wrong-argument-count V", "type-mismatch 1")),
    Row("fragment G(a: int) { 1 }\nfragment F() { G(a='x') }", ("type-mismatch 'x'",), "the attribute `a` of `G`"),
    Row("fragment F() { row(gap=nope) { let_(1) } }", ("unknown-name nope", "unknown-name let_")),
]
_DATABASE = [
    Row(NOTE + 'fn f() { db.Note.insert({ title: "a" }) }', ('missing-field { title: "a" }',)),
    Row(NOTE + 'fn f() { db.Note.filter({ titel: "a" }) }', ("unknown-field titel",), "`title`"),
    Row(NOTE + "fn f() { db.Note.filter({ title: 1 }) }", ("type-mismatch 1",)),
    Row(NOTE + "fn f() { db.Note.where({ strs: { lt: 1 } }) }", ("unknown-field strs",)),
    Row(NOTE + "fn f(id: int) { db.Note.update(id, { stars: true }) }", ("type-mismatch true",)),
    Row(NOTE + 'fn f() { db.Note.all().order_by("titel", "asc") }', ('unknown-field "titel"',)),
    Row(NOTE + 'fn f() { db.Note.all().select("title", "strs") }', ('unknown-field "strs"',)),
    Row(NOTE + 'fn f() { db.Note.all().limit("x") }', ('type-mismatch "x"',), "the argument of `limit` is `int`"),
    Row(
        NOTE + "fn f() { db.Note.all(1) db.Note.all().order_by() }",
        ("wrong-argument-count db.Note.all(1)", "wrong-argument-count db.Note.all().order_by()"),
        "takes 0 arguments",
    ),
    Row(NOTE + "fn f() { for n in db.Note.all() { n.titel } }", ("unknown-field titel",)),
    Row(NOTE + "fn f() { for n in db.Note.all()? { n.titel } }", ("unknown-field titel",)),
    Row(NOTE + "fn f() { match db.Note.find(1) { Some(n) => n.titel None => 1 } }", ("unknown-field titel",)),
    Row(
        NOTE + "fn f() { match db.Note.find(1) { Ok(Some(n)) => n.titel Ok(None) => 1 Error(e) => 2 } }",
        ("unknown-field titel",),
    ),
    Row(NOTE + "fn f() { match db.Note.all() { Ok(rows) => rows[0].titel Error(e) => 2 } }", ("unknown-field titel",)),
    Row(NOTE + "fn f() { db.Note.all().map(n => n.titel) }", ("unknown-field titel",)),
    Row(NOTE + "fn f() to List[str] { return db.Note.all() }", ("type-mismatch db.Note.all()",)),
    Row(NOTE + "fn f() to Option[int] { return db.Note.find(1) }", ("type-mismatch db.Note.find(1)",)),
    Row(NOTE + "fn f() to Result[Unit] { db.Note.delete(1)? }", ("missing-return db.Note.delete(1)?",)),
]
_OPERATORS = [
    Row("fn f(s: str) { s - 1 }", ("type-mismatch s - 1",), "`-` does not take `str` and `int`"),
    Row("fn f(x) { [1] + [2] x * true }", ("type-mismatch [1] + [2]", "type-mismatch x * true")),
    Row("fn f() { 1dec + 1 }", ("type-mismatch 1dec + 1",)),
    Row(
        'fn f() { 1 < "a" true < false 1dec < 1.0 }',
        ('type-mismatch 1 < "a"', "type-mismatch true < false", "type-mismatch 1dec < 1.0"),
    ),
    Row("fn f() { 1 and true or 2 }", ("type-mismatch 1", "type-mismatch 2"), "`and` takes bools, found `int`"),
    Row("fn f() { not 1 }", ("type-mismatch 1",), "the operand of `not` is `bool`"),
    Row('fn f() { -"a" }', ('type-mismatch -"a"',), "`-` takes a number"),
    Row("fn f() { if 1 { } while 2 { } }", ("type-mismatch 1", "type-mismatch 2"), "the condition of `if` is `bool`"),
    Row('fn f() { let mut s = "a" s -= 1 }', ("type-mismatch s -= 1",)),
    Row("@require(n) fn f(n: int) { }", ("type-mismatch n",), "the condition of `@require` is `bool`"),
    Row("@ensure(result) fn f() to int { return 1 }", ("type-mismatch result",)),
]
_PLACES = [
    Row("fn f() { let x: int = f }", ("type-mismatch f",), "is `int`, found `fn() to _`"),
    Row('let x: int = "a"', ('type-mismatch "a"',), "the value of `x` is `int`, found `str`"),
    Row('fn f() { let x: int = "a" let (a, b): int = 1 }', ('type-mismatch "a"', "type-mismatch (a, b)")),
    Row('fn f() { let mut x = 1 x = "a" }', ('type-mismatch "a"',), "what is assigned to `x`"),
    Row('fn f() { let mut x = 1 x += "a" }', ('type-mismatch "a"',)),
    Row("fn f() { let xs: List[int] = [1, true] }", ("type-mismatch true",), "an element of this list"),
    Row("fn f() { let xs: List[List[int]] = [[1], [true]] }", ("type-mismatch true",)),
    Row("fn f() to int { return true }", ("type-mismatch true",), "the result of `f` is `int`, found `bool`"),
    Row("fn f() to int { true }", ("type-mismatch true",)),
    Row("fn f(b: bool) to int { if b { true } else { 1 } }", ("type-mismatch true",)),
    Row("fn f(b: bool) to int { return if b { 1 } else { match 1 { 1 => true _ => 2 } } }", ("type-mismatch true",)),
    Row("fn f() to Option[int] { return 1 }", ("type-mismatch 1",)),
    Row("fn f() to Option[int] { return Some(true) }", ("type-mismatch Some(true)",)),
    Row("fn f() to Map[str, int] { return { a: true } }", ("type-mismatch { a: true }",)),
    Row("fn f() to Unit { return 1 }", ("type-mismatch 1",)),
    Row("fn f() to int { return 1.5 }", ("type-mismatch 1.5",)),
    Row("fn f(n: int = true) { }", ("type-mismatch true",), "the default of `n`"),
    Row(
        "fn f() { for x in 5 { } for c in 'abc' { } for y in f { } }",
        ("type-mismatch 5", "type-mismatch 'abc'", "type-mismatch f"),
    ),
    Row("fn f() { let g = fn(a: int) to str a }", ("type-mismatch a",), "the result of the lambda is `str`"),
    Row("@form F { field a: int default(true) }", ("type-mismatch true",)),
    Row(
        "component C() { state n: int = true derived m = n + 1 view: m.trim() }",
        ("type-mismatch true", "unknown-method trim"),
    ),
    Row("state n: int = 1\nfn f() { n = true }", ("type-mismatch true",), mode=Mode.UI),
    Row(
        "workflow w() to int { return true }\nactivity a() to int { return true }",
        ("type-mismatch true", "type-mismatch true"),
    ),
    Row("actor A { on go() to int { return true } }", ("type-mismatch true",)),
]
_ENDS = [
    Row("fn f() to int { }", ("missing-return fn f() to int { }",), "its body can end here without one"),
    Row("fn f() to int { let x = 1 }", ("missing-return let x = 1",)),
    Row("fn f(b: bool) to int { if b { return 1 } }", ("missing-return if b { return 1 }",)),
    Row("fn f(b: bool) to int { if b { return 1 } else { print(1) f(b) } }"),
    Row("fn f(b: bool) to int { while b { return 1 } }", ("missing-return while b { return 1 }",)),
    Row("fn f() to int { for x in [1] { return x } }", ("missing-return for x in [1] { return x }",)),
    Row("fn f() to int { loop { break } }", ("missing-return loop { break }",)),
    Row("fn f() to int { let mut x = 1 x = 2 }", ("missing-return x = 2",)),
    Row("fn f() to int { return }", ("missing-return return",)),
    Row("fn f() to int { loop { return 1 } }"),
    Row("fn f() to int { loop { for x in [1] { break } while true { break } } }"),
    Row("fn f() to int { while true { } }"),
    Row("fn f() to int { panic('no') }"),
    Row("fn f() to int { return 1 print(2) }"),
    Row("fn f() to Element { let x = 1 }", ("missing-return let x = 1",)),
    Row("@ai fn f() to int\nextern fn g() to int = 'm'"),
]
_TRIES = [
    Row("fn f() to int { return Ok(1)? }", ("try-outside-result Ok(1)?",), "is `int` | Return a `Result`"),
    Row("fn f() to Option[int] { return Some(Ok(1)?) }", ("try-outside-result Ok(1)?",)),
    Row("fn f() to Result[int] { return Ok(Some(1)?) }", ("try-outside-result Some(1)?",)),
    Row("fn f() to Result[int] { return Ok(5?) }", ("type-mismatch 5?",), "takes an `Option` or a `Result`"),
    Row("fn f() to int { let g = fn() Ok(1)? side_effect { Ok(1)? } return 1 }"),
    Row("fn f() to Result[int] { let x = Ok('a')? return Ok(x) }", ("type-mismatch Ok(x)",)),
]
_MISSING = {
    SHAPE + "fn f(t) { match t { (Dot, _) => 1, (Bar(n), _) => 2 } }": "`(Box(_, _), _)`",
    SHAPE + "fn f(s: S) to int { return match s { Dot => 1 Bar(n) => n } }": "takes `Box(_, _)`",
    SHAPE + "fn f(s) to int { return match s { Dot => 1 Bar(n) => n } }": "",
    SHAPE + "fn f(s: S) to int { return match s { Dot => 1 Bar(1) => 2 Box(w, n) => w } }": "`Bar(_)`",
    SHAPE + "fn f(s: Option[S]) { match s { Some(Dot) => 1 None => 2 } }": "`Some(Bar(_))`",
    "fn f(s: Option[int]) { match s { Some(n) => n } }": "`None`",
    "fn f(s: Result[int]) { match s { Ok(n) => n } }": "`Error(_)`",
    "fn f(n: int) { match n { 1 => 2 } }": "takes `_` | Add an arm for it, or `_ => ...`.",
    "fn f(a: int) { match (a, Some(a)) { (1, _) => 1, (_, None) => 2 } }": "`(_, Some(_))`",
    "fn f(t) { match t { (1, 2) => 1 } }": "`(_, _)`",
}
_MATCHES = [
    *(Row(source, ("missing-variant match",), says) for source, says in _MISSING.items()),
    Row(SHAPE + "fn f() { match f { Dot => 1 _ => 2 } }", ("unknown-variant Dot",), "never matches `fn() to _`"),
    Row("fn f() { assert() assert(1) }", ("wrong-argument-count assert()", "type-mismatch 1")),
    Row("fn f(s) { match s { Ok(n) => n } match s { None => 1 } }", ("missing-variant match", "missing-variant match")),
    Row("fn f(n: int) { match n { _ => 1 2 => 2 } }", ("unreachable-arm 2",), "never reached"),
    Row("fn f(n: int) { match n { 1 => 1 1 => 2 _ => 3 } }", ("unreachable-arm 1",)),
    Row(
        SHAPE + "fn f(s: S) { match s { Dot => 1 Dot => 2 x => 3 Bar(n) => n } }",
        ("unreachable-arm Dot", "unreachable-arm Bar(n)"),
    ),
    Row(
        SHAPE + "fn f(s: S) { match s { Bar(n, m) => 1 Dot(x) => 2 Box => 3 _ => 4 } }",
        ("wrong-argument-count Bar(n, m)", "wrong-argument-count Dot(x)", "wrong-argument-count Box"),
        "`Bar` has 1 field, its pattern 2",
    ),
    Row(SHAPE + "fn f(s) { match s { (Bar(n, m), _) => 1 _ => 4 } }", ("wrong-argument-count Bar(n, m)",)),
    Row(SHAPE + "fn f(s: S) { match s { Some(n) => 1 _ => 4 } }", ("unknown-variant Some",), "no variant `Some`"),
    Row(SHAPE + "fn f(s: int) { match s { Dot => 1 _ => 4 } }", ("unknown-variant Dot",), "never matches `int`"),
    Row(SHAPE + "fn f(s: S) { match s { Big => 1 _ => 4 } }", ("unknown-variant Big",)),
    Row("fn f(s: str) { match s { 1 => 1 _ => 2 } }", ("type-mismatch 1",), "this pattern is `int`"),
    Row("fn f(t: int) { match (t, t) { (a, b, c) => 1 } }", ("missing-variant match", "type-mismatch (a, b, c)")),
    Row("fn f(t: int) { let (a, b) = t }", ("type-mismatch (a, b)",), "a tuple pattern never matches `int`"),
    Row(SHAPE + "fn f(s: S) { match s { Box(w, name) => name - 1 _ => 2 } }", ("type-mismatch name - 1",)),
]


_ROWS = (*_FIELDS, *_METHODS, *_CALLS, *_VIEWS, *_DATABASE, *_OPERATORS, *_PLACES, *_ENDS, *_TRIES, *_MATCHES)


@every("row", _ROWS, ids=lambda row: row.source[-70:])
def test_mistakes_in_types_are_found_at_their_place(row: Row) -> None:
    assert_row(row)


def test_every_code_is_shown() -> None:
    shown = {Code(found.split()[0]) for row in (*_ROWS, *NAME_ROWS) for found in row.found}

    assert shown == SEMANTIC_CODES
