"""The types of built-ins agree with the interpreter."""

from typing import Any

import pytest

from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, METHODS, STD
from mens_pipeline.language.interpreter.values import Namespace, Native, Refused
from mens_pipeline.language.types.signatures import (
    MEMBER_TYPES,
    METHOD_TYPES,
    RECEIVERS,
    built_in_type,
    member_type,
    members,
    method_type,
)
from mens_pipeline.language.types.terms import Callable, format_type

_OPTION = {"is_some", "is_none", "unwrap"}
_RESULT = {"is_ok", "is_err", "unwrap"}


@pytest.mark.parametrize("name", METHOD_TYPES)
def test_every_method_has_a_type(name: str) -> None:
    methods = METHODS[RECEIVERS[name]]
    expected = {"Option": _OPTION, "Result": _RESULT}.get(name, set(methods))

    assert set(METHOD_TYPES[name]) == expected
    for method in expected:
        type_ = method_type(name, method)
        assert isinstance(type_, Callable)
        assert (type_.fewest, len(type_.parameters)) == (methods[method].fewest, methods[method].most)


def _natives(space: Namespace) -> list[tuple[str, str, Any]]:
    found = []
    for name, member in space.members.items():
        found += _natives(member) if isinstance(member, Namespace) else [(space.path, name, member)]
    return found


@pytest.mark.parametrize(("path", "name", "member"), [*_natives(STD), *_natives(BUILT_INS["json"])])
def test_every_member_of_a_namespace_has_a_type(path: str, name: str, member: Any) -> None:
    type_ = member_type(path, name)

    assert name in members(path)
    if isinstance(member, Native):
        assert isinstance(type_, Callable)
        assert member.fewest == type_.fewest
    else:
        assert isinstance(member, Refused)
        assert type_ is not None


@pytest.mark.parametrize("name", BUILT_INS)
def test_every_built_in_function_has_the_parameters_of_its_type(name: str) -> None:
    native, type_ = BUILT_INS[name], built_in_type(name)
    if isinstance(native, Native) and name not in {"print", "println"}:
        assert isinstance(type_, Callable)
        assert (type_.fewest, len(type_.parameters)) == (native.fewest, native.most)


def test_types_are_written_as_programs_write_them() -> None:
    assert format_type(method_type("List", "map") or built_in_type("")) == "fn(fn(T) to U) to List[U]"
    assert format_type(built_in_type("std")) == "std"
    assert format_type(built_in_type("nothing")) == "_"
    assert set(MEMBER_TYPES) >= {"std", "std.fs", "json"}
