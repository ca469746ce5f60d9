"""Compile literals, names, operators and access (O1-O14 of the run-time rules), and the assert family (C8, T3)."""

from collections.abc import Callable, Collection
from typing import Final

from mens_pipeline.language import ast
from mens_pipeline.language.interpreter.arithmetic import OPERATIONS, negate, parse_decimal, truth
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.library.views import CellValue
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import ErrorKind, ReturnSignal, VoxError
from mens_pipeline.language.interpreter.values import (
    UNIT,
    Namespace,
    Refused,
    Value,
    VariantValue,
    arity_error,
    equal,
    format_value,
    kind_name,
    quote_value,
    type_error,
)


def constant(value: Value) -> Code:
    return lambda _frame: value


def decimal_literal(node: ast.DecimalLit, scope: Scope) -> Code:
    """Compile a decimal literal; one that does not fit raises when it is reached."""
    try:
        return constant(parse_decimal(node.text))
    except VoxError as error:
        return scope.failing(error, node)


def name(node: ast.Ident, scope: Scope) -> Code:
    """Compile a name: the nearest local, else a name of the module, else a built-in (B1)."""
    binding = scope.find(node.name)
    if binding is not None:
        slot = binding.slot
        return lambda frame: frame[slot]
    names, wanted = scope.module.names, node.name

    def run(_frame: Frame) -> Value:
        try:
            value = names[wanted]
        except KeyError:
            raise scope.add_place(VoxError(ErrorKind.UNDEFINED_NAME, f"`{wanted}` is not defined"), node) from None
        kind = type(value)
        if kind is Refused:
            raise scope.add_place(value.fault(), node)
        return value.read() if kind is CellValue else value

    return run


def object_literal(node: ast.ObjectLit, scope: Scope) -> Code:
    """Compile a record; a repeated key raises when it is reached (V8)."""
    keys = [field.key for field in node.fields]
    codes = scope.codes([field.value for field in node.fields])
    if len(set(keys)) < len(keys):
        repeated = next(key for index, key in enumerate(keys) if key in keys[:index])
        message = f"the field `{repeated}` occurs twice in a record"
        return scope.failing(VoxError(ErrorKind.DUPLICATE_FIELD, message), node, *codes)
    pairs = list(zip(keys, codes, strict=True))
    return lambda frame: {key: code(frame) for key, code in pairs}


def list_literal(node: ast.ListLit, scope: Scope) -> Code:
    codes = scope.codes(node.elements)
    return lambda frame: [code(frame) for code in codes]


def tuple_literal(node: ast.TupleLit, scope: Scope) -> Code:
    """Compile a tuple (V7)."""
    codes = scope.codes(node.elements)
    return lambda frame: tuple([code(frame) for code in codes])


def binary(node: ast.Binary, scope: Scope) -> Code:
    """Compile an infix operator other than `and`, `or` and `|>`."""
    left, right = scope.code(node.left), scope.code(node.right)
    operate, machine = OPERATIONS[node.op], scope.module.machine

    def run(frame: Frame) -> Value:
        try:
            return operate(machine, left(frame), right(frame))
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


def logical(node: ast.Binary, scope: Scope) -> Code:
    """Compile `and` or `or`, which evaluate the right operand only if it decides (O7)."""
    left, right = scope.code(node.left), scope.code(node.right)
    word, decided = ("`and`", False) if node.op == "And" else ("`or`", True)

    def run(frame: Frame) -> Value:
        try:
            first = truth(left(frame), word)
            return first if first is decided else truth(right(frame), word)
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


def unary(node: ast.Unary, scope: Scope) -> Code:
    """Compile `-` or `not` (O6)."""
    operand = scope.code(node.operand)
    negates = node.op == "Neg"

    def run(frame: Frame) -> Value:
        value = operand(frame)
        try:
            return negate(value) if negates else not truth(value, "`not`")
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


def try_(node: ast.Try, scope: Scope) -> Code:
    """Compile `?`, which unwraps a value, or returns `None` or the `Error` early (O10)."""
    operand, machine = scope.code(node.operand), scope.module.machine
    passes_lists = scope.module.features.database  # rows count as a Result (U5)

    def run(frame: Frame) -> Value:
        value = operand(frame)
        if passes_lists and type(value) is list:
            return value
        if type(value) is VariantValue:
            if value.name in {"Ok", "Some"} and len(value.fields) == 1:
                return value.fields[0]
            if value.name in {"Error", "None"}:
                raise ReturnSignal(value)
        message = f"`?` takes an Option or a Result, found {quote_value(machine, value)}"
        raise scope.add_place(type_error(message), node)

    return run


def with_(node: ast.With, scope: Scope) -> Code:
    """Compile `with`, which evaluates the options and ignores them (O12)."""
    operand, options = scope.code(node.operand), scope.code(node.options)

    def run(frame: Frame) -> Value:
        value = operand(frame)
        options(frame)
        return value

    return run


def field_access(node: ast.FieldAccess, scope: Scope) -> Code:
    """Compile access to a field of a record or a member of a namespace (O8)."""
    target, field = scope.code(node.object), node.field

    def run(frame: Frame) -> Value:
        value = target(frame)
        try:
            return member(value, field)
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


