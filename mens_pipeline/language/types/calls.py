"""Calls of functions, constructors, methods and views, and `|>` (C2-C10, O11)."""

from mens_pipeline.language.ast.expressions import (
    Argument,
    Binary,
    Block,
    Call,
    Expr,
    Ident,
    IntLit,
    MethodCall,
    SelfClosingView,
    Spawn,
    View,
)
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.built_ins import METHOD_NAMES
from mens_pipeline.language.names.declarations import Binding, Kind
from mens_pipeline.language.types import database
from mens_pipeline.language.types.arguments import Callee, apply
from mens_pipeline.language.types.checker import Checker, Wanted
from mens_pipeline.language.types.fitting import is_definite
from mens_pipeline.language.types.signatures import METHOD_TYPES, member_type, members, method_type
from mens_pipeline.language.types.terms import (
    JSON,
    UNKNOWN,
    Callable,
    Named,
    Namespace,
    Record,
    Type,
    settled,
    text_of,
)


def call(checker: Checker, node: Call, _expected: Type) -> Type:
    """Type a call of a function or constructor."""
    callee = checker.infer(node.callee)
    what = f"`{node.callee.name}`" if isinstance(node.callee, Ident) else "this function"
    binding = checker.used(node.callee)
    if isinstance(callee, Callable):
        result = apply(checker, node, Callee(callee, what), node.arguments)
        if binding is not None and binding.node is None and binding.name == "len" and node.arguments:
            _check_length(checker, node.arguments[0].value)
        return result
    if is_definite(callee):
        if binding is not None and binding.kind is Kind.VARIANT:
            message = f"{what} has no fields, found {_counted(len(node.arguments))}"
            checker.report(Code.WRONG_ARGUMENT_COUNT, node, message, f"Write {what} alone.")
        else:
            checker.report(Code.NOT_CALLABLE, node, f"{what} is `{text_of(callee)}` and cannot be called")
    for argument in node.arguments:
        checker.infer(argument.value)
    return UNKNOWN


def _check_length(checker: Checker, node: Expr) -> None:
    """Report what `len` does not take (F1); its argument was typed before, so only names and literals."""
    found = checker.infer(node) if isinstance(node, Ident | IntLit) else UNKNOWN
    if isinstance(found, Named) and found.name in {"int", "float", "dec", "bool", "Unit", "Option", "Result"}:
        checker.report(Code.TYPE_MISMATCH, node, f"`len` does not take `{text_of(found)}`")


def pipe(checker: Checker, node: Binary, _expected: Type) -> Type:
    """`|>`: its right operand is called with the left one."""
    function = checker.infer(node.right)
    if isinstance(function, Callable):
        argument = Argument(node.left.start, node.left.end, None, node.left)
        what = f"`{node.right.name}`" if isinstance(node.right, Ident) else "this function"
        return apply(checker, node, Callee(function, what), (argument,))
    checker.infer(node.left)
    if is_definite(function):
        checker.report(Code.NOT_CALLABLE, node.right, f"`{text_of(function)}` cannot be called")
    return UNKNOWN


def spawn(checker: Checker, node: Spawn, _expected: Type) -> Type:
    """`spawn`: a handle on an actor."""
    checker.infer(node.target)
    binding = checker.used(node.target)
    return Named("Actor", (Named(binding.name),)) if binding is not None and binding.kind is Kind.ACTOR else UNKNOWN


def method_call(checker: Checker, node: MethodCall, _expected: Type) -> Type:
    """Type a call of a method, an event of an actor or a function of a namespace."""
    receiver = checker.infer(node.object)
    if not is_definite(receiver) and not isinstance(receiver, Namespace):
        return _of_unknown(checker, node, receiver)
    if isinstance(receiver, Named) and receiver.name in {"Table", "Rows"} and receiver.arguments:
        return database.method_call(checker, node, receiver)
    what = f"`{node.method}`"
    chosen: dict[str, Type] = {}
    function: Type | None
    if isinstance(receiver, Namespace):
        function, known, what = _member(receiver, node.method)
    elif isinstance(receiver, Named) and receiver.name == "Actor":
        handlers = checker.declared.handlers(text_of(receiver.arguments[0]))
        function, known = handlers.get(node.method), list(handlers)
    elif isinstance(receiver, Named) and receiver.name == "Found":
        return _of_found(checker, node, receiver)
    else:
        kind = kind_of(checker, receiver)
        function, known = method_type(kind, node.method), list(METHOD_TYPES.get(kind, ()))
        if isinstance(receiver, Named) and receiver.arguments:
            chosen = {"T": settled(receiver.arguments[0])}
    if function is None:
        _unknown_method(checker, node, receiver, known)
    if isinstance(function, Callable):
        return apply(checker, node, Callee(function, what, chosen), node.arguments)
    for argument in node.arguments:
        checker.infer(argument.value)
    return UNKNOWN


