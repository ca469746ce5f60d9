"""Type rules of expressions: literals, operators, access (O2-O12, V8), calls (C2-C10), and queries of tables (U5)."""

from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.ast.nodes import Argument, FieldAccess, IndexAccess, MethodCall, ObjectLit, StringLit
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.interpreter.library.collections import TABLE_METHODS
from mens_pipeline.language.names.declarations import METHOD_NAMES, Binding, NameKind
from mens_pipeline.language.types.checker import Callee, Checker, Wanted, apply
from mens_pipeline.language.types.declared import is_definite, join_types
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
    UNIT,
    UNKNOWN,
    Callable,
    NamespaceType,
    Nominal,
    Record,
    Type,
    format_type,
    settle,
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
LITERALS: Final[dict[type, Type]] = {
    ast.IntLit: INT,
    ast.FloatLit: FLOAT,
    ast.DecimalLit: DEC,
    ast.StringLit: STR,
    ast.BoolLit: BOOL,
    ast.WorkflowVersion: INT,
}


def name(checker: Checker, node: ast.Ident, _expected: Type) -> Type:
    """Type a name; an unknown one is already reported."""
    binding = checker.find_binding(node)
    return UNKNOWN if binding is None else checker.find_type(binding)


def list_literal(checker: Checker, node: ast.ListLit, expected: Type) -> Type:
    """Type a list, which may mix types (V7) unless its type is annotated."""
    is_known = isinstance(expected, Nominal) and expected.name == "List"
    element = expected.arguments[0] if isinstance(expected, Nominal) and is_known else UNKNOWN
    if is_definite(element):
        wanted = Wanted(element, "an element of this list")
        for part in node.elements:
            checker.expect(part, wanted)
        return expected
    found: Type = NEVER
    for part in node.elements:
        found = join_types(found, checker.infer(part), checker.declared)
    return Nominal("List", (found,))


def tuple_literal(checker: Checker, node: ast.TupleLit, _expected: Type) -> Type:
    return Nominal("Tuple", tuple([checker.infer(part) for part in node.elements]))


def binary(checker: Checker, node: ast.Binary, _expected: Type) -> Type:
    """Type an infix operator other than `|>`; chains of them need no recursion."""
    chain: list[ast.Binary] = []
    left: ast.Expr = node
    while isinstance(left, ast.Binary) and left.op != "Pipe":
        chain.append(left)
        left = left.left
    type_ = checker.infer(left)
    for link in reversed(chain):
        # A record can only equal a struct if it has its fields.
        hint = type_ if link.op in {"Is", "Isnt"} else UNKNOWN
        type_ = operation(checker, link, type_, checker.infer(link.right, hint))
    return type_


def operation(checker: Checker, node: ast.Binary, left: Type, right: Type) -> Type:
    if node.op in {"Is", "Isnt"}:
        return BOOL
    if node.op in {"And", "Or"}:
        for operand, type_ in ((node.left, left), (node.right, right)):
            if is_definite(type_) and type_ != BOOL:
                message = f"`{_SIGNS[node.op]}` takes bools, found `{format_type(type_)}`"
                checker.report(Code.TYPE_MISMATCH, operand, message)
        return BOOL
    if not _is_taken(node.op, left, right):
        found = f"`{format_type(left)}` and `{format_type(right)}`"
        checker.report(Code.TYPE_MISMATCH, node, f"`{_SIGNS[node.op]}` does not take {found}")
    return BOOL if node.op in _ORDERINGS else _type_arithmetic(node.op, left, right)


def _is_taken(op: str, left: Type, right: Type) -> bool:
    known = [type_ for type_ in (left, right) if is_definite(type_)]
    if op == "Add" and (STR in (left, right) or len(known) < 2):  # noqa: PLR2004 - both of them
        return True
    ordered = (STR,) if op in _ORDERINGS else ()
    if any(type_ not in (INT, FLOAT, DEC, *ordered) for type_ in known):
        return False
    return len(known) < 2 or left == right or (left in NUMBERS and right in NUMBERS)  # noqa: PLR2004 - both of them


def _type_arithmetic(op: str, left: Type, right: Type) -> Type:
    if op == "Add" and STR in (left, right):
        return STR
    if left == right and left in (INT, FLOAT, DEC):
        return left
    if left in NUMBERS and right in NUMBERS:
        return FLOAT
    return UNKNOWN