def member(value: Value, field: str) -> Value:
    """Return a field of a record or a member of a namespace; raise a `VoxError` if it does not exist."""
    if type(value) is dict:
        if field in value:
            return value[field]
        raise VoxError(ErrorKind.MISSING_FIELD, f"the record has no field `{field}`")
    if type(value) is not Namespace:
        raise type_error(f"{kind_name(value)} has no fields, so no `.{field}`")
    found = value.members.get(field)
    if found is None:
        raise VoxError(ErrorKind.UNDEFINED_NAME, f"`{value.path}.{field}` is not defined")
    if type(found) is Refused:
        raise found.fault()
    return found


def index_access(node: ast.IndexAccess, scope: Scope) -> Code:
    """Compile `xs[k]` or `record["key"]` (O9)."""
    target, index = scope.code(node.object), scope.code(node.index)

    def run(frame: Frame) -> Value:
        value, key = target(frame), index(frame)
        try:
            return value[position(value, key)]
        except VoxError as error:
            raise scope.add_place(error, node) from None

    return run


def position(value: Value, key: Value) -> int | str:
    """Resolve an index, perhaps negative, to one from 0, or a key to an existing field."""
    if type(value) is list and type(key) is int:
        if -len(value) <= key < len(value):
            return key % len(value)
        raise VoxError(ErrorKind.INDEX_OUT_OF_RANGE, f"index {key} in a list of {len(value)} elements")
    if type(value) is dict and type(key) is str:
        if key in value:
            return key
        raise VoxError(ErrorKind.MISSING_FIELD, f"the record has no field `{key}`")
    raise type_error(f"{kind_name(value)} cannot be indexed by {kind_name(key)}")


def is_name(node: ast.Expr, words: Collection[str]) -> bool:
    return isinstance(node, ast.Ident) and node.name in words


_COMPARISONS: Final = {"Is": "is", "Isnt": "isnt", "Lt": "<", "Gt": ">", "Lte": "<=", "Gte": ">="}


def assertion(node: ast.Call, scope: Scope) -> Code:
    """Compile a call of `assert`, `assert_eq` or `assert_ne` by its bare name."""
    name = getattr(node.callee, "name", "")
    fewest, most, make = ASSERTIONS[name]
    named = next((argument.name for argument in node.arguments if argument.name is not None), None)
    num_arguments = len(node.arguments)
    check = make(node, scope) if fewest <= num_arguments <= most else None
    expected = str(most) if fewest == most else f"{fewest} to {most}"
    machine = scope.module.machine

    def run(frame: Frame) -> Value:
        machine.num_assertions += 1
        try:
            if named is not None:
                message = f"the arguments of assertions have no names, found `{named}`"
                raise VoxError(ErrorKind.NAMED_ARGUMENT, message)  # noqa: TRY301 - its place is added below
            if check is None:
                raise arity_error(name, expected, num_arguments)
            check(frame)
        except VoxError as error:
            raise scope.add_place(error, node) from None
        return UNIT

    return run


def _assert(node: ast.Call, scope: Scope) -> Code:
    condition, machine = node.arguments[0].value, scope.module.machine
    message = scope.code(node.arguments[1].value) if len(node.arguments) > 1 else None
    judge = _comparison(condition, scope) if isinstance(condition, ast.Binary) else None
    plain = scope.code(condition) if judge is None else None

    def run(frame: Frame) -> Value:
        explanation = judge(frame) if judge is not None else None
        if plain is not None and not truth(plain(frame), "`assert`"):
            explanation = "the assertion is false"
        words = message(frame) if message is not None else None
        if explanation is None:
            return UNIT
        raise VoxError(None, explanation if words is None else f"{format_value(machine, words)}: {explanation}")

    return run


def _comparison(node: ast.Binary, scope: Scope) -> Callable[[Frame], str | None] | None:
    word = _COMPARISONS.get(node.op)
    if word is None:
        return None
    left, right = scope.code(node.left), scope.code(node.right)
    operate, machine = OPERATIONS[node.op], scope.module.machine

    def judge(frame: Frame) -> str | None:
        a, b = left(frame), right(frame)
        return None if operate(machine, a, b) else _difference(machine, word, a, b)

    return judge


def _difference(machine: Machine, word: str, left: Value, right: Value) -> str:
    return f"expected `left {word} right` (left: {quote_value(machine, left)}, right: {quote_value(machine, right)})"


def _comparing(*, same: bool) -> Callable[[ast.Call, Scope], Code]:
    def make(node: ast.Call, scope: Scope) -> Code:
        left, right = scope.code(node.arguments[0].value), scope.code(node.arguments[1].value)
        machine = scope.module.machine

        def run(frame: Frame) -> Value:
            a, b = left(frame), right(frame)
            if equal(machine, a, b) is not same:
                raise VoxError(None, _difference(machine, "is" if same else "isnt", a, b))
            return UNIT

        return run

    return make


ASSERTIONS: Final[dict[str, tuple[int, int, Callable[[ast.Call, Scope], Code]]]] = {
    "assert": (1, 2, _assert),
    "assert_eq": (2, 2, _comparing(same=True)),
    "assert_ne": (2, 2, _comparing(same=False)),
}
"""Name -> fewest arguments, most arguments, compiler of the check."""
