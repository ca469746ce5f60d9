"""Literals, names, operators (O2-O7, O10-O12), and calls of functions, methods and views (C2-C10, O11)."""

from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.names.declarations import METHOD_NAMES, Binding, Kind
from mens_pipeline.language.types.checker import Callee, Checker, Wanted, apply
from mens_pipeline.language.types.declared import is_definite, join_types
from mens_pipeline.language.types.records import table_method_call
from mens_pipeline.language.types.signatures import METHOD_TYPES, member_type, members, method_type
from mens_pipeline.language.types.terms import (
    BOOL,
    DEC,
    FLOAT,
    INT,
    JSON,
    NEVER,
    NUMBERS,
    STR,
    UNKNOWN,
    Callable,
    Named,
    Namespace,
    Record,
    Type,
    list_of,
    settle,
    text_of,
)

_SIGNS: Final = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "Lt": "<",
    "Gt": ">",
    "Lte": "<=",
    "Gte": ">=",
    "And": "and",
    "Or": "or",
}
_ORDERINGS: Final = frozenset(("Lt", "Gt", "Lte", "Gte"))
_LITERALS: Final[dict[type, Type]] = {
    ast.IntLit: INT,
    ast.FloatLit: FLOAT,
    ast.DecimalLit: DEC,
    ast.StringLit: STR,
    ast.BoolLit: BOOL,
    ast.WorkflowVersion: INT,
}


def literal(_checker: Checker, node: ast.Expr, _expected: Type) -> Type:
    """Type a literal."""
    return _LITERALS[type(node)]


def name(checker: Checker, node: ast.Ident, _expected: Type) -> Type:
    """Type a name; one that means nothing has been reported."""
    binding = checker.binding_of(node)
    return UNKNOWN if binding is None else checker.type_of(binding)


def list_literal(checker: Checker, node: ast.ListLit, expected: Type) -> Type:
    """Type a list; lists may mix types (V7), but not where their type is written."""
    is_known = isinstance(expected, Named) and expected.name == "List"
    element = expected.arguments[0] if isinstance(expected, Named) and is_known else UNKNOWN
    if is_definite(element):
        wanted = Wanted(element, "an element of this list")
        for part in node.elements:
            checker.expect(part, wanted)
        return expected
    found: Type = NEVER
    for part in node.elements:
        found = join_types(found, checker.infer(part), checker.declared)
    return list_of(found)


def tuple_literal(checker: Checker, node: ast.TupleLit, _expected: Type) -> Type:
    """Type a tuple."""
    return Named("Tuple", tuple([checker.infer(part) for part in node.elements]))


def binary(checker: Checker, node: ast.Binary, _expected: Type) -> Type:
    """Type an infix operator other than `|>`; a long chain is gone down without recursion."""
    chain: list[ast.Binary] = []
    left: ast.Expr = node
    while isinstance(left, ast.Binary) and left.op != "Pipe":
        chain.append(left)
        left = left.left
    type_ = checker.infer(left)
    for link in reversed(chain):
        # A record that is compared with a struct has its fields, or never equals it.
        hint = type_ if link.op in {"Is", "Isnt"} else UNKNOWN
        type_ = operation(checker, link, type_, checker.infer(link.right, hint))
    return type_


def operation(checker: Checker, node: ast.Binary, left: Type, right: Type) -> Type:
    """Return the type of an operation."""
    if node.op in {"Is", "Isnt"}:
        return BOOL
    if node.op in {"And", "Or"}:
        for operand, type_ in ((node.left, left), (node.right, right)):
            if is_definite(type_) and type_ != BOOL:
                message = f"`{_SIGNS[node.op]}` takes bools, found `{text_of(type_)}`"
                checker.report(Code.TYPE_MISMATCH, operand, message)
        return BOOL
    is_right = _is_ordered(left, right) if node.op in _ORDERINGS else _is_computed(node.op, left, right)
    if not is_right:
        found = f"`{text_of(left)}` and `{text_of(right)}`"
        checker.report(Code.TYPE_MISMATCH, node, f"`{_SIGNS[node.op]}` does not take {found}")
    return BOOL if node.op in _ORDERINGS else _result_of(node.op, left, right)


def _is_ordered(left: Type, right: Type) -> bool:
    """Return whether an ordering takes these types: numbers, or two strings, or two decimals (O4)."""
    known = [type_ for type_ in (left, right) if is_definite(type_)]
    if any(type_ not in (INT, FLOAT, STR, DEC) for type_ in known):
        return False
    return len(known) < 2 or left == right or (left in NUMBERS and right in NUMBERS)  # noqa: PLR2004 - both of them


def _is_computed(op: str, left: Type, right: Type) -> bool:
    """Return whether arithmetic takes these types: numbers, decimals, and for `+` strings with anything (O2, O3)."""
    if op == "Add" and (STR in (left, right) or not (is_definite(left) and is_definite(right))):
        return True
    known = [type_ for type_ in (left, right) if is_definite(type_)]
    if any(type_ not in (INT, FLOAT, DEC) for type_ in known):
        return False
    return len(known) < 2 or (left == DEC) == (right == DEC)  # noqa: PLR2004 - both of them


