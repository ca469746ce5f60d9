"""The shape of the tree: precedence, and the parts that are kept (A2-A8)."""

from dataclasses import fields

from mens_pipeline.language import Mode, ast
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse


def _short(value: object) -> str:
    if isinstance(value, ast.Node):
        parts = [_short(getattr(value, f.name)) for f in fields(value) if f.name not in {"start", "end"}]
        return f"{type(value).__name__}({' '.join(parts)})" if parts else type(value).__name__
    if isinstance(value, tuple):
        return "[" + " ".join(map(_short, value)) + "]"
    return "-" if value is None else str(value)


def _declarations(source: str, mode: Mode = Mode.SOURCE) -> tuple[ast.Declaration, ...]:
    return parse(source, mode).declarations


def _value(expression: str) -> str:
    (declaration,) = _declarations(f"let x = {expression}")

    assert isinstance(declaration, ast.Const)
    return _short(declaration.value).replace("Ident(", "(")


def _body(statements: str) -> str:
    (declaration,) = _declarations(f"fn f() {{ {statements} }}")

    assert isinstance(declaration, ast.Function)
    return _short(declaration.body).replace("Ident(", "(")


@every_row(
    ("a + b * c", "Binary(Add (a) Binary(Mul (b) (c)))"),
    ("a - b - c", "Binary(Sub Binary(Sub (a) (b)) (c))"),
    ("(a - b) * c", "Binary(Mul Binary(Sub (a) (b)) (c))"),
    ("a < b < c", "Binary(Lt Binary(Lt (a) (b)) (c))"),
    ("a or b and c", "Binary(Or (a) Binary(And (b) (c)))"),
    ("a |> b or c", "Binary(Pipe (a) Binary(Or (b) (c)))"),
    ("a and b with c", "With(Binary(And (a) (b)) (c))"),
    ("not a is b", "Binary(Is Unary(Not (a)) (b))"),
    ("-a.b", "Unary(Neg FieldAccess((a) b))"),
    ("-a?", "Try(Unary(Neg (a)))"),
    ("a + b?", "Binary(Add (a) Try((b)))"),
    ("a != b == c", "Binary(Is Binary(Isnt (a) (b)) (c))"),
    ("a.b(1).c[2]", "IndexAccess(FieldAccess(MethodCall((a) b [Argument(- IntLit(1))]) c) IntLit(2))"),
    ("f(1, b=2)", "Call((f) [Argument(- IntLit(1)) Argument(b IntLit(2))])"),
    ("row(gap=1)", "SelfClosingView(row [Attribute(gap IntLit(1))])"),
    ('div(attr_type="x")', "Call((div) [Argument(attr_type StringLit(x))])"),
    ('input(attr_type="x")', "SelfClosingView(input [Attribute(type StringLit(x))])"),
    ("Foo() { a, b }", "View(Foo [] [(a) (b)])"),
    ("y => a?.b", "FieldAccess(Lambda([Param(y - -)] - Try((a)) False) b)"),
    ("(a, b) => a", "Lambda([Param(a - -) Param(b - -)] - (a) False)"),
    ("fn(a: int) to int a", "Lambda([Param(a NamedType(int) -)] NamedType(int) (a) False)"),
    ("@cancellable fn() 1", "Lambda([] - IntLit(1) True)"),
    ("{ a: 1, 'b c': 2 }", "ObjectLit([ObjectField(a IntLit(1)) ObjectField(b c IntLit(2))])"),
    ("{ }", "ObjectLit([])"),
    ("{ a b }", "Block([ExprStatement((a)) ExprStatement((b))])"),
    ("(a,)", "TupleLit([(a)])"),
    ("1.5dec", "DecimalLit(1.5)"),
    ("0007", "IntLit(7)"),
    ("true", "BoolLit(True)"),
    (r'"a\n\q\\n\u{41}\0"', "StringLit(a\n\\q\\n\\u{41}\0)"),
    (r'"\\\\"', "StringLit(\\\\)"),
    (r'"\\"', "StringLit(\\)"),
    ('workflow_ok(workflow.version(("c"), 1, 2))', "Call((workflow_ok) [Argument(- WorkflowVersion(c 1 2))])"),
    ("match a { Ok(v) => v }", "Match((a) [MatchArm(ConstructorPattern(Ok [IdentPattern(v)]) (v))])"),
    ("match a { _ => return }", "Match((a) [MatchArm(WildcardPattern Block([Return(-)]))])"),
    ("for a, i in b key=c d", "For(a i (b) (c) (d))"),
    (
        "if a { b } else if c { d } else { e }",
        "If((a) [ExprStatement((b))] [ExprStatement(If((c) [ExprStatement((d))] [ExprStatement((e))]))])",
    ),
)
def test_expression_has_its_shape(expression: str, shape: str) -> None:
    """Powers, postfix loops, view calls and braces bind as G33-G42 say."""
    assert _value(expression) == shape


