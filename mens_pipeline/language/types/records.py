"""Record literals, fields and elements (V8, O8, O9), and tables of `db` with what is chosen from them (U5)."""

from typing import Final

from mens_pipeline.language.ast.expressions import Argument, FieldAccess, IndexAccess, MethodCall, ObjectLit, StringLit
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.interpreter.library.collections import TABLE_METHODS
from mens_pipeline.language.types.checker import Callee, Checker, Wanted, apply
from mens_pipeline.language.types.declared import is_definite
from mens_pipeline.language.types.signatures import METHOD_TYPES, member_type, members, method_type
from mens_pipeline.language.types.terms import (
    INT,
    STR,
    UNIT,
    UNKNOWN,
    Callable,
    Named,
    Namespace,
    Record,
    Type,
    option_of,
    result_of,
    settle,
    text_of,
)


def object_literal(checker: Checker, node: ObjectLit, expected: Type) -> Type:
    """Type a record; where a struct is expected it must have its fields, and no others."""
    fields = checker.declared.fields(expected)
    if fields is None:
        inner = expected.arguments[-1] if isinstance(expected, Named) and expected.name == "Map" else UNKNOWN
        return Record(tuple([(entry.key, checker.infer(entry.value, inner)) for entry in node.fields]))
    check_fields(checker, node, expected, fields)
    given = {entry.key for entry in node.fields}
    optional = {name for name, type_ in fields.items() if isinstance(type_, Named) and type_.name == "Option"}
    missing = [name for name in fields if name not in given and name not in optional]
    if missing:
        message = f"`{text_of(expected)}` needs {_list_names(missing)}, which this record lacks"
        checker.report(Code.MISSING_FIELD, node, message)
    return expected


def check_fields(checker: Checker, node: ObjectLit, owner: Type, fields: dict[str, Type]) -> None:
    """Compare the fields that a record has with those of a struct."""
    for entry in node.fields:
        expected = fields.get(entry.key)
        if expected is None and not (checker.declared.is_table(owner) and entry.key in {"_id", "id"}):
            place = checker.findings.name_in(entry, entry.key)
            message = f"`{text_of(owner)}` has no field `{entry.key}`"
            checker.report_unknown(Code.UNKNOWN_FIELD, place, message, entry.key, fields)
        checker.expect(entry.value, Wanted(expected or UNKNOWN, f"the field `{entry.key}` of `{text_of(owner)}`"))


