"""Families of query, mutation and server endpoints."""

from collections.abc import Sequence
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import (
    Draft,
    block,
    family,
    params,
    record,
    same_names,
    some_fields,
    table,
    with_record,
)
from mens_pipeline.corpus.synthesis.families.guards import endpoint, guard
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, listed, one_in, pick, with_article
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ADDITIVE_ENTITIES, ENTITIES, Entity, Field


def _rows(random: Random, entity: Entity) -> tuple[tuple[Field, ...], str]:
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, entity.flag, most=6)
    subject = pick(random, f"The table `{entity.name}`", f"`{entity.name}` is a table. It", f"A row of `{entity.name}`")
    return fields, has_fields(random, subject, fields)


def _by_id(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields, told = _rows(random, entity)
    lines, guarded = guard(random)
    name = random.choice((f"{entity.short}_by_id", f"find_{entity.variable}", f"get_{entity.variable}"))
    param = random.choice(("id", entity.short))
    signature = f"{name}({param}: Id[{entity.name}]) to Option[{entity.name}]"
    code = block(endpoint("query", lines, signature), f"return db.{entity.name}.find({param})")
    details = (told, f"The query is `{signature}` and returns the row with that id, if there is one.", guarded)
    what = f"a query endpoint that finds one {entity.noun} by id, and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _filtered(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields, told = _rows(random, entity)
    lines, guarded = guard(random)
    group, flag = entity.group, entity.flag
    conditions = [(group.name, group.name)]
    value = random.choice(("true", "false", ""))
    conditions += [(flag.name, value)] if value else []
    order, limit = random.choice((entity.label, entity.number)), random.choice((0, 0, 5, 10, 20, 50))
    direction = random.choice(("asc", "desc"))
    name = random.choice((f"{entity.collection}_by_{group.name}", f"list_{entity.collection}"))
    signature = f"{name}({group.declaration}) to List[{entity.name}]"
    chain = f'db.{entity.name}.filter({record(conditions)}).order_by("{order.name}", "{direction}")'
    code = block(endpoint("query", lines, signature), f"return {chain}" + (f".limit({limit})" if limit else ""))
    wanted = f"rows with the given `{group.name}`" + (f" and `{flag.name}` {value}" if value else "")
    details = (
        told,
        f"`{signature}` returns the {wanted}, ordered by `{order.name}` {direction}ending"
        + (f", at most {limit} of them." if limit else "."),
        guarded,
    )
    what = f"a query endpoint for the {entity.plural} of one {group.words}, with the table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _where(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields, told = _rows(random, entity)
    number, group = entity.number, entity.group
    limit, values = random.choice(number.examples), random.sample(group.examples, 2)
    column, condition, says, name = random.choice(
        (
            (number.name, f"{{ gt: {limit} }}", f"is greater than {limit}", f"{entity.collection}_above"),
            (number.name, f"{{ lte: {limit} }}", f"is at most {limit}", f"{entity.collection}_up_to"),
            (
                group.name,
                f'{{ "in": [{", ".join(values)}] }}',
                f"is one of {listed(values)}",
                f"chosen_{entity.collection}",
            ),
            (group.name, f"{{ neq: {values[0]} }}", f"is not {values[0]}", f"other_{entity.collection}"),
            (entity.label.name, "{ contains: needle }", "contains the argument", f"search_{entity.collection}"),
        )
    )
    taken = "needle: str" if "needle" in condition else ""
    ordered = f'.order_by("{number.name}", "desc")' if one_in(random, 2) else ""
    signature = f"{name}({taken}) to List[{entity.name}]"
    code = block(
        endpoint("query", (), signature), f"return db.{entity.name}.where({{ {column}: {condition} }}){ordered}"
    )
    details = (
        told,
        f"`{signature}` returns the rows whose `{column}` {says}"
        + (f", with the largest `{number.name}` first." if ordered else ".")
        + " Use a `where` predicate.",
    )
    what = f"a query endpoint `{name}` and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _totals(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    fields, told = _rows(random, entity)
    lines, guarded = guard(random)
    number, group, item = entity.number.name, entity.group, entity.short
    adding = one_in(random, 2)
    name = f"{number}_of_{group.name}" if adding else f"count_{entity.collection}"
    signature = f"{name}({group.declaration}) to int"
    rows = f"db.{entity.name}.filter({{ {group.name}: {group.name} }})"
    body = ("let mut total = 0", block(f"for {item} in {rows}", f"total += {item}.{number}"), "return total")
    code = block(endpoint("query", lines, signature), *(body if adding else (f"return len({rows})",)))
    what_returned = f"the sum of `{number}` over the" if adding else "the number of"
    details = (told, f"`{signature}` returns {what_returned} rows with the given `{group.name}`.", guarded)
    what = f"a query endpoint `{name}` and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _summary(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    fields, told = _rows(random, entity)
    number, flag, item = entity.number.name, entity.flag.name, entity.short
    name = random.choice((f"{entity.variable}_summary", f"{entity.variable}_report", f"{entity.variable}_figures"))
    shape = "".join(part.capitalize() for part in name.split("_"))
    only = random.choice(("", flag, f"not {flag}"))
    steps = ("rows += 1", f"{number} += {item}.{number}")
    check = f"not {item}.{flag}" if only.startswith("not") else f"{item}.{flag}"
    code = block(
        endpoint("query", (), f"{name}() to {shape}"),
        "let mut rows = 0",
        f"let mut {number} = 0",
        block(f"for {item} in db.{entity.name}.all()", *([block(f"if {check}", *steps)] if only else steps)),
        f"return {{ rows: rows, {number}: {number} }}",
    )
    counted = f"the rows where `{flag}` is {'false' if only.startswith('not') else 'true'}" if only else "all rows"
    details = (
        told,
        f"The struct `{shape}` has the fields `rows: int` and `{number}: int`.",
        f"`{name}() to {shape}` goes over {counted} and gives their count and the sum of their `{number}`.",
    )
    what = f"a table `{entity.name}`, a struct and a query endpoint that fills it"
    shape_code = block(f"type {shape}", "rows: int", f"{number}: int")
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), shape_code, code))


