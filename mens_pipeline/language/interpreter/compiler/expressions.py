"""Literals, names, operators and access (section 2 of the run-time rules)."""

from collections.abc import Collection

from mens_pipeline.language.ast.expressions import (
    Binary,
    BoolLit,
    DecimalLit,
    Expr,
    FieldAccess,
    FloatLit,
    Ident,
    IndexAccess,
    IntLit,
    ListLit,
    ObjectLit,
    StringLit,
    Try,
    TupleLit,
    Unary,
    With,
)
from mens_pipeline.language.interpreter.arithmetic import OPERATIONS, negate, truth
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.decimals import decimal_of
from mens_pipeline.language.interpreter.faults import ReturnSignal, VoxError
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.text_form import shown
from mens_pipeline.language.interpreter.values import Namespace, Refused, Value, Variant, kind_name, type_error


def literal(node: IntLit | FloatLit | StringLit | BoolLit, _scope: Scope) -> Code:
    """Compile a literal (O14)."""
    value = node.value
    return lambda _frame: value


def decimal_literal(node: DecimalLit, scope: Scope) -> Code:
    """Compile a decimal literal; one that does not fit is an error when it is reached."""
    try:
        value = decimal_of(node.text)
    except VoxError as error:
        reason, message = error.reason, error.message

        def fail(_frame: Frame) -> Value:
            raise scope.placed(VoxError(reason, message), node)

        return fail
    return lambda _frame: value


def name(node: Ident, scope: Scope) -> Code:
    """Compile a name: the nearest local, else module and built-ins (B1)."""
    binding = scope.find(node.name)
    if binding is not None:
        slot = binding.slot
        return lambda frame: frame[slot]
    names, wanted = scope.module.names, node.name

    def run(_frame: Frame) -> Value:
        try:
            value = names[wanted]
        except KeyError:
            raise scope.placed(VoxError(ErrorKind.UNDEFINED_NAME, f"`{wanted}` is not defined"), node) from None
        if type(value) is Refused:
            raise scope.placed(value.fault(), node)
        return value

    return run


def object_literal(node: ObjectLit, scope: Scope) -> Code:
    """Compile a record; a key may stand once (V8)."""
    keys = [field.key for field in node.fields]
    codes = scope.codes([field.value for field in node.fields])
    if len(set(keys)) < len(keys):
        repeated = next(key for index, key in enumerate(keys) if key in keys[:index])

        def fail(frame: Frame) -> Value:
            for code in codes:
                code(frame)
            message = f"the field `{repeated}` stands twice in a record"
            raise scope.placed(VoxError(ErrorKind.DUPLICATE_FIELD, message), node)

        return fail
    pairs = list(zip(keys, codes, strict=True))
    return lambda frame: {key: code(frame) for key, code in pairs}


def list_literal(node: ListLit, scope: Scope) -> Code:
    """Compile a list."""
    codes = scope.codes(node.elements)
    return lambda frame: [code(frame) for code in codes]


def tuple_literal(node: TupleLit, scope: Scope) -> Code:
    """Compile a tuple (V7)."""
    codes = scope.codes(node.elements)
    return lambda frame: tuple([code(frame) for code in codes])


def binary(node: Binary, scope: Scope) -> Code:
    """Compile an infix operator other than `and`, `or` and `|>`."""
    left, right = scope.code(node.left), scope.code(node.right)
    operate, machine = OPERATIONS[node.op], scope.module.machine

    def run(frame: Frame) -> Value:
        try:
            return operate(machine, left(frame), right(frame))
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


def logical(node: Binary, scope: Scope) -> Code:
    """`and` and `or`: the right operand only if it decides (O7)."""
    left, right = scope.code(node.left), scope.code(node.right)
    word, decided = ("`and`", False) if node.op == "And" else ("`or`", True)

    def run(frame: Frame) -> Value:
        try:
            first = truth(left(frame), word)
            return first if first is decided else truth(right(frame), word)
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


def unary(node: Unary, scope: Scope) -> Code:
    """`-` and `not` (O6)."""
    operand = scope.code(node.operand)
    negates = node.op == "Neg"

    def run(frame: Frame) -> Value:
        value = operand(frame)
        try:
            return negate(value) if negates else not truth(value, "`not`")
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


def try_(node: Try, scope: Scope) -> Code:
    """`?`: the value inside, or an early return of what has none (O10)."""
    operand, machine = scope.code(node.operand), scope.module.machine

    def run(frame: Frame) -> Value:
        value = operand(frame)
        if type(value) is Variant:
            if value.name in {"Ok", "Some"} and len(value.fields) == 1:
                return value.fields[0]
            if value.name in {"Error", "None"}:
                raise ReturnSignal(value)
        message = f"`?` takes an Option or a Result, found {shown(machine, value)}"
        raise scope.placed(type_error(message), node)

    return run


def with_(node: With, scope: Scope) -> Code:
    """`with`: the options are evaluated and ignored (O12)."""
    operand, options = scope.code(node.operand), scope.code(node.options)

    def run(frame: Frame) -> Value:
        value = operand(frame)
        options(frame)
        return value

    return run


def field_access(node: FieldAccess, scope: Scope) -> Code:
    """Compile an access to a field of a record or a member of a namespace (O8)."""
    target, field = scope.code(node.object), node.field

    def run(frame: Frame) -> Value:
        value = target(frame)
        try:
            return member(value, field)
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


def member(value: Value, field: str) -> Value:
    """Return the field of a record or the member of a namespace that stands behind a dot.

    Raises:
        VoxError: There is no such field or member, or nothing that could have one.
    """
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


def index_access(node: IndexAccess, scope: Scope) -> Code:
    """`xs[k]`, `record["key"]` (O9)."""
    target, index = scope.code(node.object), scope.code(node.index)

    def run(frame: Frame) -> Value:
        value, key = target(frame), index(frame)
        try:
            return value[position(value, key)]
        except VoxError as error:
            scope.placed(error, node)
            raise

    return run


def position(value: Value, key: Value) -> int | str:
    """Resolve an index to one from 0, or to a field that exists.

    An index counts from 0, or from the end if it is negative; or it is the name of a field.

    Raises:
        VoxError: There is nothing there, or nothing of this kind can be there.
    """
    if type(value) is list and type(key) is int:
        if -len(value) <= key < len(value):
            return key % len(value)
        raise VoxError(ErrorKind.INDEX_OUT_OF_RANGE, f"index {key} in a list of {len(value)} elements")
    if type(value) is dict and type(key) is str:
        if key in value:
            return key
        raise VoxError(ErrorKind.MISSING_FIELD, f"the record has no field `{key}`")
    raise type_error(f"{kind_name(value)} cannot be indexed by {kind_name(key)}")


def is_name(node: Expr, words: Collection[str]) -> bool:
    """Return whether an expression is one of some bare names."""
    return isinstance(node, Ident) and node.name in words
