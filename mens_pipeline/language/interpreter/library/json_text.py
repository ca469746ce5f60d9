"""JSON as text (F7)."""

import json
import math
import re
from typing import Any, Final

from mens_pipeline.language.interpreter.arithmetic import LEAST_INT, MOST_INT
from mens_pipeline.language.interpreter.library.arguments import a_text
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.text_form import byte_length
from mens_pipeline.language.interpreter.values import NONE, UNIT, Value, Variant, error, kind_name, ok, type_error

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_DIGITS_OF_64_BITS: Final = 20


def parse(machine: Machine, text: Value) -> Variant:
    """`std.json.parse`: a Result."""
    source = a_text(text, "what `parse` reads")
    machine.allocate(byte_length(source))
    machine.charge(len(source) // 8)
    if _depth(source) > machine.limits.max_nesting:
        return error(f"json: more than {machine.limits.max_nesting} levels")
    try:
        return ok(_adopted(_DECODER.decode(source)))
    except ValueError as problem:
        return error(f"json: {problem}")


def parse_or_none(machine: Machine, text: Value) -> Value:
    """`json.parse`: the bare value, `None` for what is no JSON."""
    result = parse(machine, text)
    return result.fields[0] if result.name == "Ok" else NONE


def _depth(source: str) -> int:
    """Count the levels of brackets first, because the decoder recurses on the C stack."""
    depth = most = 0
    for character in re.sub(r"[^\[\]{}]", "", _STRING.sub("", source)):
        depth += 1 if character in "[{" else -1
        most = max(most, depth)
    return most


def _integer(digits: str) -> Value:
    if len(digits) <= _DIGITS_OF_64_BITS and LEAST_INT <= int(digits) <= MOST_INT:
        return int(digits)
    return _float(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"number {digits[:40]} is out of range")
    return value


def _refuse_constant(word: str) -> Value:
    raise ValueError(f"{word} is no JSON")


_DECODER: Final = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_refuse_constant,
    object_pairs_hook=lambda pairs: dict(sorted(dict(pairs).items())),
)


def _adopted(value: Any) -> Value:
    """Convert what the decoder made to values of the language."""
    if value is None:
        return NONE
    if isinstance(value, list):
        return [_adopted(element) for element in value]
    if isinstance(value, dict):
        return {key: _adopted(field) for key, field in value.items()}
    return value


def stringify(machine: Machine, value: Value, level: int = 0) -> str:
    """`json.stringify`: compact, keys sorted.

    `level` is how deep it lies in the value that is written.

    Raises:
        VoxError: It has no JSON, is too deep or too large.
    """
    machine.descend(level)
    text = _written(machine, value, level + 1)
    machine.allocate(byte_length(text))
    return text


def _written(machine: Machine, value: Value, level: int) -> str:
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return _float_text(value)
    if kind is list or kind is tuple:
        return f"[{','.join([stringify(machine, element, level) for element in value])}]"
    if kind is dict:
        fields = [f"{quoted(key)}:{stringify(machine, value[key], level)}" for key in sorted(value)]
        return f"{{{','.join(fields)}}}"
    return _written_option(machine, value, level)


def _written_option(machine: Machine, value: Value, level: int) -> str:
    if value is UNIT or (type(value) is Variant and value.name == "None"):
        return "null"
    if type(value) is Variant and value.name == "Some" and len(value.fields) == 1:
        return stringify(machine, value.fields[0], level)
    raise type_error(f"{kind_name(value)} has no JSON")


def quoted(text: str) -> str:
    """Format a text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    return repr(value).replace("e+", "e").replace("e-0", "e-")


def quote(machine: Machine, text: Value) -> str:
    """`std.json.quote`."""
    result = quoted(a_text(text, "what `quote` takes"))
    machine.allocate(byte_length(result))
    return result
