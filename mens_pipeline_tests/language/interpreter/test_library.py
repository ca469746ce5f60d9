"""Built-in functions, methods and namespaces."""

import pytest

from mens_pipeline.language.interpreter import Limits
from mens_pipeline.language.interpreter.library.formats import parse
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline_tests.every import every, every_row
from mens_pipeline_tests.language.interpreter.verdicts import result_of_body, verdict
from mens_pipeline_tests.speed import assert_below

_TRUE = [
    'str(None) is "null" and str(Unit) is "Unit" and str(len) is "<fn>" and to_string((1, "a")) is "(1, a)"',
    'str(1.0 / 0.0) is "inf" and str(0.0 / 0.0) is "NaN" and str(-0.0) is "-0"',
    'str(100000000000000000000.0) is "100000000000000000000"',
    'int("-7") is -7 and int("+7") is 7 and int("9223372036854775808") is 0 and int("") is 0',
    "int(99999999999999999999.5) is 9223372036854775807 and int(0.0 / 0.0) is 0 and int(false) is 0",
    'int(-99999999999999999999.5) is -9223372036854775807 - 1 and int("0".repeat(30) + "5") is 5',
    'int("0".repeat(5000) + "5") is 0',
    'float("\u0131nf") is 0.0 and float("INF") > 0.0 and int("\u0663") is 0 and float("\u0663") is 0.0',
    'float(".5") is 0.5 and float(" 1e3 ") is 1000.0 and float("-Infinity") < 0.0 and float("1_0") is 0.0',
    'not bool(0) and not bool("") and not bool([]) and not bool(null) and bool("x") and bool({ a: 1 })',
    'type_of(1) is "int" and type_of(1.5) is "float" and type_of("") is "str" and type_of(true) is "bool"',
    'type_of([]) is "List" and type_of({ a: 1 }) is "Object" and type_of((1, 2)) is "Tuple"',
    'type_of(null) is "null" and type_of(x => x) is "fn" and type_of(Some(1)) is "Option"',
    'type_of(Ok(1)) is "Result" and type_of(1dec) is "dec" and type_of(Unit) is "Unit"',
    "(-2.5).abs() is 2.5 and (2.4).round() is 2.0 and (-0.4).round() is -0.0 and 3.0.round() is 3.0",
    "(-1.0).sqrt() isnt 0.0 and 9.0.sqrt() is 3.0 and (-1.5).floor() is -2.0 and (0.0 / 0.0).floor() isnt 0.0",
    "(1.0 / 0.0).ceil() > 1.0 and (1.0 / 0.0).round() > 1.0",
    'str((-0.5).ceil()) is "-0" and true.to_str() is "true" and 1.5.to_string() is "1.5"',
    '"ß".to_uppercase() is "SS" and "ÀB".to_lowercase() is "àb" and "é".chars_count() is 1 and "é".length() is 2',
    '" \\ta ".trim_start() is "a " and " a\\n".trim_end() is " a" and "".is_empty() and "a b".split() is ["a", "b"]',
    '"aaa".replace("a", "bb") is "bbbbbb" and "abc".replace("", "-") is "-a-b-c-" and "abc".slice(1) is "bc"',
    '"abc".slice(-5, 2) is "ab" and "abc".slice(0, -1) is "" and "abc".char_at(-1) is None and "abc".to_str() is "abc"',
    "[1].length() is 1 and [].first() is None and [].last() is None and [].pop() is None and not [1].contains(2)",
    '[1, None, "a"].join("-") is "1-null-a" and [].join(",") is ""',
    '[7].at(0) is Ok(7) and [7].at(1) is Error("json: index 1 out of bounds (len=1)") and not [7].is_null()',
    '[7].at(-1) is Error("json: negative array index -1") and [1, "a"].to_string() is "[1,\\"a\\"]"',
    '{ s: "x" }.get_str("s") is Ok("x") and { s: 1 }.get_str("s") is Error("json: key \'s\' is not a string")',
    '{ s: 1 }.get_str("t") is Error("json: missing key \'t\'") and { n: 1 }.get_float("n") is Ok(1.0)',
    '{ b: true }.get_bool("b") is Ok(true) and { o: { a: 1 } }.get_object("o").is_ok()',
    '{ a: [1] }.get_array("a") is Ok([1]) and { a: 1.5 }.get_int("a").is_err() and not { a: 1 }.is_null()',
    'json.stringify({ b: 1.0, a: null }) is "{\\"a\\":null,\\"b\\":1.0}"',
    'json.stringify([Some(2), (1, false), Unit]) is "[2,[1,false],null]"',
    'json.encode([10000000000000000.0, 0.0000001, 1.0 / 0.0]) is "[1e16,1e-7,null]"',
    'json.parse("{bad") is None and json.parse("NaN") is None and json.parse("1e999") is None',
    'json.parse("{\\"b\\": 1, \\"a\\": {\\"c\\": [null]}, \\"b\\": 2}") is { a: { c: [None] }, b: 2 }',
    'json.parse("9223372036854775808") is 9223372036854775808.0 and json.parse("-5") is -5',
    'std.json.parse("[".repeat(200)).is_err() and std.json.parse("\\"[[\\"") is Ok("[[")',
    'std.json.quote("a\\"é") is "\\"a\\\\\\"é\\"" and std.json.stringify("x") is "\\"x\\""',
    'std.json.read_str("{\\"k\\": \\"v\\"}", "k") is Ok("v") and std.json.read_f64("{\\"k\\": 2}", "k") is Ok(2.0)',
    'std.json.read_str("[1]", "k").is_err() and std.json.read_str("{", "k").is_err()',
    'std.regex.compile("a+").unwrap().find_all("aa b a").map(m => m.group(0).unwrap()) is ["aa", "a"]',
    'std.regex.compile("(a)|b").unwrap().find("b").unwrap().group(1) is None',
    'std.regex.compile("(a)").unwrap().find("a").unwrap().group(2) is None',
    'std.regex.compile("a").unwrap().find("b") is None',
    'not std.regex.compile("^a$").unwrap().matches("a\\n") and std.regex.compile("a\\\\z").unwrap().matches("ba")',
    'std.regex.compile("(?m)^a$").unwrap().matches("b\\na\\nc") and std.regex.compile("[$|]").unwrap().matches("|")',
    'std.regex.compile("[]a]").unwrap().matches("]") and std.regex.compile("[^]a]").unwrap().matches("b")',
    'std.regex.compile("[\\\\]$]").unwrap().matches("$")',
    'std.regex.compile("(?=a)").is_err() and std.regex.compile("(?<!a)").is_err()',
    'std.regex.compile("(a)\\\\1").is_err()',
    'std.regex.compile("a++").is_err() and std.regex.compile("[a&&b]").is_err()',
    'std.regex.compile("[[:x:]]").is_err()',
    'std.regex.compile("(").is_err() and std.regex.compile("\\\\").is_err()',
    'std.regex.compile("a".repeat(5000)).is_err()',
    'std.regex.compile("(?<y>[0-9]+)-(?<m>[0-9]+)").unwrap().find("on 2026-11").unwrap().group(2) is Some("11")',
    'std.regex.compile("(?<1>a)").is_err() and std.regex.compile("(?a)(?u)x").is_err()',
    'std.regex.compile("[{,]\\{,").unwrap().matches(",{,")',
    'std.csv.parse("a,b\\n\\n\\"1\\n\\",2\\n") is Ok([["a", "b"], ["1\\n", "2"]])',
    'std.csv.parse("a,b\\n1").is_err()',
    'std.csv.parse("") is Ok([]) and std.csv.parse_records("") is Ok([])',
    'std.csv.parse("\\"" + "a".repeat(200000) + "\\"").is_err()',
    'std.csv.parse_records("\\"" + "a".repeat(200000) + "\\"").is_err()',
    'std.csv.parse_records("n,m\\n1\\n2,3,4") is Ok([{ n: "1" }, { n: "2", m: "3", column_3: "4" }])',
    'std.csv.render([["a,b", "c"], [""]]) is Ok("\\"a,b\\",c\\n\\"\\"\\n")',
    'std.path.join("a", "/b") is "/b" and std.path.join_many(["a", "b", "c"]) is "a/b/c"',
    'std.path.join_many([]) is ""',
    'std.path.dirname("a/b.txt") is "a" and std.path.extension("a/b") is ""',
]