def _checks(random: Random, fields: Sequence[Field]) -> tuple[list[str], list[str]]:
    lines, told = [], []
    first, number = fields[0], next(field for field in fields if field.type == "int")
    if one_in(random, 2):
        message = f"{first.words} is required"
        lines.append(block(f"if len({first.name}.trim()) is 0", f'return Error("{message}")'))
        told.append(f'a blank `{first.name}` gives `Error("{message}")`')
    if one_in(random, 2) and number.name != "celsius":
        message = f"{number.words} must not be negative"
        lines.append(block(f"if {number.name} < 0", f'return Error("{message}")'))
        told.append(f'a negative `{number.name}` gives `Error("{message}")`')
    return lines, told


def _insert(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, entity.flag, most=5)
    told = has_fields(random, f"The table `{entity.name}`", fields)
    lines, guarded = guard(random)
    checks, checked = _checks(random, fields)
    name = random.choice((f"add_{entity.variable}", f"create_{entity.variable}", f"save_{entity.variable}"))
    # A parameter list must stay on one line.
    fixed = len(fields) > 4 or one_in(random, 2)  # noqa: PLR2004
    taken = [field for field in fields if not (fixed and field is entity.flag)]
    pairs = [(f.name, f.name if f in taken else "false") for f in fields]
    signature = f"{name}({params(taken)}) to Result[Id[{entity.name}]]"
    body = (*checks, with_record(f"let id = db.{entity.name}.insert(", pairs, ")?"), "return Ok(id)")
    code = block(endpoint("mutation", lines, signature), *body)
    details = (
        told,
        f"`{signature}` inserts a row and returns its id"
        + (f"; `{entity.flag.name}` starts as false." if fixed else "."),
        f"Before that, {listed(checked)}." if checked else "",
        guarded,
    )
    what = f"a mutation endpoint `{name}` and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _set_flag(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields, told = _rows(random, entity)
    lines, guarded = guard(random)
    flag, item = entity.flag.name, entity.short
    value = random.choice(("true", "false", flag))
    name = {"true": f"mark_{flag}", "false": f"clear_{flag}"}.get(value, f"set_{flag}")
    extra = f", {flag}: bool" if value == flag else ""
    signature = f"{name}({item}: Id[{entity.name}]{extra}) to Result[Unit]"
    update = f"db.{entity.name}.update({item}, {{ {flag}: {value} }})"
    body = (f"return {update}",) if one_in(random, 3) else (f"{update}?", "return Ok(Unit)")
    code = block(endpoint("mutation", lines, signature), *body)
    set_to = "the given value" if value == flag else value
    details = (told, f"`{signature}` sets `{flag}` of that row to {set_to} and passes database errors on.", guarded)
    what = f"a mutation endpoint `{name}` and the table it changes"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _change_number(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    fields, told = _rows(random, entity)
    number, item = entity.number.name, entity.short
    up = one_in(random, 2)
    name = f"{'raise' if up else 'lower'}_{number}"
    missing = f"no such {entity.noun}"
    short = f"{entity.number.words} would be negative"
    stop = () if up else (block(f"if found.{number} < amount", f'return Error("{short}")'),)
    found = block(
        "Some(found) =>",
        *stop,
        f"let changed = found.{number} {'+' if up else '-'} amount",
        f"db.{entity.name}.update({item}, {{ {number}: changed }})?",
        "return Ok(changed)",
    )
    signature = f"{name}({item}: Id[{entity.name}], amount: int) to Result[int]"
    arms = (f'None => return Error("{missing}")', found)
    code = block(endpoint("mutation", (), signature), block(f"match db.{entity.name}.find({item})", *arms))
    details = (
        told,
        (
            f"`{signature}` {'adds `amount` to' if up else 'subtracts `amount` from'} `{number}` of that row and "
            f"returns the "
            "new value."
        ),
        f'An unknown row is `Error("{missing}")`' + ("." if up else f', more than there is `Error("{short}")`.'),
    )
    what = f"a mutation endpoint `{name}` and the table it changes"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


_PROTECTING: Final = frozenset(
    ("active", "paid", "confirmed", "approved", "published", "booked", "rented", "verified", "finished", "locked")
)
"""Flags of rows that nobody may delete."""


def _delete(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields, told = _rows(random, entity)
    lines, guarded = guard(random)
    flag, item = entity.flag.name, entity.short
    name = random.choice((f"delete_{entity.variable}", f"remove_{entity.variable}", f"discard_{entity.variable}"))
    signature = f"{name}({item}: Id[{entity.name}]) to Result[Unit]"
    missing, kept = f"no such {entity.noun}", f"{entity.noun} is {entity.flag.words}"
    careful = flag in _PROTECTING
    refused = block(f"if found.{flag}", f'Error("{kept}")') + " " + block("else", f"db.{entity.name}.delete({item})")
    arms = (f'None => Error("{missing}")', f"Some(found) => {refused}")
    plain = f"return db.{entity.name}.delete({item})"
    body = block(f"return match db.{entity.name}.find({item})", *arms) if careful else plain
    code = block(endpoint("mutation", lines, signature), body)
    conditions = (
        f'An unknown row is `Error("{missing}")`; a row with `{flag}` true stays and gives `Error("{kept}")`.'
        if careful
        else "Database errors go back to the caller."
    )
    details = (told, f"`{signature}` deletes that row.", conditions, guarded)
    what = f"a mutation endpoint that deletes {with_article(entity.noun)}, and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _upsert(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    label, number = entity.label, entity.number
    group = [entity.group] if one_in(random, 2) else []
    fields = tuple(field for field in entity.fields if field in (label, number, *group))
    keys = [label, *group]
    name = random.choice((f"set_{number.name}", f"store_{number.name}", f"put_{entity.variable}"))
    signature = f"{name}({params([*keys, number])}) to Result[Unit]"
    code = block(
        endpoint("mutation", (), signature),
        f"let rows = db.{entity.name}.filter({record(same_names(keys))})",
        block("if len(rows) > 0", f"db.{entity.name}.update(rows[0]._id, {record(same_names([number]))})?")
        + " "
        + block("else", f"db.{entity.name}.insert({record(same_names(fields))})?"),
        "return Ok(Unit)",
    )
    keyed = listed([f"`{field.name}`" for field in keys])
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        (
            f"`{signature}` updates `{number.name}` of the first row with that {keyed}, or inserts a row when there is "
            f"none."
        ),
    )
    what = f"a mutation endpoint `{name}` that updates or inserts, and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("query/by_id", _by_id),
    family("query/filtered", _filtered),
    family("query/where", _where),
    family("query/totals", _totals),
    family("query/summary", _summary),
    family("mutation/insert", _insert),
    family("mutation/set_flag", _set_flag),
    family("mutation/change_number", _change_number),
    family("mutation/delete", _delete),
    family("mutation/upsert", _upsert),
)
"""Endpoints on a table."""
