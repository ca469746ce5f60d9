"""Every kind of diagnostic with its place, message and advice; positions in a text, and verdicts as records."""

from typing import NamedTuple

from mens_pipeline.language import Code, Diagnostic, Position, Severity, SourceText, analyze, analyze_bytes
from mens_pipeline.language.front_end import MAX_WARNINGS, verdict_record
from mens_pipeline.language.parser.cursor import MAX_NESTING
from mens_pipeline.language.parser.modules import MAX_FAILURES
from mens_pipeline_tests.every import every, every_row
from mens_pipeline_tests.language.semantics.tables import SEMANTIC_CODES


class Expected(NamedTuple):
    """A text and its first diagnostic; `column` counts from 0."""

    code: Code
    source: str
    line: int
    column: int
    message: str
    advice: str | None


_ERRORS = [
    Expected(Code.EXPECTED_DECLARATION, "\nconst x = 1", 2, 0, "declaration, found identifier `const`", "`let`"),
    Expected(Code.EXPECTED_DECLARATION, "compoment C() { }", 1, 0, "identifier `compoment`", "mean `component`?"),
    Expected(Code.EXPECTED_DECLARATION, "fn f() { } }", 1, 11, "found `}`", "closed once too often"),
    Expected(Code.EXPECTED_DECLARATION, "type S = A | B", 1, 9, "found name `A`", "begins with `|`"),
    Expected(Code.EXPECTED_DECLARATION, "state n = 0", 1, 0, "found keyword `state`", "`.vox.ui`"),
    Expected(Code.EXPECTED_DECLARATION, "if a { }", 1, 0, "found keyword `if`", "mode `script`"),
    Expected(Code.EXPECTED_DECLARATION, "routes { '/' to A }", 1, 9, "single-quoted string", "double quotes"),
    Expected(Code.EXPECTED_EXPRESSION, "fn f() {\n    a +\n    b\n}", 2, 7, "found end of line", "of `+` on the same"),
    Expected(Code.EXPECTED_EXPRESSION, "fn f() { <div></div> }", 1, 9, "found `<`", None),
    Expected(Code.EXPECTED_EXPRESSION, "fn f() { a || b }", 1, 11, "found `|`", "Write `or`"),
    Expected(Code.EXPECTED_EXPRESSION, "fn f() {\n  fn g() { }\n}", 2, 2, "found keyword `fn`", "missing above"),
    Expected(Code.EXPECTED_NAME, "fn f(\n a: int\n) { }", 1, 5, "expected a parameter", "on one line"),
    Expected(Code.EXPECTED_NAME, "fn f(a: int,) { }", 1, 12, "expected a parameter, found `)`", "Remove the comma"),
    Expected(Code.EXPECTED_NAME, "fn f() { a.match }", 1, 11, "expected a member name after `.`", None),
    Expected(Code.EXPECTED_PATTERN, "fn f() { match x { 'a' => 1 } }", 1, 19, "expected a pattern", "double quotes"),
    Expected(Code.EXPECTED_TOKEN, "fn f() { g(a: 2) }", 1, 12, "expected `,` or `)`, found `:`", "`f(a=1)`"),
    Expected(Code.EXPECTED_TOKEN, "fn f()\n{ }", 1, 6, "expected `{` after the signature", "line of the signature"),
    Expected(Code.EXPECTED_TOKEN, "fn f() to int uses net { }", 1, 14, "identifier `uses`", "before the return type"),
    Expected(Code.EXPECTED_TOKEN, '@deprecated("old") fn f() { }', 1, 11, "takes no arguments", "Remove the paren"),
    Expected(Code.EXPECTED_TOKEN, "fn f() { spawn Foo(1) }", 1, 15, "expected `(` after `spawn`", "spawn(expression)"),
    Expected(Code.EXPECTED_TOKEN, "fn f() { match a { A if b => 1 } }", 1, 21, "expected `=>`", "no guards"),
    Expected(Code.EXPECTED_TOKEN, "@require(x) type T { a: int }", 1, 12, "expected `fn`", "functions only"),
    Expected(Code.EXPECTED_TOKEN, "fn f() {\n  if a && b { }\n}", 2, 10, "found identifier `b`", "Write `and`"),
    Expected(Code.EXPECTED_NAME, "fn f() { for (x in a) { } }", 1, 13, "found `(`", "without parentheses"),
    Expected(Code.EXPECTED_TOKEN, "fn f() { for x of a { } }", 1, 15, "identifier `of`", "Write `in`"),
    Expected(Code.EXPECTED_TOKEN, "fn f(a: Vec<int>) { }", 1, 11, "found `<`", "`List[int]`"),
    Expected(Code.EXPECTED_TYPE, "fn f(a: int[]) { }", 1, 12, "found `]`", "not `int[]`"),
    Expected(Code.EXPECTED_TYPE, "let x: (int, str) = y", 1, 7, "expected a type, found `(`", "no tuple, optional"),
    Expected(Code.UNCLOSED_DELIMITER, "fn f() {\n  g(1\n", 2, 3, "`(` of the argument list is never closed", "`)`"),
    Expected(Code.UNCLOSED_DELIMITER, "fn f() {\n  x\n", 1, 7, "the `{` of the block is never closed", "Add `}`"),
    Expected(Code.RETIRED_DECLARATION, "agent A { }", 1, 0, "`agent` declarations are retired", "`workflow`"),
    Expected(Code.OLD_ARM_ARROW, "fn f() { match a { B -> 1 } }", 1, 21, "expected `=>`", "`pattern => body`"),
    Expected(Code.INVALID_LAMBDA_HEAD, "let x = (a, 1) => a", 1, 8, "bare names", "fn(a: int)"),
    Expected(Code.INVALID_WORKFLOW_VERSION, 'fn f() { workflow.version("c", 0) }', 1, 9, "maximum", None),
    Expected(Code.INVALID_ENDPOINT_KIND, "@endpoint(kind: querry) fn q() { }", 1, 16, "expected `query`", "`query`?"),
    Expected(Code.UNKNOWN_EFFECT, "fn f() uses disk { }", 1, 12, "expected an effect", "Effects are clock"),
    Expected(Code.UNKNOWN_EFFECT, "fn f() uses randm { }", 1, 12, "identifier `randm`", "mean `random`?"),
    Expected(Code.INVALID_IMPORT, "import a,\n b", 1, 9, "expected a path to import", "on one line"),
    Expected(Code.INVALID_IMPORT, 'import rust:x(verson: "1")', 1, 14, "one of version", "mean `version`?"),
    Expected(Code.EXPECTED_STRING, "@scheduled('1h') fn f() { }", 1, 11, "an interval in double", "double quotes"),
    Expected(Code.EXPECTED_STRING, "@ai(model='m') fn f()", 1, 10, "double-quoted string", "double quotes"),
    Expected(Code.INVALID_FORM_ENTRY, "@form F { fild a: int }", 1, 10, "expected field", "mean `field`?"),
    Expected(Code.INVALID_FORM_ENTRY, "@form F { field a: int, field b: int }", 1, 22, "found `,`", "not separated"),
    Expected(Code.INVALID_DESIGN_TOKEN, "@tokens { colour a }", 1, 10, "expected color", "mean `color`?"),
    Expected(Code.INVALID_MOBILE_ENTRY, "@back_button { on: x }", 1, 15, "expected a key of `@back_button`", None),
    Expected(Code.INVALID_ROUTE_ENTRY, 'routes { "/" to H with (guard: g) }', 1, 24, "expected `loader`", None),
    Expected(Code.INVALID_ROUTE_ENTRY, 'routes { "/" to A, "/b" to B }', 1, 17, "found `,`", "not separated"),
    Expected(Code.INVALID_STATE_MACHINE_ENTRY, "state_machine M { on Go from A to B }", 1, 31, "expected `->`", None),
    Expected(
        Code.INVALID_TRAINING_STRATEGY, "@distributed_train(strategy=1) workflow W() { }", 1, 28, "strategy", None
    ),
    Expected(Code.INVALID_MODIFIER_TARGET, "pub component C() { }", 1, 4, "after `pub`, found keyword", None),
    Expected(Code.INVALID_OBJECT_KEY, "let x = { a: 1, type: 2 }", 1, 16, "expected an object key", "needs quotes"),
    Expected(Code.INVALID_REACTIVE_HOOK, "component C() { on click: x }", 1, 19, "`mount` or `cleanup`", None),
    Expected(Code.INVALID_ACTOR_MEMBER, "actor C { state n: int = 0 }", 1, 10, "expected an `on` handler", "only"),
    Expected(Code.UNKNOWN_DECORATOR_KEY, "@inference(heat=1) fn f() { }", 1, 16, "knows only the key model", None),
    Expected(Code.UNKNOWN_DECORATOR, "@server fn f() { }", 1, 0, "no decorator `@server`", "@endpoint(kind: server)"),
    Expected(Code.UNKNOWN_DECORATOR, "@pureness fn f() { }", 1, 0, "no decorator `@pureness`", "mean `@pure`?"),
    Expected(Code.UNKNOWN_DECORATOR, "@mcp.prompt fn f() { }", 1, 0, "no decorator `@mcp.prompt`", "`@mcp.tool`"),
    Expected(Code.NESTING_LIMIT, "let x = " + "(" * 9000, 1, 8 + MAX_NESTING, f"more than {MAX_NESTING}", "Move inner"),
    Expected(Code.UNCLOSED_STRING, 'fn f() {\n  print("hi)\n}', 2, 8, "never closed", 'Close it with `"`'),
    Expected(Code.UNCLOSED_STRING, "fn f() { don't }", 1, 12, "never closed", "An apostrophe opens a string"),
]

