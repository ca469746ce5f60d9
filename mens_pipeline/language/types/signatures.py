"""The types of built-in values, written in Vox; the numbers of their arguments come from the interpreter."""

from functools import cache
from typing import Final

from mens_pipeline.language.ast.declarations import Const
from mens_pipeline.language.ast.nodes import FunctionType, GenericType, NamedType
from mens_pipeline.language.ast.nodes import Type as Syntax
from mens_pipeline.language.front_end import analyze
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, METHODS
from mens_pipeline.language.interpreter.library.formats import MatchValue, Regex
from mens_pipeline.language.interpreter.values import Native, Refused, VariantValue
from mens_pipeline.language.types.terms import (
    NEVER,
    UNKNOWN,
    Callable,
    NamespaceType,
    Nominal,
    Type,
    Variable,
)

RECEIVERS: Final[dict[str, type]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "List": list,
    "Record": dict,
    "Option": VariantValue,
    "Result": VariantValue,
    "Regex": Regex,
    "Match": MatchValue,
}
"""Type -> the Python type with its methods."""

_TEXTS: Final = {"to_str": "fn() to str", "to_string": "fn() to str"}
_JSON: Final = {
    "get_str": "fn(str) to Result[str]",
    "get_int": "fn(str) to Result[int]",
    "get_float": "fn(str) to Result[float]",
    "get_bool": "fn(str) to Result[bool]",
    "get_object": "fn(str) to Result[Json]",
    "get_array": "fn(str) to Result[Json]",
    "to_string": "fn() to str",
    "is_null": "fn() to bool",
}

METHOD_TYPES: Final[dict[str, dict[str, str]]] = {
    "int": {**_TEXTS, "abs": "fn() to int", "min": "fn(int) to int", "max": "fn(int) to int"},
    "float": _TEXTS | dict.fromkeys(("abs", "floor", "ceil", "round", "sqrt"), "fn() to float"),
    "bool": _TEXTS,
    "str": {
        **_TEXTS,
        **dict.fromkeys(("len", "length", "chars_count"), "fn() to int"),
        **dict.fromkeys(("is_empty",), "fn() to bool"),
        **dict.fromkeys(("to_upper", "to_uppercase", "to_lower", "to_lowercase"), "fn() to str"),
        **dict.fromkeys(("trim", "trim_start", "trim_end"), "fn() to str"),
        **dict.fromkeys(("contains", "starts_with", "ends_with"), "fn(str) to bool"),
        "split": "fn(str) to List[str]",
        "replace": "fn(str, str) to str",
        "slice": "fn(int, int) to str",
        "char_at": "fn(int) to Option[str]",
        "index_of": "fn(str) to Option[int]",
        "repeat": "fn(int) to str",
    },
    "List": {
        **dict.fromkeys(("len", "length"), "fn() to int"),
        **dict.fromkeys(("is_empty", "is_null"), "fn() to bool"),
        **dict.fromkeys(("push", "append"), "fn(T) to List[T]"),
        **dict.fromkeys(("pop", "first", "last"), "fn() to T"),
        "get": "fn(int) to Option[T]",
        "contains": "fn(T) to bool",
        "join": "fn(str) to str",
        "reverse": "fn() to List[T]",
        "map": "fn(fn(T) to U) to List[U]",
        "filter": "fn(fn(T) to bool) to List[T]",
        "at": "fn(int) to Result[T]",
        "to_string": "fn() to str",
    },
    "Record": {**_JSON, "get": "fn(str) to Option[_]", "keys": "fn() to List[str]"},
    "Option": {**dict.fromkeys(("is_some", "is_none"), "fn() to bool"), "unwrap": "fn() to T"},
    "Result": {**dict.fromkeys(("is_ok", "is_err"), "fn() to bool"), "unwrap": "fn() to T"},
    "Regex": {"matches": "fn(str) to bool", "find": "fn(str) to Option[Match]", "find_all": "fn(str) to List[Match]"},
    "Match": {"group": "fn(int) to Option[str]"},
}
"""Type -> method -> its type; `T` is the type of the element or value."""

