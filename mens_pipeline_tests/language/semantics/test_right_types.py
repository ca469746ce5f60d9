"""Programs with right or unknown types have no findings."""

from mens_pipeline.language import Mode
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.semantics.tables import NOTE, POINT, SHAPE, Row, assert_row

_RIGHT = [
    Row("type R = | Ok(v: int) | Err(m: str)\nfn f(r: R) to int { return match r { Ok(v) => v Err(m) => len(m) } }"),
    Row(
        "type R = | Ok(v: int) | Error(m: str)\nfn f() to Result[int] { return Ok(1) }\nfn g()"
        " to R { return Error('') }"
    ),
    Row(
        "url Path { Home Task(id: int) }\ncomponent Home() { view: 1 }\nfragment F() { Home()"
        " }\nfn f() to Path { return Home }"
    ),
    Row("component Task(n: int) { view: 1 }\nurl Path { Task(id: int) }\nfragment F() { [Task(n=1), Task(1)] }"),
    Row("fn f() { return }\nfn g(x) { -5 x? assert(true) assert(true, 'no') }\ncomponent C() { let a = 1 }"),
    Row("fn f() { let xs = [[1], ['a'], [None]] xs[0][0].q }"),
    Row("actor A { on go(n: int) { n } }\nfn f() { let a = spawn(A) a.go(1) a.go(2) }"),
    Row(POINT + 'fn f(p: P) to P { let q = { x: 1, name: "a" } f(q) return { x: 1, name: "b", note: None } }'),
    Row(POINT + 'fn f(p: P, k: str) { p.note.unwrap() p["x"] p[k] p.keys() p.get("x") }'),
    Row('fn f() { let mut m = { a: 1 } m["b"] = 2 m.b m.a = 3 }'),
    Row("fn f(m: Map[str, int]) to int { m.get('a') m['a'] return m.x }"),
    Row("fn f() to float { let x: float = 1 return x + 1 * 2 - 1.5 }"),
    Row("fn f(x, y) { x + y x < y x and y -x not x x.foo() x.bar x[y] x(y) for z in x { z.q } x |> y }"),
    Row('fn f(d: dec) { d + 1.5dec d < 2dec -d d.round() "a" + d + [1] "a" < "b" }'),
    Row("fn f() to Option[int] { return None }\nfn g() to Result[int] { return Error('x') }\nfn h() { null Err(1) }"),
    Row("fn f(b: bool) to Option[int] { let x = if b { None } else { Some(1) } return x }"),
    Row("fn f(b: bool) to float { return if b { 1 } else { 1.5 } }"),
    Row("fn f(b: bool) { let x = if b { 1 } else { 'a' } x.y }"),
    Row(
        "fn f(b: bool) { let xs = [1, 'a'] let ys = [if b { panic('') } else { 1 }] let zs = [{ a:"
        " 1 }, { b: 2 }] xs[0].q }"
    ),
    Row("fn f() to List[int] { let mut xs = [] xs = xs.push(1) return xs }"),
    Row("fn f() to List[int] { return [1, 2].map(n => n * 2).filter(n => n > 1) }"),
    Row("fn f() to List[str] { return [1, 2].map(str) }"),
    Row("fn f(g: fn(int)) { g(1) f(fn(n) n + 1) f(f2) }\nfn f2(n: int) to str { return '' }"),
    Row("fn f(g: fn(int) to int) { f(fn(n, m = 1) n) let h = fn(a = 1) a h() }"),
    Row("fn f() { let x: Json = 1 let y: any = 'a' let z: Id[int] = 2 let w: List[_] = [1] }"),
    Row("fn f(j: Json) { j.len() j.get_object('a').unwrap().get_str('b') j.get('x') j.a.b }"),
    Row("fn f() to Result[int] { let j = std.json.parse('')? return j.get_int('a') }"),
    Row(
        "fn f() { fs.read('a') env.get('x') HTTP.get('x').anything() use_state(1) print(1, 2)"
        " db.query('x') std.mobile.push.register() }"
    ),
    Row("fn f() { process.run('a', []) secrets.resolve('x') mobile.vibrate() path.join('a', 'b') std.toml.parse('') }"),
    Row("fn f() { match std.regex.compile('a') { Ok(re) => re.find('a').unwrap().group(1) Error(e) => e } }"),
    Row("type Option = | Some(v: int) | None\nfn f() to Option { return Some(1) }\nfn g(o: Option) { o.x }"),
    Row("type str { a: int }\nfn f(s: str) { s.a }"),
    Row("type S = | A(n: int)\ntype R = | A(s: str)\nfn f() { A(1) A('x') match A(2) { A(n) => n } }"),
    Row("type S = | A(n: int) | B\ntype R = | A(s: str, n: int)\nfn f(x) { match x { A(n) => n _ => 1 } }"),
    Row(
        "url U { Home Task(id: int, ?page: int) }\nfn f() { Task(1) Task(1, None) Task(1, 2) match"
        " Task(1) { Home => 1 Task(a, b) => b } }"
    ),
    Row(SHAPE + "fn f(s: S) { Dot() Bar(n=1) match s { Dot => 1 Bar(n) => n Box(w, _) => w } let t = Bar t(1) }"),
    Row(SHAPE + "fn f(o: Option[S]) to int { return match o { Some(Dot) => 1 Some(_) => 2 None => 3 } }"),
    Row(
        'fn f(o) { match o { Err(e) => 1 Ok(v) => 2 } match o { null => 1 Some(x) => 2 } match o { "x" => 1 _ => 2 } }'
    ),
    Row("fn f(o, p) { match (o, p) { (Some(a), _) => 1, (None, b) => b } match (o, p) { (a, b) => a } match o { } }"),
    Row("import a.Kind\nfn f(k: Kind) { match k { Big => 1 Small(n) => 2 } }"),
    Row(
        "component C(a: int, go: fn(), attr_type: str = '') { view: button(on_click=go) { a } }\n"
        "component D() { state n = 1 view: C(a=n, go={ n = 2 }, key=1, attr_type='x') }"
    ),
    Row('@form F { field a: int }\nfragment G() { F(x=1) { "a" } }'),
    Row("@loading fn L() to Element { return text() { \"wait\" } }\nfn e() to Element { 'plain' }"),
    Row(
        NOTE + "fn f() to List[Note] { db.Note.all().unwrap() return db.Note.filter({ stars: 1, _id: 2"
        " }).order_by('title').limit(3) }"
    ),
    Row(
        NOTE + "fn f() to Result[List[Note]] { return db.Note.all() }\nfn g() to Result[Option[Note]] {"
        " return db.Note.find(1) }"
    ),
    Row(NOTE + "fn f() to Option[Note] { db.Note.find(1)? db.Note.find(1).is_some() return db.Note.get(1) }"),
    Row(
        NOTE + "fn f(x) { db.Note.all().filter(n => n.stars > 1).len() db.Note.where({ 'and': []"
        " }).using('fts').live('x') db.Note.insert(x) db.Note.query('x') }"
    ),
    Row(
        NOTE + "fn f() { db.Note.update(1, { stars: 2 })? db.Note.all().order_by(f) db.Note.first()"
        " db.Note.filter({ stars: 1 }).filter({ title: 'a' }) }"
    ),
    Row("fn f() { db.Elsewhere.insert({ a: 1 }) }"),
    Row("fn f(n: int) { 'x' |> print n |> str |> len let g = x => x g(1) }"),
    Row("fn f() { ({ a: 1 } with { b: 2 }).a }\nfn g() to int { return workflow.version('a', 1, 2) }"),
    Row("@require(n > 0) @ensure(result > n) fn f(n: int) to int { return n }"),
    Row("fn f(n: int) to int { side_effect { return 'x' } let v = side_effect { 1 } return v }"),
    Row("actor A { on go(n: int) to int { return n } }\nfn f() to int { spawn(f) let a = spawn(A) return a.go(1) }"),
    Row("let limit = 5\nfn f() to int { return limit }\nlet half: float = limit / 2"),
    Row("let total = 2 * later\nlet later = 4"),
    Row("state n = 1\nderived m = n\nfn f() { n = m + 1 }", mode=Mode.UI),
    Row("print(len('abc') + 1)\nlet mut x = 1\nx += 2", mode=Mode.SCRIPT),
    Row("fn f(p: Pair) to Pair { let mut r = { a: 1 } r = p return r }\ntype Pair { a: int }"),
]


@every("row", _RIGHT, ids=lambda row: row.source[-70:])
def test_programs_that_may_be_right_have_no_findings(row: Row) -> None:
    assert_row(row)
