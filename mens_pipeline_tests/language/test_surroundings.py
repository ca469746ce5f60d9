"""The text around a cursor, as editors send it: windows, files with errors, long files."""

import re
from collections.abc import Callable
from random import Random

import pytest

from mens_pipeline.language import Viability, ViableText, analyze
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.every import every, every_row

_REST = "\n\nfn last() to int {\n    return 3\n}\n"
"""A program after the line of the cursor."""


_LINES = {
    "a program": ("fn f() to int {\n    return ", "1", "\n}\n", True),
    "an open block": ("fn f() to int {\n    return ", "1", _REST, True),
    "two open blocks": ("fn f(a: int) to int {\n    if a > 1 {\n        return ", "1", _REST, True),
    "a block begins": ("fn f(a: int) to int {\n    if ", "a > 1 {", "\n}\n", True),
    "a function begins": ("fn ", "f(a: int) to int {", _REST, True),
    "nothing": ("fn f() to int {\n    let a = ", "", _REST, False),
    "a call is open": ("fn f() to int {\n    let a = ", "last(", _REST, False),
    "a list is open": ("fn f() to int {\n    let a = ", "[1, 2", "\n}\n", False),
    "the line has more text": ("fn f() to int {\n    return last(", "1", ")" + _REST, False),
    "the text belongs to later lines": ("fn f() to int {\n    let a = ", "1", "\n        }\n    }\n}\n", True),
    "a brace too many": ("fn f() to int {\n    if true {\n    }\n", "}", "\n}\n", False),
    "after a broken line": ("fn broken( {\n    ", "return 1", _REST, True),
    "on a broken line": ("fn broken( {\n    ", "return", ")" + _REST, False),
}


@every("name", _LINES)
def test_a_line_fits_if_more_lines_may_follow(name: str) -> None:
    prefix, piece, suffix, fits = _LINES[name]

    assert read_surroundings(prefix, suffix).accept(piece) is fits


_PROGRAM = """@table type Customer {
    name: str
    orders: int
}

fn is_regular(orders: int) to bool {
    return orders > 3
}

fn discount(orders: int, price: int) to int {
    if is_regular(orders) {
        return price / 10
    }
    return 0
}

component Prices(prices: list[int]) {
    view: column() {
        for price in prices {
            text() { str(price) }
        }
        button() { "Order" }
    }
}

fn grade(points: Option[int]) to str {
    return match points {
        Some(found) => {
            let word = "has " + str(found)
            word
        }
        None => "none"
    }
}

@test
fn regular_customers_get_a_tenth() {
    assert(discount(5, 100) is 10)
    assert(discount(1, 100) is 0)
}
"""


@pytest.mark.parametrize("after", [10_000, 200, 120])
@pytest.mark.parametrize("before", [10_000, 300, 200])
def test_every_line_fits_into_a_window_around_it(before: int, after: int) -> None:
    assert analyze(_PROGRAM).ok
    for line in re.finditer(r"(?<=\n)( *)(\S[^\n]*)", _PROGRAM):
        prefix, suffix = _PROGRAM[: line.start(2)][-before:], _PROGRAM[line.end() :][:after]
        around = read_surroundings(prefix, suffix)

        assert around.accept(line[2]), (prefix, line[2], suffix)
        assert around.prefix.endswith(line[1])
        assert ViableText().append(around.prefix) is not Viability.DEAD


@pytest.mark.parametrize("error", ["    let x = )\n", "    if (\n", "    }\n", "    } else {\n", "    match {\n"])
def test_an_error_in_another_declaration_has_no_effect(error: str) -> None:
    place = _PROGRAM.index("    return orders")
    prefix, suffix = _PROGRAM.split("        return price / 10")
    above = prefix[:place] + error + prefix[place:]
    below = suffix.replace("    assert(discount(5", error + "    assert(discount(5")
    for text in ((above, suffix), (prefix, below), (above, below)):
        around = read_surroundings(text[0] + "        ", text[1])

        assert around.accept("return price / 10")
        assert not around.accept("return price /")
        assert around.skipped == ("a declaration with an error",)
        assert around.find_error("return price / 10") is None
        assert around.find_error("return prise") is not None
        assert not around.is_window