def unary(checker: Checker, node: ast.Unary, _expected: Type) -> Type:
    found = checker.infer(node.operand)
    if node.op == "Not":
        checker.compare(node.operand, found, Wanted(BOOL, "the operand of `not`"))
        return BOOL
    if is_definite(found) and found not in (INT, FLOAT, DEC):
        checker.report(Code.TYPE_MISMATCH, node, f"`-` takes a number, found `{format_type(found)}`")
        return UNKNOWN
    return found


def try_(checker: Checker, node: ast.Try, _expected: Type) -> Type:
    """Type `?` as the value inside; the function must be able to return an absent value or an error (O10)."""
    found = checker.infer(node.operand)
    if isinstance(found, Nominal) and found.name in {"Rows", "Found"}:
        return found if found.name == "Rows" else UNKNOWN
    if not isinstance(found, Nominal) or found.name not in {"Option", "Result"}:
        if is_definite(found):
            message = f"`?` takes an `Option` or a `Result`, found `{format_type(found)}`"
            checker.report(Code.TYPE_MISMATCH, node, message, "Remove the `?`.")
        return UNKNOWN
    result = checker.result.type
    if is_definite(result) and not (isinstance(result, Nominal) and result.name == found.name):
        message = f"`?` returns a `{found.name}` early, but {checker.result.reason} is `{format_type(result)}`"
        checker.report(Code.TRY_OUTSIDE_RESULT, node, message, f"Return a `{found.name}`, or use `match`.")
    return settle(found.arguments[0])


def with_(checker: Checker, node: ast.With, expected: Type) -> Type:
    """Type `with` as its operand (O12)."""
    found = checker.infer(node.operand, expected)
    checker.infer(node.options)
    return found


def call(checker: Checker, node: ast.Call, _expected: Type) -> Type:
    callee = checker.infer(node.callee)
    what = f"`{node.callee.name}`" if isinstance(node.callee, ast.Ident) else "this function"
    binding = checker.find_binding(node.callee)
    if isinstance(callee, Callable):
        result = apply(checker, node, Callee(callee, what), node.arguments)
        if binding is not None and binding.node is None and binding.name == "len" and node.arguments:
            # `len` does not accept all types (F1). Typing its argument twice is safe for names and literals.
            value = node.arguments[0].value
            found = checker.infer(value) if isinstance(value, ast.Ident | ast.IntLit) else UNKNOWN
            if isinstance(found, Nominal) and found.name in {"int", "float", "dec", "bool", "Unit", "Option", "Result"}:
                checker.report(Code.TYPE_MISMATCH, value, f"`len` does not take `{format_type(found)}`")
        return result
    if is_definite(callee):
        if binding is not None and binding.kind is NameKind.VARIANT:
            number = len(node.arguments)
            message = f"{what} has no fields, found {number} argument{'s' * (number != 1)}"
            checker.report(Code.WRONG_ARGUMENT_COUNT, node, message, f"Write {what} alone.")
        else:
            checker.report(Code.NOT_CALLABLE, node, f"{what} is `{format_type(callee)}` and cannot be called")
    for argument in node.arguments:
        checker.infer(argument.value)
    return UNKNOWN


def pipe(checker: Checker, node: ast.Binary, _expected: Type) -> Type:
    """Type `|>` as a call of the right operand with the left one."""
    function = checker.infer(node.right)
    if isinstance(function, Callable):
        argument = ast.Argument(node.left.start, node.left.end, None, node.left)
        what = f"`{node.right.name}`" if isinstance(node.right, ast.Ident) else "this function"
        return apply(checker, node, Callee(function, what), (argument,))
    checker.infer(node.left)
    if is_definite(function):
        checker.report(Code.NOT_CALLABLE, node.right, f"`{format_type(function)}` cannot be called")
    return UNKNOWN


def spawn(checker: Checker, node: ast.Spawn, _expected: Type) -> Type:
    """Type `spawn` as a handle to an actor."""
    checker.infer(node.target)
    binding = checker.find_binding(node.target)
    return (
        Nominal("Actor", (Nominal(binding.name),))
        if binding is not None and binding.kind is NameKind.ACTOR
        else UNKNOWN
    )


