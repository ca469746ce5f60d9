"""Operators on every kind of operand."""

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

_ERRORS = {
    "TypeError": (
        *("let x = 1 - true", "let x = [1] * 2", 'let x = "a" / 2', "let x = 1.5 % true", "let x = { a: 1 }[0]"),
        *("let x = true < false", "let x = [1] < [2]", "let x = 1 >= 1dec", "let x = -true", 'let x = not "a"'),
        *("let x = false or 1", "let x = 1 or true", "while 1 { }"),
    ),
    "DivisionByZero": ("let x = 1dec % 0dec",),
    "DecimalOverflow": (
        "let x = 79228162514264337593543950335dec + 1dec",
        "let x = 79228162514264337593543950336dec",
        f"let x = {'9' * 300}dec",
    ),
    "IntegerOverflow": ("let m = 0 - 9223372036854775807 - 1 let x = m % -1", "let x = 9223372036854775807 * 2"),
    "MissingField": ('let x = { a: 1 }["b"]',),
    "IndexOutOfRange": ("let x = [1][-2]",),
    "UndefinedName": ("let x = std.nothing", "let x = json.nothing(1)"),
}


@every("condition", _TRUE)
def test_condition_holds(condition: str) -> None:
    result = result_of_body(f"assert({condition})")

    assert (verdict(result), result.message) == ("pass", "")


@every("kind", _ERRORS)
def test_wrong_operands_are_errors(kind: str) -> None:
    found = {statements: verdict(result_of_body(statements)) for statements in _ERRORS[kind]}

    assert found == dict.fromkeys(found, f"error:{kind}")
