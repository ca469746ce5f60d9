"""Operators on every kind of operand."""

import pytest

from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.interpreter.verdicts import result_of_body, verdict

_TRUE = [
    "2.5 - 1 is 1.5",
    "2 * 1.5 is 3.0",
    "7 / 2.0 is 3.5",
    "1.0 / 0.0 > 1.0",
    "-1.0 / 0.0 < 1.0",
    "1.0 / -0.0 < 1.0",
    "0.0 / 0.0 isnt 0.0 / 0.0",
    "(1.0 % 0.0) isnt (1.0 % 0.0)",
    "(1.0 / 0.0 % 2.0) isnt 0.0",
    "0 - 9223372036854775807 - 1 < 0",
    "(0 - 6) % 4 is -2",
    "6 % (0 - 4) is 2",
    "-(2.5) is -2.5",
    "-(2.5dec) is -2.5dec",
    'str(-(0.0dec)) is "0.0"',
    "5.5dec - 0.25dec is 5.25dec",
    "7.5dec % 2dec is 1.5dec",
    "-7.5dec % 2dec is -1.5dec",
    'str(3.30dec) is "3.30"',
    'str(1.20dec + 2dec) is "3.20"',
    'str(1.5dec * 1.50dec) is "2.250"',
    'str(2dec / 3dec).slice(0, 10) is "0.66666666"',
    "0.00000000000000000000000000005dec is 0dec",
    '1.5dec >= 1dec and "b" > "a" and 2 <= 2.0',
    "[1, (2, [3])] is [1, (2, [3])]",
    "[1] isnt [1, 2]",
    "(1, 2) isnt [1, 2]",
    "{ a: 1 } isnt { a: 1, b: 2 }",
    "{ a: 1 } isnt { a: 2 }",
    "len isnt len",
    "Unit is Unit",
    "Some(1) isnt Ok(1)",
    "1 isnt true and 1 isnt 1.0",
    '"a" + Some(1) is "aSome(1)"',
    '[1, 2] + "" is "[1, 2]"',
    "(true or 1) and not (false and 1)",
]

_ERRORS = [
    ("let x = 1 - true", "TypeError"),
    ("let x = [1] * 2", "TypeError"),
    ('let x = "a" / 2', "TypeError"),
    ("let x = 1.5 % true", "TypeError"),
    ("let x = 1dec % 0dec", "DivisionByZero"),
    ("let x = 79228162514264337593543950335dec + 1dec", "DecimalOverflow"),
    ("let x = 79228162514264337593543950336dec", "DecimalOverflow"),
    (f"let x = {'9' * 300}dec", "DecimalOverflow"),
    ("let x = true < false", "TypeError"),
    ("let x = [1] < [2]", "TypeError"),
    ("let x = 1 >= 1dec", "TypeError"),
    ("let x = -true", "TypeError"),
    ('let x = not "a"', "TypeError"),
    ("let x = false or 1", "TypeError"),
    ("let x = 1 or true", "TypeError"),
    ("while 1 { }", "TypeError"),
    ("let m = 0 - 9223372036854775807 - 1 let x = m % -1", "IntegerOverflow"),
    ("let x = 9223372036854775807 * 2", "IntegerOverflow"),
    ("let x = { a: 1 }[0]", "TypeError"),
    ('let x = { a: 1 }["b"]', "MissingField"),
    ("let x = [1][-2]", "IndexOutOfRange"),
    ("let x = std.nothing", "UndefinedName"),
    ("let x = json.nothing(1)", "UndefinedName"),
]


@every("condition", _TRUE)
def test_condition_holds(condition: str) -> None:
    result = result_of_body(f"assert({condition})")

    assert (verdict(result), result.message) == ("pass", "")


@pytest.mark.parametrize(("statements", "kind"), _ERRORS)
def test_wrong_operands_are_errors(statements: str, kind: str) -> None:
    assert verdict(result_of_body(statements)) == f"error:{kind}"