@every_row(
    ("x += 1", "[Assign((x) Binary(Add (x) IntLit(1)))]"),
    ("let mut (a, _) = b", "[Let(TuplePattern([IdentPattern(a) WildcardPattern]) - (b) True)]"),
    ('let "k": str = b', "[Let(LiteralPattern(k) NamedType(str) (b) False)]"),
    ("while a { break }", "[While((a) [Break])]"),
    ("loop { continue }", "[Loop([Continue])]"),
    ("return\n1", "[Return(-) ExprStatement(IntLit(1))]"),
    ("a\n- b", "[ExprStatement((a)) ExprStatement(Unary(Neg (b)))]"),
    ("if a { }\n.foo", "[ExprStatement(FieldAccess(If((a) [] -) foo))]"),
    ("side_effect { a }", "[ExprStatement(SideEffect([ExprStatement((a))]))]"),
    ("spawn(a)", "[ExprStatement(Spawn((a)))]"),
)
def test_statement_has_its_shape(statements: str, shape: str) -> None:
    """Statements keep what A5 lists."""
    assert _body(statements) == shape


@every_row(
    ("fragment F(a) { a }", "Fragment(F [Param(a - -)] Ident(a))"),
    ('@v0 from "p.png" N { a?: int }', "V0Component( p.png N [Field(a NamedType(int) True)])"),
    ("@index T.by on (a, b)", "Index(T by [a b])"),
    ("@table type T { a: Id[T] }", "Table(T [Field(a GenericType(Id [NamedType(T)]) False)])"),
    ("actor A { on e(n) to R { } }", "Actor(A [Handler(e [Param(n - -)] NamedType(R) [])])"),
    ("@distributed_train(strategy=dp, peers=4) workflow W() { }", "Workflow(W [] - [] dp 4)"),
    ("activity A() to int { 1 }", "Activity(A [] NamedType(int) [ExprStatement(IntLit(1))])"),
    ("@tokens { color a light: \"#f\" dark: '#0' }", "Tokens([DesignToken(color a [#f #0])])"),
    ("@tokens { spacing s: '1' }", "Tokens([DesignToken(spacing s [1])])"),
    ("@tokens { font f family: 'x' }", "Tokens([DesignToken(font f [x])])"),
    (r'@distributed_train(strategy="a\n\'b\'", peers=7, peers=0) workflow W() { }', "Workflow(W [] - [] a\n'b' 7)"),
    ("let x: V[007] = 1", "Const(x GenericType(V [NamedType(7)]) IntLit(1))"),
    ("@push { on_register: a }", "Push([[on_register a]])"),
    ("@back_button { on_press: a }", "BackButton([[on_press a]])"),
    ('@deep_link { scheme: "x" }', "DeepLink([[scheme x]])"),
    ("@form F { field a: int required max_len(3) range(1..9) default(2) on_submit: go }",
     "Form(F [FormField(a NamedType(int) True False - IntLit(2) [[max_len 3] [range 1..9]])] go - -)"),
    ('extern fn f() to int = "./m"', "Function(f [] [] NamedType(int) [] [] [] False True ./m)"),
    ("async fn f() { }", "Function(f [] [] - [] [] [] True False -)"),
    ("pub @pure @require(n > 0) @ensure(ok, fallback: g) fn f<T>(a: L[T], n = 1) uses net, mcp(t) to fn(int) { }",
     ("Function(f [T] [Param(a GenericType(L [NamedType(T)]) -) Param(n - IntLit(1))] "
      "FunctionType([NamedType(int)] -) [] [net mcp(t)] "
      "[Decorator(@pure [] - -) Decorator(@require [] Binary(Gt Ident(n) IntLit(0)) -) "
      "Decorator(@ensure [] Ident(ok) g)] False True -)")),
    ('@ai(model="a", tier_max=Pro, strengths=[fast, "deep"], other=1, model="b",) @uses(net, fs) fn f()',
     ("Function(f [] [] - [] [] [Decorator(@ai [DecoratorArgument(model a) DecoratorArgument(tier_max Pro) "
      'DecoratorArgument(strengths [fast "deep"]) DecoratorArgument(other 1) DecoratorArgument(model b)] - -) '
      "Decorator(@uses [DecoratorArgument(- net) DecoratorArgument(- fs)] - -)] False False -)")),
    ("import a.b as c, rust.x", "Import([ImportPath(symbol [a b] c []) ImportPath(symbol [rust x] - [])])"),
    ("import lib/x as { D, E as F }", "Import([ImportPath(symbol [lib x D] - []) ImportPath(symbol [lib x E] F [])])"),
    ('import react Foo from "./Foo", rust:serde(version: "1", git: g) as s',
     "Import([ImportPath(react [./Foo] Foo []) ImportPath(rust [serde] s [[version 1] [git g]])])"),
    ("type P { x: int, y: dec }", "TypeDef(P False [] [Field(x NamedType(int) False) Field(y DecimalType False)])"),
    ("pub type S =\n    | A\n    | B(x: int)",
     "TypeDef(S True [Variant(A []) Variant(B [Field(x NamedType(int) False)])] [])"),
    ("url R { Home, User(id: int, ?q: str) }",
     "Url(R False [Variant(Home []) Variant(User [Field(id NamedType(int) False) Field(q NamedType(str) True)])])"),
    ("partial state_machine M { state A(n: int) terminal state B on Go(x) from A -> B on Stop from any -> B(1) }",
     ("StateMachine(M False True [MachineState(A [StateField(n NamedType(int))] False) MachineState(B [] True)] "
      "[Transition(Go [x] A B) Transition(Stop [] - B)])")),
    ('routes { "/" to Home with (loader: l, pending: p) { "/a" to A } not_found: N error: E }',
     "Routes([Route(/ Home [[loader l] [pending p]] [Route(/a A [] [])])] N E)"),
    (("component C(a: int) { state n: int = 0 effect depends_on (n): { g() } view: row() on mount: go() n = 1 "
      'view: text() { "hi" } } style { .a { color: "red" } } raw_css { .b { x: "y" } }'),
     ("ReactiveComponent(C [Param(a NamedType(int) -)] [ReactiveMember(state n NamedType(int) - IntLit(0)) "
      "ReactiveMember(effect - - [n] Block([ExprStatement(SelfClosingView(g []))])) "
      "ReactiveMember(mount - - - Call(Ident(go) [])) ReactiveMember(statement - - - Assign(Ident(n) IntLit(1)))] "
      "View(text [] [StringLit(hi)]) [StyleRule(.a [[color red]] False) StyleRule(.b [[x y]] True)])")),
)  # fmt: skip
def test_declaration_has_its_shape(source: str, shape: str) -> None:
    """The records of A2, decorators as A4 says, routes as G22 does; of several views the last wins."""
    (declaration,) = _declarations(source)

    assert _short(declaration) == shape
    assert source[declaration.start : declaration.end] == source