_ERRORS = {
    "TypeError": (
        *("len(1.5)", "int([])", "float(true)", "range(1.5)", "range(true, 2)", "type_of(std)", "std.log.info(1)"),
        *('"a".contains(1)', '"a".slice("b")', '"a".repeat(-1)', "[1].map(1)", "[1].filter(x => x)"),
        *("std.json.stringify(len)", "std.json.stringify(Ok(1))", "std.csv.render(1)"),
    ),
    "ArityError": ("str()", "range(1, 2, 3)", "[1].len(1)", "Some()", "Ok(1, 2)", "assert()", "assert_eq(1)"),
    "NamedArgument": ("str(x=1)", "[1].push(x=1)", "assert(c=true)"),
    "UnknownMethod": ('"a".nothing()', "Unit.nothing()", "Some(1).is_ok()", "Ok(1).is_none()"),
    "IntegerOverflow": ("(0 - 9223372036854775807 - 1).abs()",),
    "NotCallable": ("std.regex(1)",),
    "UndefinedName": ("std.path.nothing(1)",),
    "Panic": ("panic(1)",),
}

_REFUSED = [
    ("std.io.read()", "fs"),
    ("fs.read(1)", "fs"),
    ('HTTP.get("u")', "net"),
    ("db.Note.all()", "db"),
    ('env.get("X")', "env"),
    ("std.args", "env"),
    ("process.exit(1)", "process"),
    ("std.now_ms()", "clock"),
    ("std.crypto.uuid()", "random"),
    ('std.hash_fast("x")', "crypto"),
    ('std.toml.parse("")', "format"),
    ('secrets.resolve("k")', "secrets"),
    ('Speech.say("x")', "speech"),
    ("OpenClaw.go()", "openclaw"),
    ("Browser.open()", "browser"),
    ("mobile.vibrate()", "mobile"),
    ('std.agentos.mutation_kind_for_tool("x")', "agentos"),
    ('Claude.ask("x")', "llm"),
    ("use_state(1)", "ui"),
    ("spawn(1)", "spawn"),
    ("Card(title=1)", "ui"),
    ('row() { text("a") }', "ui"),
]