_PROCESS: Final = {
    "which": "fn(str) to Option[str]",
    "run": "fn(str, List[str]) to Result[int]",
    "run_ex": "fn(str, List[str], str, List[str]) to Result[int]",
    "run_capture": "fn(str, List[str]) to Result[_]",
    "run_capture_ex": "fn(str, List[str], str, List[str]) to Result[_]",
    "run_capture_json": "fn(str, List[str]) to Result[Json]",
    "run_capture_lines": "fn(str, List[str]) to Result[List[str]]",
    "spawn_background": "fn(str, List[str]) to Result[int]",
    "exec": "fn(str, List[str]) to Result[Unit]",
    "register_exit_command": "fn(str, List[str]) to Result[Unit]",
    "exit": "fn(int) to never",
}
_MOBILE: Final = {
    **dict.fromkeys(
        ("get_location", "take_photo", "take_photo_from_gallery", "transcribe_microphone", "accelerometer"),
        "fn() to Result[str]",
    ),
    **dict.fromkeys(("read_clipboard", "read_contacts"), "fn() to Result[str]"),
    **dict.fromkeys(("biometric_auth", "share_text"), "fn(str) to Result[bool]"),
    "notify": "fn(str, str) to Result[Unit]",
    "vibrate": "fn() to Result[Unit]",
    "platform": "fn() to str",
    "has_camera": "fn() to bool",
    "copy_to_clipboard": "fn(str) to Unit",
    "store_file": "fn(str, str) to Result[bool]",
    "read_file": "fn(str) to Result[str]",
    "push": "_",
}
_FORMAT: Final = {"parse": "fn(str) to Result[Json]", "render": "fn(_) to Result[str]"}
_HASHES: Final = {"uuid": "fn() to str", "hash_fast": "fn(str) to str", "hash_secure": "fn(str) to str"}

MEMBER_TYPES: Final[dict[str, dict[str, str]]] = {
    "std": {**_HASHES, "now_ms": "fn() to int", "args": "_"},
    "std.fs": {
        **dict.fromkeys(("read", "read_bytes", "remove", "mkdir", "canonicalize"), "fn(str) to Result[str]"),
        **dict.fromkeys(("exists", "is_file", "is_dir"), "fn(str) to bool"),
        **dict.fromkeys(("list_dir", "glob"), "fn(str) to Result[List[str]]"),
        "list_dir_detailed": "fn(str) to Result[List[_]]",
        "stat": "fn(str) to Result[_]",
        "remove_dir_all": "fn(str) to Result[Unit]",
        **dict.fromkeys(("write", "copy"), "fn(str, str) to Result[Unit]"),
    },
    "std.path": {
        "join": "fn(str, str) to str",
        "join_many": "fn(List[str]) to str",
        **dict.fromkeys(("basename", "dirname", "extension"), "fn(str) to str"),
    },
    "std.env": {"get": "fn(str) to Option[str]"},
    "std.process": _PROCESS,
    "std.csv": {
        "parse": "fn(str) to Result[List[List[str]]]",
        "parse_records": "fn(str) to Result[List[Json]]",
        "render": "fn(List[List[str]]) to Result[str]",
    },
    "std.toml": _FORMAT,
    "std.yaml": _FORMAT,
    "std.io": {"open": "fn(str) to Result[Json]", "save": "fn(str, _) to Result[Unit]"},
    "std.json": {
        "parse": "fn(str) to Result[Json]",
        "stringify": "fn(_) to str",
        "quote": "fn(str) to str",
        "read_str": "fn(str, str) to Result[str]",
        "read_f64": "fn(str, str) to Result[float]",
    },
    "json": {"parse": "fn(str) to Json", "stringify": "fn(_) to str", "encode": "fn(_) to str"},
    "std.http": {"get_text": "fn(str) to Result[str]", "post_json": "fn(str, str) to Result[str]"},
    "std.crypto": _HASHES,
    "std.time": {"now_ms": "fn() to int"},
    "std.log": dict.fromkeys(("debug", "info", "warn", "error"), "fn(str) to Unit"),
    "std.regex": {"compile": "fn(str) to Result[Regex]"},
    "std.agentos": {"mutation_kind_for_tool": "fn(str) to str"},
    "std.mobile": _MOBILE,
    "mobile": _MOBILE,
    "fs": {
        "read_file": "fn(str) to Option[str]",
        "write_file": "fn(str, str) to bool",
        **dict.fromkeys(("list_dir", "glob"), "fn(str) to Result[List[str]]"),
        **dict.fromkeys(("read", "write", "copy", "remove", "exists", "is_file", "is_dir", "mkdir"), "_"),
    },
    "path": {"join": "fn(str, str) to str", **dict.fromkeys(("basename", "dirname", "extension", "join_many"), "_")},
    "env": {"get": "fn(str) to Option[str]", "args": "fn() to List[str]", "set": "fn(str, str) to Unit"},
    "secrets": {"resolve": "fn(str) to Option[str]"},
}
"""Namespace -> member -> its type; `_` for unknown; other namespaces may have any members."""

