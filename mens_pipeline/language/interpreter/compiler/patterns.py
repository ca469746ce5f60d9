"""Patterns: tests that bind names (3.3 of the run-time rules)."""

from collections.abc import Callable
from typing import Any

from mens_pipeline.language.ast.patterns import (
    ConstructorPattern,
    IdentPattern,
    LiteralPattern,
    Pattern,
    TuplePattern,
    WildcardPattern,
)
from mens_pipeline.language.interpreter.compiler.scope import Frame, Scope
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.values import Value, Variant

Matcher = Callable[[Value, Frame], bool]
"""Whether a value fits; if so, the names of the pattern are bound."""


def matcher(pattern: Pattern, scope: Scope, *, mutable: bool = False) -> Matcher:
    """Compile a pattern and declare its names.

    Args:
        pattern: The pattern.
        scope: Where its names live.
        mutable: Whether they may be assigned to.
    """
    return _FORMS[type(pattern)](pattern, scope, mutable)


def _wildcard(_pattern: WildcardPattern, _scope: Scope, _mutable: bool) -> Matcher:  # noqa: FBT001 - one shape for all
    return lambda _value, _frame: True


def _name(pattern: IdentPattern, scope: Scope, mutable: bool) -> Matcher:  # noqa: FBT001 - one shape for all
    """Compile a name: a known variant without payload is a test, every other name binds (K2)."""
    name = _canonical(pattern.name)
    num_fields = scope.module.variants.get(name)
    if num_fields == 0:
        return lambda value, _frame: type(value) is Variant and value.name == name
    if num_fields is not None:
        return _wrong_arity(pattern.name, num_fields, 0, pattern, scope)
    slot = scope.declare(pattern.name, mutable=mutable)

    def bind(value: Value, frame: Frame) -> bool:
        frame[slot] = value
        return True

    return bind


def _literal(pattern: LiteralPattern, _scope: Scope, _mutable: bool) -> Matcher:  # noqa: FBT001 - one shape for all
    kind, literal = type(pattern.value), pattern.value
    return lambda value, _frame: type(value) is kind and value == literal


def _constructor(pattern: ConstructorPattern, scope: Scope, mutable: bool) -> Matcher:  # noqa: FBT001 - see above
    name = _canonical(pattern.name)
    num_fields = scope.module.variants.get(name)
    # Its names count as declared even if it can never match: the arm behind it must compile all the same.
    inner = [matcher(field, scope, mutable=mutable) for field in pattern.fields]
    if num_fields is None:
        message = f"no type has a variant `{pattern.name}`"
        return _failing(VoxError(ErrorKind.UNKNOWN_VARIANT, message), pattern, scope)
    if num_fields != len(inner):
        return _wrong_arity(pattern.name, num_fields, len(inner), pattern, scope)

    def match(value: Value, frame: Frame) -> bool:
        if type(value) is not Variant or value.name != name or len(value.fields) != num_fields:
            return False
        return all(matches(field, frame) for matches, field in zip(inner, value.fields, strict=True))

    return match


def _tuple(pattern: TuplePattern, scope: Scope, mutable: bool) -> Matcher:  # noqa: FBT001 - one shape for all
    inner = [matcher(element, scope, mutable=mutable) for element in pattern.elements]

    def match(value: Value, frame: Frame) -> bool:
        if type(value) is not tuple or len(value) != len(inner):
            return False
        return all(matches(element, frame) for matches, element in zip(inner, value, strict=True))

    return match


def _canonical(name: str) -> str:
    return "Error" if name == "Err" else name


def _wrong_arity(name: str, expected: int, found: int, pattern: Pattern, scope: Scope) -> Matcher:
    message = f"`{name}` has {expected} fields, its pattern {found}"
    return _failing(VoxError(ErrorKind.PATTERN_ARITY, message), pattern, scope)


def _failing(error: VoxError, pattern: Pattern, scope: Scope) -> Matcher:
    """Return a matcher that raises an error when its turn comes, not before (U3)."""
    reason, message = error.reason, error.message

    def match(_value: Value, _frame: Frame) -> bool:
        raise scope.placed(VoxError(reason, message), pattern)

    return match


_FORMS: dict[type, Callable[[Any, Scope, bool], Matcher]] = {
    WildcardPattern: _wildcard,
    IdentPattern: _name,
    LiteralPattern: _literal,
    ConstructorPattern: _constructor,
    TuplePattern: _tuple,
}
