"""Methods of lists (F4); none changes its receiver (V6)."""

from typing import Final

from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.equality import equal
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.library.arguments import a_text, an_int
from mens_pipeline.language.interpreter.library.json_text import stringify
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.text_form import byte_length, text_of
from mens_pipeline.language.interpreter.values import NONE, Native, Value, Variant, error, kind_name, ok, some


def _length(_machine: Machine, values: list[Value]) -> int:
    return len(values)


def _push(machine: Machine, values: list[Value], value: Value) -> list[Value]:
    machine.allocate(len(values) + 1)
    return [*values, value]


def _get(_machine: Machine, values: list[Value], index: Value) -> Variant:
    place = an_int(index, "the argument of `get`")
    return some(values[place]) if 0 <= place < len(values) else NONE


def _last(_machine: Machine, values: list[Value]) -> Value:
    return values[-1] if values else NONE


def _contains(machine: Machine, values: list[Value], wanted: Value) -> bool:
    machine.charge(len(values))
    return any(equal(machine, value, wanted) for value in values)


def _join(machine: Machine, values: list[Value], separator: Value) -> str:
    between = a_text(separator, "the separator")
    size = 0
    texts = []
    for value in values:
        text = text_of(machine, value)
        size += byte_length(text) + byte_length(between)
        machine.charge(1 + len(text) // 64)
        if size > machine.limits.max_size:
            break
        texts.append(text)
    machine.allocate(size)
    return between.join(texts)


def _reverse(machine: Machine, values: list[Value]) -> list[Value]:
    machine.allocate(len(values))
    return values[::-1]


def _function(value: Value) -> Value:
    if not hasattr(value, "invoke"):
        raise VoxError(ErrorKind.TYPE_ERROR, f"a function was expected, found {kind_name(value)}")
    return value


def _map(machine: Machine, values: list[Value], function: Value) -> list[Value]:
    machine.allocate(len(values))
    invoke = _function(function).invoke
    results = []
    for value in values:
        machine.charge(1)
        results.append(invoke(machine, [value]))
    return results


def _filter(machine: Machine, values: list[Value], function: Value) -> list[Value]:
    machine.allocate(len(values))
    invoke = _function(function).invoke
    kept = []
    for value in values:
        machine.charge(1)
        if truth(invoke(machine, [value]), "`filter`"):
            kept.append(value)
    return kept


def _at(_machine: Machine, values: list[Value], index: Value) -> Variant:
    place = an_int(index, "the argument of `at`")
    if place < 0:
        return error(f"json: negative array index {place}")
    if place >= len(values):
        return error(f"json: index {place} out of bounds (len={len(values)})")
    return ok(values[place])


LIST_METHODS: Final[dict[str, Native]] = {
    native.name: native
    for native in (
        Native("len", _length, 0, 0),
        Native("length", _length, 0, 0),
        Native("is_empty", lambda _machine, values: not values, 0, 0),
        Native("push", _push, 1, 1),
        Native("append", _push, 1, 1),
        Native("get", _get, 1, 1),
        Native("pop", _last, 0, 0),
        Native("first", lambda _machine, values: values[0] if values else NONE, 0, 0),
        Native("last", _last, 0, 0),
        Native("contains", _contains, 1, 1),
        Native("join", _join, 1, 1),
        Native("reverse", _reverse, 0, 0),
        Native("map", _map, 1, 1),
        Native("filter", _filter, 1, 1),
        Native("at", _at, 1, 1),
        Native("to_string", stringify, 0, 0),
        Native("is_null", lambda _machine, _values: False, 0, 0),
    )
}
