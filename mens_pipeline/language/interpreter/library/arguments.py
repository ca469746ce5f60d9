"""Checks of what built-ins are given; a wrong kind is a `TypeError` (section 4)."""

from mens_pipeline.language.interpreter.values import Value, kind_name, type_error


def a_text(value: Value, what: str) -> str:
    """Check that a value is a string, and return it.

    Raises:
        VoxError: It is none.
    """
    if type(value) is str:
        return str(value)
    raise type_error(f"{what} is a str, found {kind_name(value)}")


def an_int(value: Value, what: str) -> int:
    """Check that a value is an integer, and return it.

    Raises:
        VoxError: It is none.
    """
    if type(value) is int:
        return int(value)
    raise type_error(f"{what} is an int, found {kind_name(value)}")


def a_list(value: Value, what: str) -> list[Value]:
    """Check that a value is a list, and return it.

    Raises:
        VoxError: It is none.
    """
    if type(value) is list:
        elements: list[Value] = value
        return elements
    raise type_error(f"{what} is a list, found {kind_name(value)}")


def a_record(value: Value, what: str) -> dict[str, Value]:
    """Check that a value is a record, and return it.

    Raises:
        VoxError: It is none.
    """
    if type(value) is dict:
        record: dict[str, Value] = value
        return record
    raise type_error(f"{what} is a record, found {kind_name(value)}")