def _result_of(op: str, left: Type, right: Type) -> Type:
    if op == "Add" and STR in (left, right):
        return STR
    if left == right and left in (INT, FLOAT, DEC):
        return left
    if left in NUMBERS and right in NUMBERS:
        return FLOAT
    return UNKNOWN


def unary(checker: Checker, node: ast.Unary, _expected: Type) -> Type:
    """`-` and `not`."""
    found = checker.infer(node.operand)
    if node.op == "Not":
        checker.compare(node.operand, found, Wanted(BOOL, "the operand of `not`"))
        return BOOL
    if is_definite(found) and found not in (INT, FLOAT, DEC):
        checker.report(Code.TYPE_MISMATCH, node, f"`-` takes a number, found `{text_of(found)}`")
        return UNKNOWN
    return found


def try_(checker: Checker, node: ast.Try, _expected: Type) -> Type:
    """`?`: the value inside; what is not there is returned from the function, which must be able to (O10)."""
    found = checker.infer(node.operand)
    if isinstance(found, Named) and found.name in {"Rows", "Found"}:
        return found if found.name == "Rows" else UNKNOWN
    if not isinstance(found, Named) or found.name not in {"Option", "Result"}:
        if is_definite(found):
            message = f"`?` takes an `Option` or a `Result`, found `{text_of(found)}`"
            checker.report(Code.TYPE_MISMATCH, node, message, "Remove the `?`.")
        return UNKNOWN
    result = checker.result.type
    if is_definite(result) and not (isinstance(result, Named) and result.name == found.name):
        message = f"`?` returns a `{found.name}` early, but {checker.result.reason} is `{text_of(result)}`"
        checker.report(Code.TRY_OUTSIDE_RESULT, node, message, f"Return a `{found.name}`, or use `match`.")
    return settle(found.arguments[0])


def with_(checker: Checker, node: ast.With, expected: Type) -> Type:
    """`with`: the value of its operand (O12)."""
    found = checker.infer(node.operand, expected)
    checker.infer(node.options)
    return found


def call(checker: Checker, node: ast.Call, _expected: Type) -> Type:
    """Type a call of a function or constructor."""
    callee = checker.infer(node.callee)
    what = f"`{node.callee.name}`" if isinstance(node.callee, ast.Ident) else "this function"
    binding = checker.binding_of(node.callee)
    if isinstance(callee, Callable):
        result = apply(checker, node, Callee(callee, what), node.arguments)
        if binding is not None and binding.node is None and binding.name == "len" and node.arguments:
            # `len` does not take all (F1); its argument was typed before, so only names and literals.
            value = node.arguments[0].value
            found = checker.infer(value) if isinstance(value, ast.Ident | ast.IntLit) else UNKNOWN
            if isinstance(found, Named) and found.name in {"int", "float", "dec", "bool", "Unit", "Option", "Result"}:
                checker.report(Code.TYPE_MISMATCH, value, f"`len` does not take `{text_of(found)}`")
        return result
    if is_definite(callee):
        if binding is not None and binding.kind is Kind.VARIANT:
            number = len(node.arguments)
            message = f"{what} has no fields, found {number} argument{'s' * (number != 1)}"
            checker.report(Code.WRONG_ARGUMENT_COUNT, node, message, f"Write {what} alone.")
        else:
            checker.report(Code.NOT_CALLABLE, node, f"{what} is `{text_of(callee)}` and cannot be called")
    for argument in node.arguments:
        checker.infer(argument.value)
    return UNKNOWN


def pipe(checker: Checker, node: ast.Binary, _expected: Type) -> Type:
    """`|>`: its right operand is called with the left one."""
    function = checker.infer(node.right)
    if isinstance(function, Callable):
        argument = ast.Argument(node.left.start, node.left.end, None, node.left)
        what = f"`{node.right.name}`" if isinstance(node.right, ast.Ident) else "this function"
        return apply(checker, node, Callee(function, what), (argument,))
    checker.infer(node.left)
    if is_definite(function):
        checker.report(Code.NOT_CALLABLE, node.right, f"`{text_of(function)}` cannot be called")
    return UNKNOWN


def spawn(checker: Checker, node: ast.Spawn, _expected: Type) -> Type:
    """`spawn`: a handle on an actor."""
    checker.infer(node.target)
    binding = checker.binding_of(node.target)
    return Named("Actor", (Named(binding.name),)) if binding is not None and binding.kind is Kind.ACTOR else UNKNOWN