def _of_found(checker: Checker, node: MethodCall, receiver: Named) -> Type:
    """Type a method of what was found: an Option, or in the reference a Result with one inside."""
    known = METHOD_TYPES["Option"] | METHOD_TYPES["Result"]
    if node.method not in known:
        _unknown_method(checker, node, Named("Option", receiver.arguments), list(known))
    return UNKNOWN


def _member(owner: Namespace, name: str) -> tuple[Type | None, list[str], str]:
    return member_type(owner.path, name), members(owner.path), f"`{owner.path}.{name}`"


def kind_of(checker: Checker, receiver: Type) -> str:
    """Return the name under which the methods of a type are listed; a sum type, a function and Unit have none."""
    if isinstance(receiver, Record) or checker.declared.is_struct(receiver):
        return "Record"
    if isinstance(receiver, Named):
        return {"Map": "Record"}.get(receiver.name, receiver.name)
    return ""


def _unknown_method(checker: Checker, node: MethodCall, receiver: Type, known: list[str]) -> None:
    """Report an unknown method; not of a decimal, to which the reference gives more than the interpreter."""
    if text_of(receiver) == "dec":
        return
    place = checker.findings.member(node.object, node, node.method)
    shown = receiver.path if isinstance(receiver, Namespace) else text_of(receiver)
    checker.report_unknown(Code.UNKNOWN_METHOD, place, f"`{shown}` has no method `{node.method}`", node.method, known)


def _of_unknown(checker: Checker, node: MethodCall, receiver: Type) -> Type:
    """Type a method of a value of unknown type; one read from JSON has no methods that no value has."""
    accessor = method_type("Record", node.method) if node.method.startswith("get_") else None
    if receiver == JSON and isinstance(accessor, Callable):
        return apply(checker, node, Callee(accessor, f"`{node.method}`"), node.arguments)
    for argument in node.arguments:
        checker.infer(argument.value)
    if receiver == JSON and node.method not in METHOD_NAMES:
        _unknown_method(checker, node, receiver, sorted(METHOD_NAMES))
    return UNKNOWN


def view(checker: Checker, node: View | SelfClosingView, _expected: Type) -> Type:
    """Type a view; one without children may be a call (C10)."""
    if isinstance(node, View):
        for child in node.children:
            checker.infer(child)
    binding = checker.used(node)
    if binding is not None and isinstance(node, SelfClosingView):
        function = checker.type_of(binding)
        if isinstance(function, Callable):
            return apply(checker, node, Callee(function, f"`{node.tag}`"), node.attributes)
    properties = checker.declared.properties(binding) if binding is not None else None
    if binding is None or properties is None:
        for attribute in node.attributes:
            checker.infer(attribute.value)
        return UNKNOWN
    _attributes(checker, node, binding, *properties)
    return UNKNOWN


def _attributes(
    checker: Checker, node: View | SelfClosingView, binding: Binding, types: dict[str, Type], needed: frozenset[str]
) -> None:
    """By name, in any order; `key` is for the list that the view stands in."""
    what = f"`{binding.name}`"
    given = {attribute.name for attribute in node.attributes}
    for attribute in node.attributes:
        name = attribute.name if attribute.name in types else f"attr_{attribute.name}"
        if name not in types and attribute.name != "key":
            message = f"{what} has no attribute `{attribute.name}`"
            checker.report_unknown(Code.WRONG_ARGUMENT_NAME, attribute, message, attribute.name, types)
        _attribute_value(
            checker, attribute.value, Wanted(types.get(name, UNKNOWN), f"the attribute `{name}` of {what}")
        )
    missing = sorted(name for name in needed if name not in given and name.removeprefix("attr_") not in given)
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        place = checker.findings.name_in(node, node.tag)
        checker.report(Code.WRONG_ARGUMENT_COUNT, place, f"{what} needs {listed}, which this view lacks")


def _attribute_value(checker: Checker, value: Expr, wanted: Wanted) -> None:
    """Statements in braces are a handler."""
    if isinstance(wanted.type, Callable) and isinstance(value, Block):
        checker.infer(value)
    else:
        checker.expect(value, wanted)


def _counted(number: int) -> str:
    return f"{number} argument{'s' * (number != 1)}"