@every_row(
    ('@test("adds") fn t() { }', "label", "adds"),
    ('@forall("holds") fn t(x: int) { }', "label", "holds"),
    ('@scheduled("1h") fn t() { }', "interval", "1h"),
    ("@endpoint(kind: mutation) fn t() { }", "kind", "mutation"),
    ('@mcp.tool "d" fn t() { }', "description", "d"),
    ('@mcp.resource("u", "d") fn t() { }', "uri", "u"),
    ("@loading fn t() { }", "function", None),
)
def test_wrapper_keeps_its_argument_and_its_function(source: str, field: str, value: str | None) -> None:
    """A wrapper is its argument and a function (G12)."""
    (wrapper,) = _declarations(source)
    function = getattr(wrapper, "function", None)

    assert isinstance(function, ast.Function)
    assert function.name == "t"
    assert value is None or getattr(wrapper, field) == value


def test_script_statements_become_one_main_at_the_end() -> None:
    """Declarations keep their order, statements end up in `main` (M2)."""
    first, second = _declarations("x = 1\nfn f() { }\nprint(x)\n", Mode.SCRIPT)

    assert isinstance(first, ast.Function)
    assert isinstance(second, ast.Function)
    assert (first.name, second.name, len(second.body)) == ("f", "main", 2)


def test_members_at_module_level_form_reactive_modules() -> None:
    """Consecutive members are one declaration, in `.vox.ui` files only (M5)."""
    declarations = _declarations("state n = 0\non mount: go()\nfn f() { }\nderived d = n\n", Mode.UI)

    assert [type(d).__name__ for d in declarations] == ["ReactiveModule", "Function", "ReactiveModule"]
