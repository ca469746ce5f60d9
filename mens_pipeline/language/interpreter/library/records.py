"""Methods of records (F5), and of Option and Result (F6)."""

from collections.abc import Callable
from typing import Final

from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.library.arguments import a_text
from mens_pipeline.language.interpreter.library.json_text import stringify
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.text_form import shown
from mens_pipeline.language.interpreter.values import NONE, Native, Value, Variant, error, kind_name, ok, some


def _get(_machine: Machine, record: dict[str, Value], key: Value) -> Variant:
    name = a_text(key, "the argument of `get`")
    return some(record[name]) if name in record else NONE


def _keys(machine: Machine, record: dict[str, Value]) -> list[Value]:
    machine.allocate(len(record))
    return list(record)


def accessor(what: str, kinds: tuple[type, ...]) -> Callable[[Machine, dict[str, Value], Value], Variant]:
    """Return a typed getter of a JSON object (F7).

    `what` is the kind in the words of its message, `kinds` are the Python types it takes.
    """

    def get(_machine: Machine, record: dict[str, Value], key: Value) -> Variant:
        name = a_text(key, "a key")
        if name not in record:
            return error(f"json: missing key '{name}'")
        value = record[name]
        if type(value) not in kinds:
            return error(f"json: key '{name}' is not {what}")
        return ok(float(value) if kinds == _NUMBERS else value)

    return get


_NUMBERS: Final = (float, int)

RECORD_METHODS: Final[dict[str, Native]] = {
    native.name: native
    for native in (
        Native("get", _get, 1, 1),
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
}

_OPTION: Final = frozenset(("Some", "None"))
_RESULT: Final = frozenset(("Ok", "Error"))


def _is(name: str, family: frozenset[str], method: str) -> Native:
    def ask(_machine: Machine, value: Variant) -> bool:
        if value.name not in family:
            raise _unknown(value, method)
        return value.name == name

    return Native(method, ask, 0, 0)


def _unwrap(machine: Machine, value: Variant) -> Value:
    if value.name in {"Some", "Ok"} and len(value.fields) == 1:
        return value.fields[0]
    if value.name == "None":
        raise VoxError(ErrorKind.UNWRAP_NONE, "`unwrap` of `None`")
    if value.name == "Error":
        raise VoxError(ErrorKind.UNWRAP_ERROR, f"`unwrap` of {shown(machine, value)}")
    raise _unknown(value, "unwrap")


def _unknown(value: Variant, method: str) -> VoxError:
    return VoxError(ErrorKind.UNKNOWN_METHOD, f"{kind_name(value)} has no method `{method}`")


VARIANT_METHODS: Final[dict[str, Native]] = {
    native.name: native
    for native in (
        _is("Some", _OPTION, "is_some"),
        _is("None", _OPTION, "is_none"),
        _is("Ok", _RESULT, "is_ok"),
        _is("Error", _RESULT, "is_err"),
        Native("unwrap", _unwrap, 0, 0),
    )
}
