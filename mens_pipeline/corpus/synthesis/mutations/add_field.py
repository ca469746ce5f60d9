"""Adding a field to a type or a table."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.task import Change, described, task_of
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import Token
from mens_pipeline.language.ast.base import walk
from mens_pipeline.language.ast.data import Field, Table, TypeDef
from mens_pipeline.language.ast.expressions import FieldAccess, Ident, MethodCall, ObjectLit

_FIELDS: Final = (
    ("archived", "bool"),
    ("colour", "str"),
    ("comment", "Option[str]"),
    ("contact_email", "str"),
    ("created_at", "int"),
    ("deleted", "bool"),
    ("is_active", "bool"),
    ("is_public", "bool"),
    ("language", "str"),
    ("notes", "Option[str]"),
    ("owner_name", "str"),
    ("phone_number", "Option[str]"),
    ("position", "int"),
    ("priority", "int"),
    ("region", "str"),
    ("reviewed_by", "Option[str]"),
    ("revision", "int"),
    ("score", "float"),
    ("source_url", "Option[str]"),
    ("summary", "str"),
    ("tags", "List[str]"),
    ("unit_cost", "dec"),
    ("updated_at", "int"),
    ("weight_grams", "int"),
)
"""Names and types that suit almost any record."""

_END_FRAMES: Final = (
    "Add the field `{field}` at the end of {owner} in this Vox program:",
    "Extend {owner} in this Vox program by a last field `{field}`:",
    "In the following Vox program, {owner} needs one more field, `{field}`, after all the others.",
)
_MIDDLE_FRAMES: Final = (
    "Add the field `{field}` to {owner} in this Vox program, directly after `{before}`:",
    "In the following Vox program, {owner} needs one more field: `{field}`, right behind `{before}`.",
)


def add_field(program: Program, random: Random) -> Sample | None:
    """Make a task: a prompt to add a field to a type or table, and the program with the field.

    Types and tables of which the program itself writes values are left alone: those values would lack the field.

    Returns:
        The task; None when there is no such type or no fresh name for a field.
    """
    places = [place for place, span in enumerate(program.spans) if _is_open(program, span.declaration)]
    ideas = [(name, kind) for name, kind in _FIELDS if name not in program.identifiers]
    if not places or not ideas:
        return None
    place = random.choice(places)
    name, kind = random.choice(ideas)
    fields = _fields(program.spans[place].declaration)
    after = random.choice(range(len(fields))) if random.random() < 0.5 else len(fields) - 1  # noqa: PLR2004 - a coin
    frames = _END_FRAMES if after == len(fields) - 1 else _MIDDLE_FRAMES
    owner = program.spans[place]
    field = f"{name}: {kind}"
    request = random.choice(frames).format(field=field, owner=described(owner), before=fields[after].name)
    wanted = [each.name for each in fields]
    wanted.insert(after + 1, name)
    edits = _insertion(program, fields, after, field)
    return task_of(program, Change("add-field", owner.construct.name, request, edits, _has_fields(place, wanted)))


def _fields(declaration: object) -> tuple[Field, ...]:
    return declaration.fields if isinstance(declaration, Table | TypeDef) else ()


def _has_fields(place: int, wanted: list[str]) -> Callable[[Program], bool]:
    return lambda after: [field.name for field in _fields(after.spans[place].declaration)] == wanted


def _is_open(program: Program, declaration: object) -> bool:
    """Return whether a declaration has fields and the program writes no value with them."""
    fields = {field.name for field in _fields(declaration)}
    name = getattr(declaration, "name", "")
    return bool(fields) and not any(
        (isinstance(node, ObjectLit) and fields <= {each.key for each in node.fields}) or _is_insert(node, name)
        for node in walk(program.module)
    )


def _is_insert(node: object, table: str) -> bool:
    """Return whether a node is `db.Table.insert(...)` of this table."""
    return (
        isinstance(node, MethodCall)
        and node.method == "insert"
        and isinstance(node.object, FieldAccess)
        and node.object.field == table
        and isinstance(node.object.object, Ident)
    )


def _insertion(program: Program, fields: Sequence[Field], after: int, text: str) -> tuple[Edit, ...]:
    """Return edits that add a field behind another: on its own line and with a comma as the other fields have them."""
    field = fields[after]
    comma = _comma_behind(program, field)
    end = comma.end if comma else field.end
    indent = program.source[program.source.rfind("\n", 0, field.start) + 1 : field.start]
    line_end = program.source.index("\n", end)
    rest = program.source[end:line_end].strip()
    if indent.strip() or (rest and not rest.startswith(("//", "#"))):
        return (Edit(end, end, f" {text}," if comma else f", {text}"),)
    new_line = Edit(line_end, line_end, f"\n{indent}{text}{',' if comma else ''}")
    if comma is None and any(_comma_behind(program, each) for each in fields):
        return Edit(end, end, ","), new_line
    return (new_line,)


def _comma_behind(program: Program, field: Field) -> Token | None:
    behind = next(token for token in program.tokens if token.start >= field.end and token.kind != "SPACE")
    return behind if behind.kind == "," else None