def _list_names(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def field_access(checker: Checker, node: FieldAccess, _expected: Type) -> Type:
    """Type a field of a record, a member of a namespace, a table of `db` (O8)."""
    binding = checker.binding_of(node.object)
    if binding is not None and binding.node is None and binding.name == "db":
        return Named("Table", (Named(node.field),)) if node.field in checker.declared.names.tables else UNKNOWN
    owner = checker.infer(node.object)
    if isinstance(owner, Namespace):
        return namespace_member(checker, node, owner, node.field)
    if not is_definite(owner):
        return UNKNOWN
    fields = dict(owner.fields) if isinstance(owner, Record) else checker.declared.readable(owner)
    if isinstance(owner, Named) and owner.name == "Map":
        return owner.arguments[-1]
    place = checker.findings.member(node.object, node, node.field)
    if fields is None:
        message = f"`{text_of(owner)}` has no fields, so no `.{node.field}`"
        checker.findings.choices[place.start] = frozenset()
        checker.report(Code.UNKNOWN_FIELD, place, message, _instead(checker, owner))
        return UNKNOWN
    if node.field in fields:
        return fields[node.field]
    if not isinstance(owner, Record) or not owner.is_open:
        message = f"`{text_of(owner)}` has no field `{node.field}`"
        checker.report_unknown(Code.UNKNOWN_FIELD, place, message, node.field, fields)
    return UNKNOWN


def namespace_member(checker: Checker, node: FieldAccess, owner: Namespace, name: str) -> Type:
    """Type a member of a namespace, as a value."""
    found = member_type(owner.path, name)
    if found is None:
        place = checker.findings.member(node.object, node, name)
        message = f"`{owner.path}` has no member `{name}`"
        checker.report_unknown(Code.UNKNOWN_NAME, place, message, name, members(owner.path))
        return UNKNOWN
    return found


def _instead(checker: Checker, owner: Type) -> str | None:
    if isinstance(owner, Named) and owner.name in {"Option", "Result"}:
        return "Look inside with `match` or `?`."
    return "Look inside with `match`." if checker.declared.is_sum(owner) else None


def index_access(checker: Checker, node: IndexAccess, _expected: Type) -> Type:
    """`xs[k]`, `record["key"]` (O9)."""
    return element(checker, node, checker.infer(node.object))


def element(checker: Checker, node: IndexAccess, owner: Type) -> Type:
    """Return the type of an element."""
    key = checker.infer(node.index)
    if not is_definite(owner):
        return UNKNOWN
    if isinstance(owner, Named) and owner.name in {"List", "Rows"} and owner.arguments:
        checker.compare(node.index, key, Wanted(INT, "the index of a list"))
        return settle(owner.arguments[0])
    fields = dict(owner.fields) if isinstance(owner, Record) else checker.declared.readable(owner)
    if fields is not None or (isinstance(owner, Named) and owner.name == "Map"):
        checker.compare(node.index, key, Wanted(STR, "the key of a record"))
        literal = node.index.value if isinstance(node.index, StringLit) else None
        return (fields or {}).get(literal or "", UNKNOWN)
    message = f"`{text_of(owner)}` has no elements"
    advice = "Write `.char_at(k)`, or `.slice(k, k + 1)`." if owner == STR else None
    checker.report(Code.TYPE_MISMATCH, node, message, advice)
    return UNKNOWN


_CHAIN: Final = frozenset(("filter", "where", "order_by", "limit", "select", "using", "live", "all", "scope", "sync"))
"""Methods that give rows, to be asked on."""

_OTHERS: Final = frozenset(("query", "using", "live", "first", "find_by", "upsert"))
"""Methods that only the reference knows."""

_OF_RESULTS: Final = ("unwrap", "is_ok", "is_err")
_COMBINED: Final = frozenset(("and", "or", "not"))
"""What `where` takes besides fields."""

_BY_COLUMN: Final = frozenset(("order_by", "select"))
_MANY: Final = 100
_COUNTS: Final = {
    **{name: (native.fewest, native.most) for name, native in TABLE_METHODS.items() if native.most < _MANY},
    **dict.fromkeys(("where", "limit", "using"), (1, 1)),
    "order_by": (1, 2),
}
"""Method -> fewest and most arguments, where they do not vary."""


def table_method_call(checker: Checker, node: MethodCall, receiver: Named) -> Type:
    """Type a method of a table or of rows chosen from one; rows are a list, too."""
    record, method = receiver.arguments[0], node.method
    is_table = receiver.name == "Table"
    function = None if is_table else method_type("List", method)
    # `rows.filter({ a: 1 })` asks the database, `rows.filter(f)` goes through a list.
    is_query = method == "filter" and bool(node.arguments) and isinstance(node.arguments[0].value, ObjectLit)
    if isinstance(function, Callable) and not is_query:
        return apply(checker, node, Callee(function, f"`{method}`", {"T": record}), node.arguments)
    known = (*TABLE_METHODS, *_OTHERS, *_CHAIN, *(() if is_table else (*METHOD_TYPES["List"], *_OF_RESULTS)))
    if method not in known:
        place = checker.findings.member(node.object, node, method)
        owner = f"db.{text_of(record)}" if is_table else text_of(receiver)
        message = f"`{owner}` has no method `{method}`"
        checker.report_unknown(Code.UNKNOWN_METHOD, place, message, method, known)
    fewest, most = _COUNTS.get(method, (0, len(node.arguments)))
    if not fewest <= len(node.arguments) <= most:
        expected = str(most) if fewest == most else f"{fewest} to {most}"
        message = f"`{method}` takes {expected} argument{'s' * (most != 1)}, found {len(node.arguments)}"
        checker.report(Code.WRONG_ARGUMENT_COUNT, node, message)
    for index, argument in enumerate(node.arguments):
        _check_argument(checker, node, index, argument, record)
    return _result(method, record)


def _check_argument(checker: Checker, node: MethodCall, index: int, argument: Argument, record: Type) -> None:
    fields, value = checker.declared.fields(record) or {}, argument.value
    if node.method == "insert":
        checker.expect(value, Wanted(record, f"what `insert` stores in `{text_of(record)}`"))
    elif isinstance(value, ObjectLit) and (node.method == "filter" or (node.method == "update" and index == 1)):
        check_fields(checker, value, record, fields)
    elif isinstance(value, ObjectLit) and node.method == "where":
        check_fields(checker, value, record, dict.fromkeys((*fields, *_COMBINED), UNKNOWN))
    elif node.method in _BY_COLUMN and isinstance(value, StringLit) and (node.method == "select" or index == 0):
        known = checker.declared.readable(record) or {}
        # A search by likeness may order by `distance`.
        if value.value not in known and value.value not in {"distance", "score", "rank"}:
            message = f"`{text_of(record)}` has no field `{value.value}`"
            checker.report_unknown(Code.UNKNOWN_FIELD, value, message, value.value, known)
    else:
        checker.expect(value, Wanted(INT, "the argument of `limit`") if node.method == "limit" else Wanted(UNKNOWN, ""))


def _result(method: str, record: Type) -> Type:
    """Rows, and what was found, may be used as they are or, as the reference has them, as a Result."""
    if method in _CHAIN or method == "unwrap":
        return Named("Rows", (record,))
    return {
        "insert": result_of(UNKNOWN),
        "delete": result_of(UNIT),
        "update": result_of(UNIT),
        "get": Named("Found", (record,)),
        "find": Named("Found", (record,)),
        "first": option_of(record),
    }.get(method, UNKNOWN)