_FUNCTIONS: Final = {
    "len": "fn(_) to int",
    "str": "fn(_) to str",
    "to_string": "fn(_) to str",
    "int": "fn(_) to int",
    "float": "fn(_) to float",
    "bool": "fn(_) to bool",
    "range": "fn(int, int) to List[int]",
    "type_of": "fn(_) to str",
    "panic": "fn(_) to never",
    "Some": "fn(T) to Option[T]",
    "Ok": "fn(T) to Result[T]",
    "Error": "fn(_) to Result[never]",
    "Err": "fn(_) to Result[never]",
    "None": "Option[never]",
    "null": "_",
    "Unit": "Unit",
    "assert": "fn(bool, _) to Unit",
    "assert_eq": "fn(T, T) to Unit",
    "assert_ne": "fn(_, _) to Unit",
    "workflow_wait": "fn(str) to Unit",
    "workflow_wait_signal": "fn(str) to _",
}
_FEWEST: Final = {"assert": 1}
"""Fewest arguments of functions that are not values of the interpreter."""


@cache
def parse_type(text: str) -> Type:
    """Parse a type; `T` and `U` are variables, `_` is unknown."""
    module = analyze(f"let x: {text} = y").module
    constant = module.declarations[0] if module is not None else None
    assert isinstance(constant, Const)  # noqa: S101 - the texts are those above
    return _convert_type(constant.type)


def _convert_type(node: Syntax | None) -> Type:
    if isinstance(node, FunctionType):
        parameters = tuple(map(_convert_type, node.parameters))
        return Callable(parameters, _convert_type(node.return_type), len(parameters))
    if isinstance(node, GenericType):
        return Nominal(node.name, tuple(map(_convert_type, node.arguments)))
    if isinstance(node, NamedType):
        return Variable(node.name) if node.name in {"T", "U"} else NEVER if node.name == "never" else Nominal(node.name)
    return UNKNOWN


@cache
def method_type(receiver: str, method: str) -> Type | None:
    text = METHOD_TYPES.get(receiver, {}).get(method)
    return None if text is None else _set_fewest(parse_type(text), METHODS[RECEIVERS[receiver]][method])


@cache
def member_type(path: str, member: str) -> Type | None:
    """Return the type of a member of a namespace; None if it does not exist."""
    below = f"{path}.{member}"
    if below in MEMBER_TYPES:
        return NamespaceType(below)
    members = MEMBER_TYPES.get(path)
    if members is None:
        return UNKNOWN
    text = members.get(member)
    return None if text is None else parse_type(text)


def members(path: str) -> list[str]:
    below = [other.removeprefix(f"{path}.") for other in MEMBER_TYPES if other.startswith(f"{path}.")]
    return [*MEMBER_TYPES.get(path, ()), *below]


@cache
def built_in_type(name: str) -> Type:
    native = BUILT_INS.get(name)
    if name in MEMBER_TYPES or isinstance(native, Refused):
        return NamespaceType(name)
    text = _FUNCTIONS.get(name)
    if text is None:
        return UNKNOWN
    type_ = parse_type(text)
    if isinstance(type_, Callable) and name in _FEWEST:
        return Callable(type_.parameters, type_.result, _FEWEST[name])
    return _set_fewest(type_, native) if isinstance(native, Native) else type_


def _set_fewest(type_: Type, native: Native) -> Type:
    assert isinstance(type_, Callable)  # noqa: S101 - natives are callable
    return Callable(type_.parameters, type_.result, native.fewest)
