"""The names that every program can use without declaring them (F1, F10), and the methods of every kind of value."""

from decimal import Decimal
from typing import Final

from mens_pipeline.language.interpreter.library.collections import (
    LIST_METHODS,
    RECORD_METHODS,
    TABLE_METHODS,
    VARIANT_METHODS,
    accessor,
)
from mens_pipeline.language.interpreter.library.formats import (
    CSV,
    MATCH_METHODS,
    PATH,
    REGEX_METHODS,
    MatchValue,
    Regex,
    compile_pattern,
    parse,
    parse_or_none,
    quote,
    stringify,
)
from mens_pipeline.language.interpreter.library.scalars import (
    FLOAT_METHODS,
    INT_METHODS,
    TEXT_METHODS,
    TEXTS,
    a_text,
    an_int,
    to_float,
    to_int,
)
from mens_pipeline.language.interpreter.library.views import VIEW_METHODS, Element
from mens_pipeline.language.interpreter.machine import Machine, TableValue
from mens_pipeline.language.interpreter.results import ErrorKind, Refusal, VoxError
from mens_pipeline.language.interpreter.values import (
    NONE,
    UNIT,
    Constructor,
    Namespace,
    Native,
    Refused,
    UnitValue,
    Value,
    VariantValue,
    byte_length,
    format_value,
    kind_name,
    type_error,
)

_MANY: Final = 255  # more arguments than a program passes


def _print(machine: Machine, *values: Value) -> UnitValue:
    machine.write(" ".join([format_value(machine, value) for value in values]))
    return UNIT


def _length(_machine: Machine, value: Value) -> int:
    if type(value) is str:
        return byte_length(value)
    if type(value) is list or type(value) is dict:
        return len(value)
    raise type_error(f"`len` does not take {kind_name(value)}")


def _bool(_machine: Machine, value: Value) -> bool:
    if type(value) in {int, float, bool, str, list}:
        return bool(value)
    return value is not NONE


def _range(machine: Machine, first: Value, last: Value | None = None) -> list[Value]:
    start, end = (0, first) if last is None else (an_int(first, "the start of `range`"), last)
    numbers = range(start, an_int(end, "the end of `range`"))
    machine.allocate(max(0, numbers.stop - numbers.start))
    return list(numbers)


_TYPE_NAMES: Final[dict[type, str]] = {
    int: "int",
    float: "float",
    Decimal: "dec",
    str: "str",
    bool: "bool",
    list: "List",
    dict: "Object",
    tuple: "Tuple",
    UnitValue: "Unit",
}
_VARIANT_TYPES: Final = {"None": "null", "Some": "Option", "Ok": "Result", "Error": "Result"}


def _name_type(_machine: Machine, value: Value) -> str:
    name = _VARIANT_TYPES.get(value.name) if type(value) is VariantValue else _TYPE_NAMES.get(type(value))
    if name is None and hasattr(value, "invoke"):
        return "fn"
    if name is None:
        raise type_error(f"`type_of` has no name for {kind_name(value)}")
    return name


def _panic(machine: Machine, message: Value) -> Value:
    raise VoxError(ErrorKind.PANIC, format_value(machine, message))


def _read_key(what: str, kinds: tuple[type, ...]) -> Native:
    get = accessor(what, kinds)

    def read(machine: Machine, text: Value, key: Value) -> VariantValue:
        parsed = parse(machine, text)
        if parsed.name == "Error":
            return parsed
        value = parsed.fields[0]
        return get(machine, value if type(value) is dict else {}, key)

    return Native("read", read, 2, 2)


def _log(level: str) -> Native:
    def write(machine: Machine, message: Value) -> UnitValue:
        machine.write(f"{level}: {a_text(message, 'a log message')}")
        return UNIT

    return Native(f"std.log.{level}", write, 1, 1)


_STRINGIFY: Final = Native("stringify", stringify, 1, 1)