def method_call(checker: Checker, node: ast.MethodCall, _expected: Type) -> Type:
    """Type a call of a method, an event of an actor or a function of a namespace."""
    receiver = checker.infer(node.object)
    if not is_definite(receiver) and not isinstance(receiver, NamespaceType):
        return _of_unknown(checker, node, receiver)
    if isinstance(receiver, Nominal) and receiver.name in {"Table", "Rows"} and receiver.arguments:
        return table_method_call(checker, node, receiver)
    what = f"`{node.method}`"
    chosen: dict[str, Type] = {}
    function: Type | None
    if isinstance(receiver, NamespaceType):
        path = receiver.path
        function, known, what = member_type(path, node.method), members(path), f"`{path}.{node.method}`"
    elif isinstance(receiver, Nominal) and receiver.name == "Actor":
        handlers = checker.declared.handlers(format_type(receiver.arguments[0]))
        function, known = handlers.get(node.method), list(handlers)
    elif isinstance(receiver, Nominal) and receiver.name == "Found":
        return _of_found(checker, node, receiver)
    else:
        kind = _find_kind(checker, receiver)
        function, known = method_type(kind, node.method), list(METHOD_TYPES.get(kind, ()))
        if isinstance(receiver, Nominal) and receiver.arguments:
            chosen = {"T": settle(receiver.arguments[0])}
    if function is None:
        _unknown_method(checker, node, receiver, known)
    if isinstance(function, Callable):
        return apply(checker, node, Callee(function, what, chosen), node.arguments)
    for argument in node.arguments:
        checker.infer(argument.value)
    return UNKNOWN


def _of_found(checker: Checker, node: ast.MethodCall, receiver: Nominal) -> Type:
    """Type a method call on a found record: an Option, or in the reference a Result."""
    known = METHOD_TYPES["Option"] | METHOD_TYPES["Result"]
    if node.method not in known:
        _unknown_method(checker, node, Nominal("Option", receiver.arguments), list(known))
    return UNKNOWN


def _find_kind(checker: Checker, receiver: Type) -> str:
    if isinstance(receiver, Record) or checker.declared.fields(receiver) is not None:
        return "Record"
    if isinstance(receiver, Nominal):
        return {"Map": "Record"}.get(receiver.name, receiver.name)
    return ""


def _unknown_method(checker: Checker, node: ast.MethodCall, receiver: Type, known: list[str]) -> None:
    if format_type(receiver) == "dec":
        return
    place = checker.findings.member(node.object, node, node.method)
    shown = receiver.path if isinstance(receiver, NamespaceType) else format_type(receiver)
    checker.report_unknown(Code.UNKNOWN_METHOD, place, f"`{shown}` has no method `{node.method}`", node.method, known)


def _of_unknown(checker: Checker, node: ast.MethodCall, receiver: Type) -> Type:
    """Type a method call on an unknown value; a JSON value has only methods of the library."""
    accessor = method_type("Record", node.method) if node.method.startswith("get_") else None
    if receiver == JSON and isinstance(accessor, Callable):
        return apply(checker, node, Callee(accessor, f"`{node.method}`"), node.arguments)
    for argument in node.arguments:
        checker.infer(argument.value)
    if receiver == JSON and node.method not in METHOD_NAMES:
        _unknown_method(checker, node, receiver, sorted(METHOD_NAMES))
    return UNKNOWN


def view(checker: Checker, node: ast.View | ast.SelfClosingView, _expected: Type) -> Type:
    """Type a view, which may be a call if it has no children (C10)."""
    if isinstance(node, ast.View):
        for child in node.children:
            checker.infer(child)
    binding = checker.find_binding(node)
    if binding is not None and isinstance(node, ast.SelfClosingView):
        function = checker.find_type(binding)
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