_WARNINGS = [
    Expected(Code.RETURN_ARROW, "fn f() -> int { }", 1, 7, "old spelling", "Write `to`"),
    Expected(Code.STRAY_WORD, "fn f() { const x = 1 }", 1, 9, "`const` is a statement of its own here", "Write `let`"),
    Expected(Code.STRAY_WORD, "fn f() { retrun x }", 1, 9, "before identifier `x` on the same line", "mean `return`?"),
    Expected(Code.STRAY_WORD, "fn f() { if a { } elif b { } }", 1, 18, "`elif` is a statement", "Write `else if`"),
    Expected(Code.STRAY_WORD, "fn f() { x as int }", 1, 9, "`x` is a statement of its own here", None),
    Expected(Code.DROPPED_CHARACTERS, "let x = 1;", 1, 9, "`;` means nothing", "no separator"),
    Expected(Code.DROPPED_CHARACTERS, "\ufefflet x = 1", 1, 0, "`U+FEFF` means nothing", "byte-order mark"),
    Expected(Code.DROPPED_DECORATOR, "@comp fn f() { }", 1, 0, "`@comp` is not a decorator", "mean `@component`?"),
    Expected(Code.DROPPED_NUMBER, "fn f() { g(9223372036854775808) }", 1, 11, "is above 9223372036854775807", None),
    Expected(Code.UNCLOSED_STRING, 'fn f() { x } "open', 1, 13, "never closes", None),
]