def test_an_error_above_in_the_same_declaration_skips_its_lines() -> None:
    prefix, suffix = _PROGRAM.split("    return 0\n")
    broken = prefix.replace("    if is_regular(orders) {", "    let = 1\n    if is_regular(orders) {")
    around = read_surroundings(broken + "    ", suffix)

    assert around.accept("return 0")
    assert around.skipped == ("lines above the cursor",)


@every_row(
    ("    return ", "price * orders", None),
    ("    return ", "prise", "unknown-name"),
    ("    return pri", "se", "unknown-name"),
    ("    let rest = ", "price.cents", "unknown-field"),
    ("    let rest = ", "is_regular(orders, price)", "wrong-argument-count"),
    ("    return ", "grade(price)", "type-mismatch"),
    ("    let rest = is_regular(orders", ")", None),
    ("    if ", "prise > 1 {", "unknown-name"),
    ("    if ", "price > 1 {", None),
    ("    let rest = ", "= prise", None),
)
def test_a_piece_is_checked_for_names_and_types(line: str, piece: str, code: str | None) -> None:
    prefix, suffix = _PROGRAM.split("    return 0\n")
    found = read_surroundings(prefix + line, "\n" + suffix).find_error(piece)

    assert (found and str(found.code)) == code


def test_a_name_outside_the_window_is_not_an_error() -> None:
    place = _PROGRAM.index("    return 0\n")
    around = read_surroundings(_PROGRAM[place - 90 : place] + "    ", _PROGRAM[place + len("    return 0") :])

    assert around.is_window
    assert around.find_error("return rebate") is None
    assert around.find_error("return grade(1, 2)") is not None


def test_a_long_file_is_read_around_its_cursor() -> None:
    functions = [f"fn step_{number}(n: int) to int {{\n    return n + {number}\n}}\n\n" for number in range(3_000)]
    around = read_surroundings("".join(functions) + "fn last(n: int) to int {\n    ", "\n}\n\n" + "".join(functions))

    assert around.accept("return n")
    assert around.is_window
    assert len(around.above) <= 24_000
    assert len(around.below) <= 12_000
    assert around.skipped[0] == "text far from the cursor"


def test_the_line_of_the_cursor_is_never_changed() -> None:
    dice = Random(5)  # noqa: S311 - a reproducible draw
    for file in sorted((PROJECT_ROOT / "data" / "golden").rglob("*.vox"))[:60]:
        text = file.read_text(encoding="utf-8")
        for _ in range(6):
            place, before, after = (dice.randrange(1, most) for most in (len(text), 900, 500))
            prefix, suffix = text[max(0, place - before) : place], text[place : place + after]
            around = read_surroundings(prefix, suffix)
            line = prefix[prefix.rfind("\n") + 1 :] if "\n" in prefix else ""

            assert around.prefix.endswith(line)
            assert around.suffix.startswith(suffix.partition("\n")[0])
            assert analyze(around.above).ok
            assert analyze(around.below).ok


@pytest.mark.parametrize("unit", ["\t", "  ", "   ", "        "])
def test_a_piece_gets_the_indentation_of_its_file(unit: str) -> None:
    lines = ("fn f(a: int) to int {", "{u}let b = a", "{u}if b > 1 {", "{u}{u}return 2", "{u}}", "{u}return 1", "}", "")
    own = "\n".join(lines).replace("{u}", unit)
    around = read_surroundings(own[: own.index("if b")], "\n}\n")
    begin = " " * len(unit.replace("\t", "    "))
    nested = read_surroundings(own[: own.index("return 2")], own[own.index("return 2") + len("return 2") :])

    piece = f"if b > 1 {{\n{begin}    return 2\n{begin}}}\n{begin}return 1"
    assert around.indent(piece) == own[own.index("if b") : -len("\n}\n")]
    assert nested.indent(f"return 2\n{begin}{begin}return 3") == f"return 2\n{unit}{unit}return 3"
    assert around.indent("return 1") == "return 1"


