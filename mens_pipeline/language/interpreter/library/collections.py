"""Methods of lists (F4), records (F5), Option and Result (F6), and tables in memory (U5)."""

from collections.abc import Callable
from typing import Final

from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.library.formats import stringify
from mens_pipeline.language.interpreter.library.scalars import a_record, a_text, an_int, by_name, getter
from mens_pipeline.language.interpreter.machine import Machine, TableValue
from mens_pipeline.language.interpreter.results import ErrorKind, Refusal, VoxError
from mens_pipeline.language.interpreter.values import (
    NONE,
    UNIT,
    Native,
    Refused,
    Value,
    VariantValue,
    byte_length,
    equal,
    error,
    format_value,
    kind_name,
    ok,
    quote_value,
    some,
)


def _push(machine: Machine, values: list[Value], value: Value) -> list[Value]:
    machine.allocate(len(values) + 1)
    return [*values, value]


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
        text = format_value(machine, value)
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


def _at(_machine: Machine, values: list[Value], index: Value) -> VariantValue:
    place = an_int(index, "the argument of `at`")
    if place < 0:
        return error(f"json: negative array index {place}")
    if place >= len(values):
        return error(f"json: index {place} out of bounds (len={len(values)})")
    return ok(values[place])


LIST_METHODS: Final[dict[str, Native]] = by_name(
    *(Native(word, lambda _machine, values: len(values), 0, 0) for word in ("len", "length")),
    Native("is_empty", lambda _machine, values: not values, 0, 0),
    Native("push", _push, 1, 1),
    Native("append", _push, 1, 1),
    getter("get"),
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


def _get_field(_machine: Machine, record: dict[str, Value], key: Value) -> VariantValue:
    name = a_text(key, "the argument of `get`")
    return some(record[name]) if name in record else NONE


def _keys(machine: Machine, record: dict[str, Value]) -> list[Value]:
    machine.allocate(len(record))
    return list(record)


def accessor(what: str, kinds: tuple[type, ...]) -> Callable[[Machine, dict[str, Value], Value], VariantValue]:
    """Return a getter of a JSON object for values of these Python types (F7); `what` names them in its message."""

    def get(_machine: Machine, record: dict[str, Value], key: Value) -> VariantValue:
        name = a_text(key, "a key")
        if name not in record:
            return error(f"json: missing key '{name}'")
        value = record[name]
        if type(value) not in kinds:
            return error(f"json: key '{name}' is not {what}")
        return ok(float(value) if kinds == _NUMBERS else value)

    return get


_NUMBERS: Final = (float, int)

RECORD_METHODS: Final[dict[str, Native]] = by_name(
    Native("get", _get_field, 1, 1),
    Native("keys", _keys, 0, 0),
    Native("get_str", accessor("a string", (str,)), 1, 1),
    Native("get_int", accessor("an integer", (int,)), 1, 1),
    Native("get_float", accessor("a number", _NUMBERS), 1, 1),
    Native("get_bool", accessor("a bool", (bool,)), 1, 1),
    Native("get_object", accessor("an object", (dict,)), 1, 1),
    Native("get_array", accessor("an array", (list,)), 1, 1),
    Native("to_string", stringify, 0, 0),
    Native("is_null", lambda _machine, _record: False, 0, 0),
)

_OPTION: Final = frozenset(("Some", "None"))
_RESULT: Final = frozenset(("Ok", "Error"))


def _is(name: str, family: frozenset[str], method: str) -> Native:
    def ask(_machine: Machine, value: VariantValue) -> bool:
        if value.name not in family:
            raise _unknown(value, method)
        return value.name == name

    return Native(method, ask, 0, 0)


def _unwrap(machine: Machine, value: VariantValue) -> Value:
    if value.name in {"Some", "Ok"} and len(value.fields) == 1:
        return value.fields[0]
    if value.name == "None":
        raise VoxError(ErrorKind.UNWRAP_NONE, "`unwrap` of `None`")
    if value.name == "Error":
        raise VoxError(ErrorKind.UNWRAP_ERROR, f"`unwrap` of {quote_value(machine, value)}")
    raise _unknown(value, "unwrap")


def _unknown(value: VariantValue, method: str) -> VoxError:
    return VoxError(ErrorKind.UNKNOWN_METHOD, f"{kind_name(value)} has no method `{method}`")


VARIANT_METHODS: Final[dict[str, Native]] = by_name(
    _is("Some", _OPTION, "is_some"),
    _is("None", _OPTION, "is_none"),
    _is("Ok", _RESULT, "is_ok"),
    _is("Error", _RESULT, "is_err"),
    Native("unwrap", _unwrap, 0, 0),
)


def _insert(machine: Machine, table: TableValue, record: Value) -> VariantValue:
    fields = a_record(record, "what `insert` stores")
    machine.allocate(1 + len(fields))
    number = machine.database.next_id(table)
    machine.database.of(table)[number] = {**fields, "_id": number}
    return ok(number)


def _find(machine: Machine, table: TableValue, number: Value) -> VariantValue:
    record = machine.database.of(table).get(an_int(number, "an id"))
    return NONE if record is None else some(record)


def _all(machine: Machine, table: TableValue) -> list[Value]:
    records = machine.database.of(table)
    machine.allocate(len(records))
    return list(records.values())


def _filter_table(machine: Machine, table: TableValue, fields: Value) -> list[Value]:
    wanted = a_record(fields, "what `filter` compares").items()
    return [
        record
        for record in _all(machine, table)
        if all(key in record and equal(machine, record[key], value) for key, value in wanted)
    ]


def _delete(machine: Machine, table: TableValue, number: Value) -> VariantValue:
    records = machine.database.of(table)
    if records.pop(an_int(number, "an id"), None) is None:
        return error(f"{table.name} has no record {number}")
    return ok(UNIT)


def _update(machine: Machine, table: TableValue, number: Value, fields: Value) -> VariantValue:
    records, key = machine.database.of(table), an_int(number, "an id")
    changes = a_record(fields, "what `update` changes")
    if key not in records:
        return error(f"{table.name} has no record {key}")
    machine.allocate(len(records[key]) + len(changes))
    records[key] = {**records[key], **changes}
    return ok(UNIT)


def _refused_method(name: str) -> Native:
    def refuse(_machine: Machine, table: TableValue, *_arguments: Value) -> Value:
        raise Refused(Refusal.DATABASE, f"db.{table.name}.{name}").fault()

    return Native(name, refuse, 0, 100)


TABLE_METHODS: Final[dict[str, Native]] = by_name(
    Native("insert", _insert, 1, 1),
    Native("get", _find, 1, 1),
    Native("find", _find, 1, 1),
    Native("all", _all, 0, 0),
    Native("filter", _filter_table, 1, 1),
    Native("count", lambda machine, table: len(machine.database.of(table)), 0, 0),
    Native("delete", _delete, 1, 1),
    Native("update", _update, 2, 2),
    *map(_refused_method, ("where", "order_by", "limit", "select", "first")),
)

ROWS_METHODS: Final[dict[str, Native]] = by_name(
    Native("count", lambda _machine, rows: len(rows), 0, 0),
    Native("all", lambda _machine, rows: rows, 0, 0),
)
"""Methods of the rows of a query, called on the query or on a name for its result (U5)."""