def object_literal(checker: Checker, node: ObjectLit, expected: Type) -> Type:
    """Type a record; if a struct is expected, the fields must be the same, except absent ones of type Option."""
    fields = checker.declared.fields(expected)
    if fields is None:
        inner = expected.arguments[-1] if isinstance(expected, Nominal) and expected.name == "Map" else UNKNOWN
        return Record(tuple([(entry.key, checker.infer(entry.value, inner)) for entry in node.fields]))
    check_fields(checker, node, expected, fields)
    given = {entry.key for entry in node.fields}
    optional = {name for name, type_ in fields.items() if isinstance(type_, Nominal) and type_.name == "Option"}
    missing = [name for name in fields if name not in given and name not in optional]
    if missing:
        *others, last = (f"`{name}`" for name in missing)
        listed = f"{', '.join(others)} and {last}" if others else last
        message = f"`{format_type(expected)}` needs {listed}, which this record lacks"
        checker.report(Code.MISSING_FIELD, node, message)
    return expected


def check_fields(checker: Checker, node: ObjectLit, owner: Type, fields: dict[str, Type]) -> None:
    """Compare the fields of a record with those of a struct."""
    for entry in node.fields:
        expected = fields.get(entry.key)
        if expected is None and not (checker.declared.is_table(owner) and entry.key in {"_id", "id"}):
            place = checker.findings.name_in(entry, entry.key)
            message = f"`{format_type(owner)}` has no field `{entry.key}`"
            checker.report_unknown(Code.UNKNOWN_FIELD, place, message, entry.key, fields)
        checker.expect(entry.value, Wanted(expected or UNKNOWN, f"the field `{entry.key}` of `{format_type(owner)}`"))


def field_access(checker: Checker, node: FieldAccess, _expected: Type) -> Type:
    """Type a field of a record, a member of a namespace, or a table of `db` (O8)."""
    binding = checker.find_binding(node.object)
    if binding is not None and binding.node is None and binding.name == "db":
        return Nominal("Table", (Nominal(node.field),)) if node.field in checker.declared.names.tables else UNKNOWN
    owner = checker.infer(node.object)
    if isinstance(owner, NamespaceType):
        return namespace_member(checker, node, owner, node.field)
    if not is_definite(owner):
        return UNKNOWN
    fields = dict(owner.fields) if isinstance(owner, Record) else checker.declared.readable(owner)
    if isinstance(owner, Nominal) and owner.name == "Map":
        return owner.arguments[-1]
    place = checker.findings.member(node.object, node, node.field)
    if fields is None:
        message = f"`{format_type(owner)}` has no fields, so no `.{node.field}`"
        checker.report(Code.UNKNOWN_FIELD, place, message, _instead(checker, owner))
        return UNKNOWN
    if node.field in fields:
        return fields[node.field]
    if not isinstance(owner, Record) or not owner.is_open:
        message = f"`{format_type(owner)}` has no field `{node.field}`"
        checker.report_unknown(Code.UNKNOWN_FIELD, place, message, node.field, fields)
    return UNKNOWN


def namespace_member(checker: Checker, node: FieldAccess, owner: NamespaceType, name: str) -> Type:
    found = member_type(owner.path, name)
    if found is None:
        place = checker.findings.member(node.object, node, name)
        message = f"`{owner.path}` has no member `{name}`"
        checker.report_unknown(Code.UNKNOWN_NAME, place, message, name, members(owner.path))
        return UNKNOWN
    return found


def _instead(checker: Checker, owner: Type) -> str | None:
    if isinstance(owner, Nominal) and owner.name in {"Option", "Result"}:
        return "Look inside with `match` or `?`."
    return "Look inside with `match`." if checker.declared.is_sum(owner) else None


def element(checker: Checker, node: IndexAccess, owner: Type) -> Type:
    """Type an element of a list or record, `xs[k]` or `record["key"]` (O9)."""
    key = checker.infer(node.index)
    if not is_definite(owner):
        return UNKNOWN
    if isinstance(owner, Nominal) and owner.name in {"List", "Rows"} and owner.arguments:
        checker.compare(node.index, key, Wanted(INT, "the index of a list"))
        return settle(owner.arguments[0])
    fields = dict(owner.fields) if isinstance(owner, Record) else checker.declared.readable(owner)
    if fields is not None or (isinstance(owner, Nominal) and owner.name == "Map"):
        checker.compare(node.index, key, Wanted(STR, "the key of a record"))
        literal = node.index.value if isinstance(node.index, StringLit) else None
        return (fields or {}).get(literal or "", UNKNOWN)
    message = f"`{format_type(owner)}` has no elements"
    advice = "Write `.char_at(k)`, or `.slice(k, k + 1)`." if owner == STR else None
    checker.report(Code.TYPE_MISMATCH, node, message, advice)
    return UNKNOWN


