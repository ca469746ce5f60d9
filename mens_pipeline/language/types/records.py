"""Record literals, fields and elements (V8, O8, O9)."""

from mens_pipeline.language.ast.expressions import FieldAccess, IndexAccess, ObjectLit, StringLit
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.types.checker import Checker, Wanted
from mens_pipeline.language.types.fitting import is_definite
from mens_pipeline.language.types.signatures import member_type, members
from mens_pipeline.language.types.terms import INT, STR, UNKNOWN, Named, Namespace, Record, Type, settled, text_of


def object_literal(checker: Checker, node: ObjectLit, expected: Type) -> Type:
    """Type a record; where a struct is expected it must have its fields, and no others."""
    fields = checker.declared.fields(expected)
    if fields is None:
        inner = expected.arguments[-1] if isinstance(expected, Named) and expected.name == "Map" else UNKNOWN
        return Record(tuple([(entry.key, checker.infer(entry.value, inner)) for entry in node.fields]))
    check_fields(checker, node, expected, fields)
    given = {entry.key for entry in node.fields}
    missing = [name for name, type_ in fields.items() if name not in given and not _may_be_absent(type_)]
    if missing:
        message = f"`{text_of(expected)}` needs {_listed(missing)}, which this record lacks"
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


def _may_be_absent(type_: Type) -> bool:
    return isinstance(type_, Named) and type_.name == "Option"


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def field_access(checker: Checker, node: FieldAccess, _expected: Type) -> Type:
    """Type a field of a record, a member of a namespace, a table of `db` (O8)."""
    binding = checker.used(node.object)
    if binding is not None and binding.node is None and binding.name == "db":
        return Named("Table", (Named(node.field),)) if node.field in checker.declared.names.tables else UNKNOWN
    owner = checker.infer(node.object)
    if isinstance(owner, Namespace):
        return namespace_member(checker, node, owner, node.field)
    if not is_definite(owner):
        return UNKNOWN
    return _field(checker, node, owner)


def namespace_member(checker: Checker, node: FieldAccess, owner: Namespace, name: str) -> Type:
    """Type a member of a namespace, as a value."""
    found = member_type(owner.path, name)
    if found is None:
        place = checker.findings.member(node.object, node, name)
        message = f"`{owner.path}` has no member `{name}`"
        checker.report_unknown(Code.UNKNOWN_NAME, place, message, name, members(owner.path))
        return UNKNOWN
    return found


def _field(checker: Checker, node: FieldAccess, owner: Type) -> Type:
    fields = dict(owner.fields) if isinstance(owner, Record) else checker.declared.readable(owner)
    if isinstance(owner, Named) and owner.name == "Map":
        return owner.arguments[-1]
    place = checker.findings.member(node.object, node, node.field)
    if fields is None:
        message = f"`{text_of(owner)}` has no fields, so no `.{node.field}`"
        checker.findings.choices[place.start] = frozenset()
        checker.report(Code.UNKNOWN_FIELD, place, message, _instead(checker, owner))
        return UNKNOWN
    if node.field not in fields:
        if not isinstance(owner, Record) or not owner.is_open:
            message = f"`{text_of(owner)}` has no field `{node.field}`"
            checker.report_unknown(Code.UNKNOWN_FIELD, place, message, node.field, fields)
        return UNKNOWN
    return fields[node.field]


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
        return settled(owner.arguments[0])
    fields = dict(owner.fields) if isinstance(owner, Record) else checker.declared.readable(owner)
    if fields is not None or (isinstance(owner, Named) and owner.name == "Map"):
        checker.compare(node.index, key, Wanted(STR, "the key of a record"))
        literal = node.index.value if isinstance(node.index, StringLit) else None
        return (fields or {}).get(literal or "", UNKNOWN)
    message = f"`{text_of(owner)}` has no elements"
    advice = "Write `.char_at(k)`, or `.slice(k, k + 1)`." if owner == STR else None
    checker.report(Code.TYPE_MISMATCH, node, message, advice)
    return UNKNOWN
