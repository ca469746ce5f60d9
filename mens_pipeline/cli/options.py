"""Options of a command from the fields of a pydantic model: name, type, default, bounds and help stand once."""

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
    """Values of the options of a command; each field is an option of its name."""

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

    Args:
        default: Its value where it is not given; `REQUIRED` for none.
        text: What `--help` says of it.
        flags: Its names where they are not that of the field: `--json`.
        metavar: What stands for its value in the help.
        ge: The least value.
        le: The greatest value.
        hidden: Whether the help leaves it out.
        field: The field of another model that it sets, such as `lora_r` of the recipe; see `values_of`.
    """
    extra: dict[str, Any] = {"flags": flags, "metavar": metavar, "hidden": hidden, "field": field, "is_argument": False}
    return Field(default=default, description=text, ge=ge, le=le, json_schema_extra=extra)


def switch(text: str = "", *flags: str, hidden: bool = False) -> Any:
    """Describe an option without a value, which is off where it is not given."""
    return option(False, text, *flags, hidden=hidden)


def argument(text: str, *, metavar: str) -> Any:
    """Describe a positional argument that must be given."""
    return Field(description=text, json_schema_extra={"metavar": metavar, "is_argument": True})


def values_of(options: Options) -> dict[str, tuple[str, Any]]:
    """Return the values that options set in another model, by their first flag: `--rank` -> (`lora_r`, 16)."""
    named = {
        _flags_of(name, field)[0]: (_extra(field)["field"], getattr(options, name))
        for name, field in type(options).model_fields.items()
        if _extra(field).get("field") is not None
    }
    return {flag: (field, value) for flag, (field, value) in named.items() if value is not None}


def take_options(model: type[_Model]) -> Callable[[Callable[[_Model], None]], Callable[..., None]]:
    """Turn a function of one model into a command that has an option for each field of it."""
    parameters = [_parameter_of(name, field.annotation, field) for name, field in model.model_fields.items()]

    def decorate(function: Callable[[_Model], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**values: Any) -> None:
            function(model(**values))

        return _show_to_typer(run, parameters)

    return decorate


def declare_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command: a parameter with `option`, `switch` or `argument` as its default is one."""
    parameters = [
        _parameter_of(name, parameter.annotation, parameter.default)
        if isinstance(parameter.default, FieldInfo)
        else parameter
        for name, parameter in inspect.signature(function).parameters.items()
    ]
    return _show_to_typer(function, parameters)


def _show_to_typer(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _parameter_of(name: str, annotation: Any, field: FieldInfo) -> inspect.Parameter:
    extra = _extra(field)
    default = REQUIRED if field.is_required() else field.default
    shared: dict[str, Any] = {"help": field.description, "metavar": extra["metavar"], **_bounds_of(field)}
    how: Any
    if extra["is_argument"]:
        how = typer.Argument(default, **shared)
    else:
        how = typer.Option(default, *_declared_flags(name, field), hidden=extra["hidden"], **shared)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=how, annotation=annotation)


def _declared_flags(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the flags that typer shall not derive; a switch that is off by default has no `--no-` beside it."""
    return _flags_of(name, field) if _extra(field)["flags"] or field.default is False else ()


def _flags_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    return _extra(field)["flags"] or (f"--{name.replace('_', '-')}",)


def _bounds_of(field: FieldInfo) -> dict[str, float]:
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
        raise TypeError(f"{field!r}: no option. Make it with `option` or `argument`.")
    return extra