@every("condition", _TRUE)
def test_condition_holds(condition: str) -> None:
    result = result_of_body(f"assert({condition})")

    assert (verdict(result), result.message) == ("pass", "")


@every("kind", _ERRORS)
def test_wrong_use_is_an_error(kind: str) -> None:
    found = {expression: verdict(result_of_body(f"let x = {expression}")) for expression in _ERRORS[kind]}

    assert found == dict.fromkeys(found, f"error:{kind}")


@pytest.mark.parametrize(("expression", "reason"), _REFUSED)
def test_access_to_the_outside_is_refused_by_name(expression: str, reason: str) -> None:
    result = result_of_body(f"let x = {expression}")

    assert verdict(result) == f"unsupported:{reason}"
    assert f"needs {reason}" in result.message


@every_row(
    (r"a\\Z", r"`\Z` is not supported"),
    (r"\\N{DIGIT ONE}", r"`\N` is not supported"),
    (r"[\\N{DIGIT ONE}]", r"`\N` is not supported"),
    (r"\\<a", r"`\<` is not supported"),
    (r"\\b{start}a", r"`\b{...}` is not supported"),
    ("a{,2}", "a repetition without its least number is not supported: write `{0,n}`"),
    (r"\\p{L}", r"bad escape \p at position 0"),
)
def test_unsupported_patterns_are_errors(pattern: str, found: str) -> None:
    result = result_of_body(f'return std.regex.compile("{pattern}")')

    assert result.message == f"the test returned Error(regex: {found})"


def test_output_is_kept() -> None:
    result = result_of_body('print("a", 1, None) println() std.log.warn("careful") assert(true)')

    assert result.output == "a 1 null\n\nwarn: careful\n"


def test_json_of_a_string_without_an_end_is_read_once() -> None:
    text = '"' + '\\"' * 32_000
    assert_below(lambda: parse(Machine(Limits()), text), 20, lambda: parse(Machine(Limits()), f'{text}"'))