def _check(diagnostic: Diagnostic, expected: Expected) -> None:
    place = (diagnostic.start.line, diagnostic.start.column)
    assert (diagnostic.code, *place) == (expected.code, expected.line, expected.column)
    assert expected.message in diagnostic.message
    assert (diagnostic.advice is None) == (expected.advice is None)
    assert expected.advice is None or expected.advice in str(diagnostic.advice)


@every("expected", _ERRORS, ids=lambda expected: f"{expected.code}-{expected.column}")
def test_error_names_place_cause_and_remedy(expected: Expected) -> None:
    analysis = analyze(expected.source)

    assert not analysis.ok
    _check(analysis.errors[0], expected)


@every("expected", _WARNINGS, ids=lambda expected: f"{expected.code}-{expected.column}")
def test_warning_names_the_ignored_text(expected: Expected) -> None:
    analysis = analyze(expected.source)

    assert analysis.ok
    assert analysis.errors == ()
    _check(analysis.warnings[0], expected)


def test_every_code_has_a_case() -> None:
    shown = {expected.code for expected in _ERRORS + _WARNINGS} | {Code.INVALID_UTF8}

    assert shown == set(Code) - SEMANTIC_CODES


@every("expected", [e for e in _ERRORS if len(e.source) < 200], ids=lambda e: str(e.code))
def test_offsets_are_bytes_and_positions_agree(expected: Expected) -> None:
    shifted = analyze("// é日本\n" + expected.source).errors[0]
    plain = analyze(expected.source).errors[0]

    assert shifted.start.offset == plain.start.offset + len("// é日本\n".encode())
    assert (shifted.start.line, shifted.start.column) == (plain.start.line + 1, plain.start.column)


