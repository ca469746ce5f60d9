"""Families of tables and their indexes."""

from collections.abc import Sequence
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family, some_fields, table
from mens_pipeline.corpus.synthesis.phrasing import (
    ask,
    counted,
    described_fields,
    has_fields,
    one_in,
    pick,
    quoted,
    with_article,
)
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES, Entity, Field


def _about(random: Random, entity: Entity, fields: Sequence[Field]) -> str:
    return pick(
        random,
        has_fields(random, "It", fields),
        has_fields(random, "A row", fields),
        f"Its {counted(len(fields), 'column')} are {described_fields(random, fields)}.",
        f"Each {entity.noun} has {described_fields(random, fields)}.",
        f"Columns: {described_fields(random, fields)}.",
    )


def _single(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, most=7)
    what = pick(
        random,
        f"a table `{entity.name}`",
        f"a database table `{entity.name}`",
        f"the table `{entity.name}` for {entity.plural}",
    )
    return Draft(ask(random, what, _about(random, entity, fields), domain=entity.domain), (table(entity, fields),))


def _optional(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, most=7)
    maybe = random.sample(fields[1:], random.randint(1, 2))
    lines = [f"{f.name}: Option[{f.type}]" if f in maybe else f.declaration for f in fields]
    missing = [f.name for f in fields if f in maybe]
    told = pick(
        random,
        f"The columns are {quoted(lines)}.",
        f"{_about(random, entity, fields)} {quoted(missing)} can be missing and must be declared as "
        f"{'an option' if len(missing) == 1 else 'options'}.",
    )
    what = f"a table `{entity.name}` with columns that may be missing"
    return Draft(ask(random, what, told, domain=entity.domain), (block(f"@table type {entity.name}", *lines),))


_CHILDREN: Final = (
    ("Note", ("body: str", "written_at: int")),
    ("Photo", ("file_url: str", "caption: str")),
    ("Comment", ("author: str", "body: str", "posted_at: int")),
    ("Change", ("what: str", "changed_by: str", "changed_at: int")),
    ("Tag", ("name: str",)),
    ("Reminder", ("due_on: str", "sent: bool")),
    ("Attachment", ("file_url: str", "bytes: int")),
    ("Question", ("asked_by: str", "body: str", "answered: bool")),
)


def _related(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, most=5)
    suffix, own = random.choice(_CHILDREN)
    child = f"{entity.name}{suffix}"
    lines = [f"{entity.short}: Id[{entity.name}]", *own[: random.randint(1, len(own))]]
    second = block(f"@table type {child}", *lines)
    details = (
        has_fields(random, f"`{entity.name}`", fields),
        f"`{child}` refers to {with_article(entity.noun)} by typed id and has the fields {quoted(lines)}.",
    )
    indexed = one_in(random, 3)
    index = f"@index {child}.by_{entity.short} on ({entity.short})"
    told = f"Add the index `by_{entity.short}` on the `{entity.short}` column of `{child}`." if indexed else ""
    what = pick(random, f"two tables (`{entity.name}` and `{child}`)", f"a table `{entity.name}` and a table `{child}`")
    declarations = (table(entity, fields), second, *([index] if indexed else []))
    return Draft(ask(random, what, *details, told, domain=entity.domain), declarations)


def _stamped(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, most=5)
    stamps = random.choice((
        ("created_at: int",), ("created_at: int", "updated_at: int"), ("archived_at: Option[int]",),
        ("created_at: int", "deleted_at: Option[int]"), ("created_by: str", "created_at: int"),
    ))  # fmt: skip
    lines = [*(field.declaration for field in fields), *stamps]
    details = (
        has_fields(random, "It", fields),
        f"At the end come the bookkeeping columns {quoted(stamps)}; times are milliseconds."
        if len(stamps) > 1
        else f"At the end comes the bookkeeping column `{stamps[0]}`, a time in milliseconds.",
    )
    what = f"a table `{entity.name}` with bookkeeping columns"
    return Draft(ask(random, what, *details, domain=entity.domain), (block(f"@table type {entity.name}", *lines),))


