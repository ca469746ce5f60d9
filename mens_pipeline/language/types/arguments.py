"""Comparison of the arguments of a call with its parameters (C2-C4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.expressions import Argument, Attribute, Lambda
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.types.checker import Checker, Wanted
from mens_pipeline.language.types.terms import Callable, Type, choose, substituted, text_of


@dataclass(frozen=True, slots=True)
class Callee:
    """Callee of a call.

    `what` is what messages call it; `chosen` is what its variables stand for, as far as it is known.
    """

    type: Callable
    what: str
    chosen: dict[str, Type] = field(default_factory=dict)


def apply(checker: Checker, node: Node, callee: Callee, arguments: Sequence[Argument | Attribute]) -> Type:
    """Type a call, and compare the number, names and types of its arguments."""
    function = callee.type
    most = len(function.parameters)
    if not function.fewest <= len(arguments) <= most:
        expected = str(most) if function.fewest == most else f"{function.fewest} to {most}"
        message = f"{callee.what} takes {expected} argument{'s' * (most != 1)}, found {len(arguments)}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message, _parameters(function))
        for argument in arguments:
            checker.infer(argument.value)
        return substituted(function.result, {})
    # Lambdas last: what the other arguments are decides what they are given.
    ordered = sorted(enumerate(arguments), key=lambda entry: isinstance(entry[1].value, Lambda))
    for index, argument in ordered:
        _argument(checker, callee, index, argument)
    return substituted(function.result, callee.chosen)


def _parameters(function: Callable) -> str | None:
    if not function.names:
        return None
    parameters = zip(function.names, function.parameters, strict=True)
    return f"Its parameters are ({', '.join(f'{name}: {text_of(type_)}' for name, type_ in parameters)})."


def _argument(checker: Checker, callee: Callee, index: int, argument: Argument | Attribute) -> None:
    function, what = callee.type, callee.what
    parameter = function.parameters[index]
    own = function.names[index] if index < len(function.names) else None
    if argument.name is not None and own not in {argument.name, f"attr_{argument.name}"}:
        instead = f"is called `{own}`" if own is not None else "has no name"
        message = f"argument {index + 1} of {what} {instead}, found `{argument.name}`"
        checker.report(Code.WRONG_ARGUMENT_NAME, argument, message, "Arguments are taken in the order of parameters.")
    reason = f"the argument `{own}` of {what}" if own is not None else f"argument {index + 1} of {what}"
    found = checker.expect(argument.value, Wanted(substituted(parameter, callee.chosen), reason))
    choose(parameter, found, callee.chosen)