_REFUSED: Final = {
    "fs": Refusal.FILES,
    "io": Refusal.FILES,
    "http": Refusal.NETWORK,
    "env": Refusal.ENVIRONMENT,
    "args": Refusal.ENVIRONMENT,
    "process": Refusal.PROCESS,
    "time": Refusal.CLOCK,
    "now_ms": Refusal.CLOCK,
    "uuid": Refusal.RANDOM,
    "hash_fast": Refusal.CRYPTO,
    "hash_secure": Refusal.CRYPTO,
    "toml": Refusal.FORMAT,
    "yaml": Refusal.FORMAT,
    "mobile": Refusal.MOBILE,
    "agentos": Refusal.AGENTOS,
}
_CRYPTO: Final = {name: _REFUSED[name] for name in ("uuid", "hash_fast", "hash_secure")}

STD: Final = Namespace(
    "std",
    {
        **{name: Refused(reason, f"std.{name}") for name, reason in _REFUSED.items()},
        "crypto": Namespace(
            "std.crypto", {name: Refused(reason, f"std.crypto.{name}") for name, reason in _CRYPTO.items()}
        ),
        "json": Namespace(
            "std.json",
            {
                "parse": Native("std.json.parse", parse, 1, 1),
                "stringify": _STRINGIFY,
                "quote": Native("std.json.quote", quote, 1, 1),
                "read_str": _read_key("a string", (str,)),
                "read_f64": _read_key("a number", (float, int)),
            },
        ),
        "regex": Namespace("std.regex", {"compile": Native("std.regex.compile", compile_pattern, 1, 1)}),
        "csv": Namespace("std.csv", dict(CSV)),
        "path": Namespace("std.path", dict(PATH)),
        "log": Namespace("std.log", {level: _log(level) for level in ("debug", "info", "warn", "error")}),
    },
)

_OUTSIDE: Final = {
    "fs": Refusal.FILES,
    "env": Refusal.ENVIRONMENT,
    "process": Refusal.PROCESS,
    "secrets": Refusal.SECRETS,
    "HTTP": Refusal.NETWORK,
    "mobile": Refusal.MOBILE,
    "Speech": Refusal.SPEECH,
    "OpenClaw": Refusal.OPENCLAW,
    "Browser": Refusal.BROWSER,
    "Claude": Refusal.MODEL,
    "db": Refusal.DATABASE,
    **dict.fromkeys(("use_state", "use_effect", "use_memo", "use_ref", "use_callback"), Refusal.INTERFACE),
}

PREDEFINED_VARIANTS: Final = {"Some": 1, "None": 0, "Ok": 1, "Error": 1}
"""Variant -> number of its fields (V10, V11)."""

BUILT_INS: Final[dict[str, Value]] = {
    **{name: Refused(reason, name) for name, reason in _OUTSIDE.items()},
    "print": Native("print", _print, 0, _MANY),
    "println": Native("println", _print, 0, _MANY),
    "len": Native("len", _length, 1, 1),
    "str": Native("str", format_value, 1, 1),
    "to_string": Native("to_string", format_value, 1, 1),
    "int": Native("int", to_int, 1, 1),
    "float": Native("float", to_float, 1, 1),
    "bool": Native("bool", _bool, 1, 1),
    "range": Native("range", _range, 1, 2),
    "type_of": Native("type_of", _name_type, 1, 1),
    "panic": Native("panic", _panic, 1, 1),
    "Some": Constructor("Some", ("value",)),
    "Ok": Constructor("Ok", ("value",)),
    "Error": Constructor("Error", ("message",)),
    "Err": Constructor("Error", ("message",)),
    "None": NONE,
    "null": NONE,
    "Unit": UNIT,
    "std": STD,
    "json": Namespace(
        "json",
        {"parse": Native("json.parse", parse_or_none, 1, 1), "stringify": _STRINGIFY, "encode": _STRINGIFY},
    ),
}
"""Values of names that neither a scope nor the module declares."""


METHODS: Final[dict[type, dict[str, Native]]] = {
    int: INT_METHODS,
    float: FLOAT_METHODS,
    bool: TEXTS,
    str: TEXT_METHODS,
    list: LIST_METHODS,
    dict: RECORD_METHODS,
    VariantValue: VARIANT_METHODS,
    Regex: REGEX_METHODS,
    MatchValue: MATCH_METHODS,
    TableValue: TABLE_METHODS,
    Element: VIEW_METHODS,
}
"""Python type of a value -> all its methods (J5)."""