def _status(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.flag, most=5)
    flag, item = entity.flag.name, entity.short
    name = random.choice((f"{item}_mark", f"mark_of_{item}", f"{item}_state"))
    yes, no = random.choice((("yes", "no"), ("Y", "N"), ("[x]", "[ ]"), ("1", "0")))
    code = block(
        f"fn {name}({item}: {entity.name}) to str",
        f'return if {item}.{flag} {{ "{yes}" }} else {{ "{no}" }}',
    )
    details = (
        has_fields(random, f"`{entity.name}`", fields),
        f'`{name}({item}: {entity.name}) to str` returns "{yes}" when `{flag}` is true and "{no}" otherwise.',
    )
    what = f"a table `{entity.name}` and a function `{name}` for its rows"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _index_name(random: Random, columns: Sequence[str]) -> str:
    return pick(random, f"by_{'_'.join(columns)}", f"by_{columns[0]}", f"{columns[0]}_index")


def _index(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    column = random.choice(entity.fields).name
    name = _index_name(random, [column])
    what = pick(random, f"an index on the table `{entity.name}`", f"a table index for `{entity.name}`")
    told = pick(
        random,
        f"It is called `{name}` and covers the column `{column}`.",
        f"Name it `{name}`; it is on `{column}`.",
        f"The look-ups are by `{column}`, the name is `{name}`.",
    )
    end = "The table exists already." if one_in(random, 2) else ""
    return Draft(ask(random, what, told, end, domain=entity.domain), (f"@index {entity.name}.{name} on ({column})",))


def _compound(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, most=6)
    columns = [field.name for field in random.sample(fields, random.randint(2, 3))]
    name = _index_name(random, columns)
    details = (
        has_fields(random, "The table", fields),
        f"The index `{name}` covers {quoted(columns)}, in this order.",
    )
    what = f"a table `{entity.name}` with a compound index"
    index = f"@index {entity.name}.{name} on ({', '.join(columns)})"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), index))


def _several(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, entity.flag, most=6)
    chosen = random.sample(fields, random.randint(2, 3))
    sets = [[field.name] for field in chosen]
    if one_in(random, 2):
        sets[-1].append(next(field.name for field in fields if field not in chosen))
    lines = [f"@index {entity.name}.by_{columns[0]} on ({', '.join(columns)})" for columns in sets]
    told = [f"`by_{columns[0]}` on {quoted(columns)}" for columns in sets]
    details = (has_fields(random, "The table", fields), f"The indexes are {', '.join(told)}.")
    what = f"a table `{entity.name}` with {counted(len(lines), 'index', 'indexes')}"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), "\n".join(lines)))


def _served(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, most=5)
    group, number = entity.group, entity.number.name
    order = random.choice(("asc", "desc"))
    name = f"{entity.collection}_of_{group.name}"
    index = f"@index {entity.name}.by_{group.name}_{number} on ({group.name}, {number})"
    query = block(
        f"@endpoint(kind: query)\nfn {name}({group.declaration}) to List[{entity.name}]",
        f'return db.{entity.name}.filter({{ {group.name}: {group.name} }}).order_by("{number}", "{order}")',
    )
    direction = "ascending" if order == "asc" else "descending"
    details = (
        has_fields(random, "The table", fields),
        (
            f"The query endpoint `{name}({group.declaration}) to List[{entity.name}]` lists the rows with that "
            f"`{group.name}`, "
            f"ordered by `{number}` {direction}."
        ),
        f"The index `by_{group.name}_{number}` on both columns serves it.",
    )
    what = f"a table `{entity.name}`, an index and the query it serves"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), index, query))


FAMILIES: Final[tuple[Family, ...]] = (
    family("table/single", _single),
    family("table/optional", _optional),
    family("table/related", _related),
    family("table/stamped", _stamped),
    family("table/status", _status),
    family("index/single", _index),
    family("index/compound", _compound),
    family("index/several", _several),
    family("index/served", _served),
)
"""What an application stores and how it finds it again."""
