"""Declare options of a command once: name, type, default, bounds and help, as fields or parameters."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer
from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

REQUIRED: Final = ...


class Options(BaseModel):
    """Options of a command; each field is an option of the same name."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


_Model = TypeVar("_Model", bound=Options)


def option(
    default: Any,
    text: str = "",
    *flags: str,
    metavar: str | None = None,
    ge: float | None = None,
    le: float | None = None,
    hidden: bool = False,
    field: str | None = None,
) -> Any:
    """Describe an option.

    `flags` replace the flag made from the name. `field` names the field of another model to set (`read_values`).
    """
    extra: dict[str, Any] = {"flags": flags, "metavar": metavar, "hidden": hidden, "field": field, "is_argument": False}
    return Field(default=default, description=text, ge=ge, le=le, json_schema_extra=extra)


def switch(text: str = "", *flags: str, hidden: bool = False) -> Any:
    """Describe a flag that is off by default."""
    return option(False, text, *flags, hidden=hidden)


def argument(text: str, *, metavar: str) -> Any:
    """Describe a required positional argument."""
    return Field(description=text, json_schema_extra={"metavar": metavar, "is_argument": True})


def read_values(options: Options) -> dict[str, tuple[str, Any]]:
    """Return the given values that set fields of another model, by flag: `--rank` -> (`lora_r`, 16)."""
    named = {
        _list_flags(name, field)[0]: (_extra(field)["field"], getattr(options, name))
        for name, field in type(options).model_fields.items()
        if _extra(field).get("field") is not None
    }
    return {flag: (field, value) for flag, (field, value) in named.items() if value is not None}


def take_options(model: type[_Model]) -> Callable[[Callable[[_Model], None]], Callable[..., None]]:
    """Turn a function whose argument is a model into a command with an option for each field."""
    parameters = [_build_parameter(name, field.annotation, field) for name, field in model.model_fields.items()]

    def decorate(function: Callable[[_Model], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**values: Any) -> None:
            function(model(**values))

        return _show_to_typer(run, parameters)

    return decorate


def declare_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command; defaults made by `option`, `switch` or `argument` declare its options."""
    parameters = [
        _build_parameter(name, parameter.annotation, parameter.default)
        if isinstance(parameter.default, FieldInfo)
        else parameter
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    return _show_to_typer(function, parameters)


def _show_to_typer(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _build_parameter(name: str, annotation: Any, field: FieldInfo) -> inspect.Parameter:
    extra = _extra(field)
    default = REQUIRED if field.is_required() else field.default
    shared: dict[str, Any] = {"help": field.description, "metavar": extra["metavar"], **_read_bounds(field)}
    how: Any
    if extra["is_argument"]:
        how = typer.Argument(default, **shared)
    else:
        how = typer.Option(default, *_declared_flags(name, field), hidden=extra["hidden"], **shared)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=how, annotation=annotation)


def _declared_flags(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the flags that typer must not derive itself; it would add `--no-` to a switch that is off."""
    return _list_flags(name, field) if _extra(field)["flags"] or field.default is False else ()


def _list_flags(name: str, field: FieldInfo) -> tuple[str, ...]:
    return _extra(field)["flags"] or (f"--{name.replace('_', '-')}",)


def _read_bounds(field: FieldInfo) -> dict[str, float]:
    bounds = {"min": (Ge, "ge"), "max": (Le, "le")}
    return {
        key: getattr(bound, attribute)
        for key, (kind, attribute) in bounds.items()
        for bound in field.metadata
        if isinstance(bound, kind)
    }


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    if not isinstance(extra, dict):
        raise TypeError(f"{field!r}: not an option. Make it with `option` or `argument`.")
    return extra