_NESTED = """fn f(items: list[int]) to int {
    for item in items {
        if item is 3 {
            return item
        } else {
            print(item)
        }
    }
    return g(
        items,
    )
}
"""


def _accept_in_vim(before: str, piece: str, after: str) -> str:
    """As llama.vim does on a line of blanks: it sends none of them, and the piece contains them."""
    return before.rstrip(" ") + read_surroundings(before.rstrip(" "), after).indent(piece) + after


def _accept_at_cursor(before: str, piece: str, after: str) -> str:
    return before + read_surroundings(before, after).indent(piece) + after


@pytest.mark.parametrize("blank", ["", " ", "    ", "\t"], ids=repr)
@pytest.mark.parametrize("accept", [_accept_in_vim, _accept_at_cursor])
def test_an_accepted_line_has_the_indentation_of_its_block(accept: Callable[[str, str, str], str], blank: str) -> None:
    lines = _NESTED.splitlines(keepends=True)
    for number, line in enumerate(lines[1:], 1):
        begin = len(line) - len(line.lstrip())
        before, after = "".join(lines[:number]) + line[:begin], "\n" + "".join(lines[number + 1 :])

        assert accept(before, blank * bool(begin) + line.strip(), after) == _NESTED


def test_a_piece_in_a_line_adds_no_second_blank() -> None:
    begin = "fn f(t: Ticket) {\n    t.filter({"

    assert _accept_at_cursor(begin + " ", " closed: false })", "\n}\n") == begin + " closed: false })\n}\n"
    assert _accept_at_cursor(begin, " closed: false })", "\n}\n") == begin + " closed: false })\n}\n"
    assert _accept_at_cursor("fn f() {\n", "\n    return", "\n}\n") == "fn f() {\n\n    return\n}\n"


@every_row(
    ("// Adds two num", "\nfn add() {\n}\n", True),
    ("fn f() {\n    let a = 1 # half of", "\n}\n", True),
    ("fn f() {\n    // Adds two numbers.\n    ", "\n}\n", False),
    ('fn f() {\n    print("half', "\n}\n", True),
    ('fn f() {\n    print("whole"', "\n}\n", False),
    ("fn f() {\n}\n", "", True),
    ("fn f() {\n}\n\n\n", "\n\n", True),
    ("fn f() {\n}\n\n// Adds two numbers.\n", "", False),
    ("fn f() {\n}\n\n@pure\n", "", False),
    ("fn f() {\n}\n\nfn ", "", False),
    ("fn f() {\n    return 1\n", "", False),
    ("fn f() {\n}\n\n", "fn g() {\n}\n", False),
    ("", "", False),
)
def test_finished_texts_are_recognised(prefix: str, suffix: str, is_finished: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert read_surroundings(prefix, suffix).is_finished is is_finished


@every_row(
    ("    | Round(radius: int)\n    | ", "Square(side: int)", "\n"),
    ("        count = count + 1\n    }\n    on read() to int {\n        return ", "count", "\n    }\n}\n"),
    ('fn f() {\n    print("first\nfn second() {\nthird")\n    ', "print(1)", "\n}\n"),
)
def test_other_declarations_are_opened_too(prefix: str, piece: str, suffix: str) -> None:
    around = read_surroundings(prefix, suffix)

    assert around.accept(piece)
    assert not around.accept(f"{piece} }} }}")
    assert around.prefix.endswith(prefix)


@every_row(
    ("return a\n", "return a\n", False),
    ("return a\n}  2021", "return a", True),
    ("return a\n}\n}\n//", "return a", True),
    ("if a > b {\n    return a\n}", "if a > b {\n    return a\n}", False),
    ("if a > b {\n    return a\n} else {", "if a > b {\n    return a\n} else {", False),
    ("}  2021", None, False),
    ("return (\n", None, False),
)
def test_a_piece_is_cut_to_lines_that_fit(piece: str, fitting: str | None, runs_on: bool) -> None:  # noqa: FBT001 - a parameter of the test
    around = read_surroundings("fn f(a: int, b: int) to int {\n    ", "\n}\n")

    assert (around.cut(piece), around.runs_on(piece)) == (fitting, runs_on)