def test_bytes_that_are_not_utf8_are_rejected_at_their_place() -> None:
    """A file that cannot be decoded is a rejection, not an exception (L1)."""
    analysis = analyze_bytes("let é = 1\nlet x".encode() + b"\xff = 1")
    (error,) = analysis.errors

    assert (error.code, error.start.offset, error.start.line, error.start.column) == (Code.INVALID_UTF8, 16, 2, 5)
    assert "0xFF" in error.message
    assert error.advice == "Save the file as UTF-8."


def test_one_run_reports_the_mistakes_of_several_declarations() -> None:
    """Parsing continues at the next declaration, so that a person can correct all mistakes at once."""
    source = "fn f() {\n  g(a: 1)\n}\n\n@server fn h() { }\n\nfn ok() { }\n\npub\nfn i() { }\n"

    errors = analyze(source).errors

    assert [(e.start.line, e.code) for e in errors] == [
        (2, Code.EXPECTED_TOKEN),
        (5, Code.UNKNOWN_DECORATOR),
        (9, Code.INVALID_MODIFIER_TARGET),
    ]


def test_stray_words_are_named_once_a_line() -> None:
    warnings = analyze("fn f() {\n  some words of prose\n  x = 1\n  more prose\n}").warnings

    assert [(w.code, w.start.line, w.start.column) for w in warnings] == [
        (Code.STRAY_WORD, 2, 2),
        (Code.STRAY_WORD, 4, 2),
    ]


def test_reports_are_bounded() -> None:
    assert len(analyze("fn\n" * 1000).errors) == MAX_FAILURES
    assert len(analyze("let x = 1 ; & " * 1000).warnings) == MAX_WARNINGS


def test_a_warning_that_an_error_explains_is_not_repeated() -> None:
    for source in ("@server fn f() { }", "fn f() { if a && b { } }", "fn f() { don't }"):
        assert [d.severity for d in analyze(source).diagnostics] == [Severity.ERROR]
    assert [d.severity for d in analyze("let x = 1; y").diagnostics] == [Severity.ERROR]
    assert [d.severity for d in analyze("let x = 1; let y = 2 z").diagnostics] == [Severity.WARNING, Severity.ERROR]


@every_row(
    ("", 0, Position(0, 1, 0)),
    ("ab", 2, Position(2, 1, 2)),
    ("a\nb", 1, Position(1, 1, 1)),
    ("a\nb", 2, Position(2, 2, 0)),
    ("a\r\nb", 3, Position(3, 2, 0)),
    ("a\rb", 2, Position(2, 1, 2)),
    ("é\n日x", 3, Position(6, 2, 1)),
    ("\ud800x", 1, Position(3, 1, 1)),
    ("a\n", 2, Position(2, 2, 0)),
)
def test_a_character_has_a_position(text: str, index: int, position: Position) -> None:
    assert SourceText(text).position(index) == position


def test_a_line_excludes_its_end() -> None:
    text = SourceText("a\r\nb\n\nc")

    assert [text.line(number) for number in (1, 2, 3, 4)] == ["a", "b", "", "c"]


def test_an_accepted_program_has_its_declarations() -> None:
    record = verdict_record(analyze("fn f() -> int { return 1 }\nimport a\n"))

    assert record["ok"] is True
    assert record["declarations"] == ["Function", "Import"]
    assert record["constructs"] == {"fn": 1, "import": 1}
    assert record["diagnostics"] == []
    assert [(warning["line"], warning["column"]) for warning in record["warnings"]] == [(1, 7)]


def test_a_rejected_program_has_only_errors() -> None:
    record = verdict_record(analyze("é fn ("))
    (first, *_) = record["diagnostics"]

    assert (record["ok"], record["declarations"], record["constructs"]) == (False, [], {})
    assert set(first) == {"line", "column", "offset", "code", "message", "advice"}
    assert first["offset"] > first["column"] >= 0