def method_call(checker: Checker, node: ast.MethodCall, _expected: Type) -> Type:
    """Type a call of a method, an event of an actor or a function of a namespace."""
    receiver = checker.infer(node.object)
    if not is_definite(receiver) and not isinstance(receiver, Namespace):
        return _of_unknown(checker, node, receiver)
    if isinstance(receiver, Named) and receiver.name in {"Table", "Rows"} and receiver.arguments:
        return table_method_call(checker, node, receiver)
    what = f"`{node.method}`"
    chosen: dict[str, Type] = {}
    function: Type | None
    if isinstance(receiver, Namespace):
        path = receiver.path
        function, known, what = member_type(path, node.method), members(path), f"`{path}.{node.method}`"
    elif isinstance(receiver, Named) and receiver.name == "Actor":
        handlers = checker.declared.handlers(text_of(receiver.arguments[0]))
        function, known = handlers.get(node.method), list(handlers)
    elif isinstance(receiver, Named) and receiver.name == "Found":
        return _of_found(checker, node, receiver)
    else:
        kind = kind_of(checker, receiver)
        function, known = method_type(kind, node.method), list(METHOD_TYPES.get(kind, ()))
        if isinstance(receiver, Named) and receiver.arguments:
            chosen = {"T": settle(receiver.arguments[0])}
    if function is None:
        _unknown_method(checker, node, receiver, known)
    if isinstance(function, Callable):
        return apply(checker, node, Callee(function, what, chosen), node.arguments)
    for argument in node.arguments:
        checker.infer(argument.value)
    return UNKNOWN


def _of_found(checker: Checker, node: ast.MethodCall, receiver: Named) -> Type:
    """Type a method of what was found: an Option, or in the reference a Result with one inside."""
    known = METHOD_TYPES["Option"] | METHOD_TYPES["Result"]
    if node.method not in known:
        _unknown_method(checker, node, Named("Option", receiver.arguments), list(known))
    return UNKNOWN


def kind_of(checker: Checker, receiver: Type) -> str:
    """Return the name under which the methods of a type are listed; a sum type, a function and Unit have none."""
    if isinstance(receiver, Record) or checker.declared.is_struct(receiver):
        return "Record"
    if isinstance(receiver, Named):
        return {"Map": "Record"}.get(receiver.name, receiver.name)
    return ""


def _unknown_method(checker: Checker, node: ast.MethodCall, receiver: Type, known: list[str]) -> None:
    """Report an unknown method; not of a decimal, to which the reference gives more than the interpreter."""
    if text_of(receiver) == "dec":
        return
    place = checker.findings.member(node.object, node, node.method)
    shown = receiver.path if isinstance(receiver, Namespace) else text_of(receiver)
    checker.report_unknown(Code.UNKNOWN_METHOD, place, f"`{shown}` has no method `{node.method}`", node.method, known)


def _of_unknown(checker: Checker, node: ast.MethodCall, receiver: Type) -> Type:
    """Type a method of a value of unknown type; one read from JSON has no methods that no value has."""
    accessor = method_type("Record", node.method) if node.method.startswith("get_") else None
    if receiver == JSON and isinstance(accessor, Callable):
        return apply(checker, node, Callee(accessor, f"`{node.method}`"), node.arguments)
    for argument in node.arguments:
        checker.infer(argument.value)
    if receiver == JSON and node.method not in METHOD_NAMES:
        _unknown_method(checker, node, receiver, sorted(METHOD_NAMES))
    return UNKNOWN


def view(checker: Checker, node: ast.View | ast.SelfClosingView, _expected: Type) -> Type:
    """Type a view; one without children may be a call (C10)."""
    if isinstance(node, ast.View):
        for child in node.children:
            checker.infer(child)
    binding = checker.binding_of(node)
    if binding is not None and isinstance(node, ast.SelfClosingView):
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
    checker: Checker,
    node: ast.View | ast.SelfClosingView,
    binding: Binding,
    types: dict[str, Type],
    needed: frozenset[str],
) -> None:
    """Check attributes by name, in any order; `key` is for the list that the view stands in."""
    what = f"`{binding.name}`"
    given = {attribute.name for attribute in node.attributes}
    for attribute in node.attributes:
        name = attribute.name if attribute.name in types else f"attr_{attribute.name}"
        if name not in types and attribute.name != "key":
            message = f"{what} has no attribute `{attribute.name}`"
            checker.report_unknown(Code.WRONG_ARGUMENT_NAME, attribute, message, attribute.name, types)
        wanted = Wanted(types.get(name, UNKNOWN), f"the attribute `{name}` of {what}")
        if isinstance(wanted.type, Callable) and isinstance(attribute.value, ast.Block):
            checker.infer(attribute.value)  # statements in braces are a handler
        else:
            checker.expect(attribute.value, wanted)
    missing = sorted(name for name in needed if name not in given and name.removeprefix("attr_") not in given)
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        place = checker.findings.name_in(node, node.tag)
        checker.report(Code.WRONG_ARGUMENT_COUNT, place, f"{what} needs {listed}, which this view lacks")