_CHAIN: Final = frozenset(("filter", "where", "order_by", "limit", "select", "using", "live", "all", "scope", "sync"))
"""Methods that return rows."""

_OTHERS: Final = frozenset(("query", "using", "live", "first", "find_by", "upsert"))
"""Methods that only the reference has."""

_OF_RESULTS: Final = ("unwrap", "is_ok", "is_err")
_BY_COLUMN: Final = frozenset(("order_by", "select"))
_MANY: Final = 100
_COUNTS: Final = {
    **{name: (native.fewest, native.most) for name, native in TABLE_METHODS.items() if native.most < _MANY},
    **dict.fromkeys(("where", "limit", "using"), (1, 1)),
    "order_by": (1, 2),
}
"""Method -> fewest and most arguments, if they are limited."""


def table_method_call(checker: Checker, node: MethodCall, receiver: Nominal) -> Type:
    """Type a method call on a table, or on rows, which are also a list."""
    record, method = receiver.arguments[0], node.method
    is_table = receiver.name == "Table"
    function = None if is_table else method_type("List", method)
    # `rows.filter({ a: 1 })` queries the database, `rows.filter(f)` is the method of lists.
    is_query = method == "filter" and bool(node.arguments) and isinstance(node.arguments[0].value, ObjectLit)
    if isinstance(function, Callable) and not is_query:
        return apply(checker, node, Callee(function, f"`{method}`", {"T": record}), node.arguments)
    known = (*TABLE_METHODS, *_OTHERS, *_CHAIN, *(() if is_table else (*METHOD_TYPES["List"], *_OF_RESULTS)))
    if method not in known:
        place = checker.findings.member(node.object, node, method)
        owner = f"db.{format_type(record)}" if is_table else format_type(receiver)
        message = f"`{owner}` has no method `{method}`"
        checker.report_unknown(Code.UNKNOWN_METHOD, place, message, method, known)
    fewest, most = _COUNTS.get(method, (0, len(node.arguments)))
    if not fewest <= len(node.arguments) <= most:
        expected = str(most) if fewest == most else f"{fewest} to {most}"
        message = f"`{method}` takes {expected} argument{'s' * (most != 1)}, found {len(node.arguments)}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message)
    for index, argument in enumerate(node.arguments):
        _check_argument(checker, node, index, argument, record)
    return _type_rows(method, record)


def _check_argument(checker: Checker, node: MethodCall, index: int, argument: Argument, record: Type) -> None:
    fields, value = checker.declared.fields(record) or {}, argument.value
    if node.method == "insert":
        checker.expect(value, Wanted(record, f"what `insert` stores in `{format_type(record)}`"))
    elif isinstance(value, ObjectLit) and (node.method == "filter" or (node.method == "update" and index == 1)):
        check_fields(checker, value, record, fields)
    elif isinstance(value, ObjectLit) and node.method == "where":
        check_fields(checker, value, record, dict.fromkeys((*fields, "and", "or", "not"), UNKNOWN))
    elif node.method in _BY_COLUMN and isinstance(value, StringLit) and (node.method == "select" or index == 0):
        known = checker.declared.readable(record) or {}
        # A similarity search may order by `distance`.
        if value.value not in known and value.value not in {"distance", "score", "rank"}:
            message = f"`{format_type(record)}` has no field `{value.value}`"
            checker.report_unknown(Code.UNKNOWN_FIELD, value, message, value.value, known)
    else:
        checker.expect(value, Wanted(INT, "the argument of `limit`") if node.method == "limit" else Wanted(UNKNOWN, ""))


def _type_rows(method: str, record: Type) -> Type:
    """Return the result type of a table method; rows and found records have types that also fit a Result."""
    if method in _CHAIN or method == "unwrap":
        return Nominal("Rows", (record,))
    return {
        "insert": Nominal("Result", (UNKNOWN,)),
        "delete": Nominal("Result", (UNIT,)),
        "update": Nominal("Result", (UNIT,)),
        "get": Nominal("Found", (record,)),
        "find": Nominal("Found", (record,)),
        "first": Nominal("Option", (record,)),
    }.get(method, UNKNOWN)
