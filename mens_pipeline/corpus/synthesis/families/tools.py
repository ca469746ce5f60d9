"""Families of MCP tools and resources."""

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
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, listed, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.tasks.draw import observed_function
from mens_pipeline.corpus.synthesis.words import ENTITIES, Entity


def _called(random: Random, description: str) -> tuple[str, str]:
    short = one_in(random, 5)
    told = pick(random, f'Describe it as "{description}".', f'Its description is "{description}".')
    return ("@tool" if short else "@mcp.tool"), f"{told} Use the short `@tool` form." if short else told


def _pure(random: Random) -> Draft:
    function = observed_function(random)
    description = f"Answer {function.name.replace('_', ' ')}"
    decorator, told = _called(random, description)
    code = f'{decorator} "{description}"\n{function.code}'
    details = (f"Its signature is `{function.signature}`.", function.behaviour, told)
    return Draft(ask(random, f"an MCP tool `{function.name}`", *details), (code,))


def _add(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = (entity.label, entity.group, entity.number)
    name = random.choice((f"add_{entity.variable}", f"record_{entity.variable}", f"register_{entity.variable}"))
    description = pick(
        random, f"Add one {entity.noun} and return its row id", f"Store one {entity.noun} and return its id"
    )
    decorator, told = _called(random, description)
    required = one_in(random, 2)
    condition = f"len({entity.label.name}) > 0"
    signature = f"{name}({params(fields)}) to Result[Id[{entity.name}]]"
    head = "\n".join(
        [f'{decorator} "{description}"', *([f"@require({condition})"] if required else []), f"fn {signature}"]
    )
    body = (with_record(f"let id = db.{entity.name}.insert(", same_names(fields), ")?"), "return Ok(id)")
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"`{signature}` inserts a row.",
        told,
        f"A `@require` contract demands `{condition}`." if required else "",
    )
    what = f"an MCP tool `{name}` and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), block(head, *body)))


def _search(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.flag, most=5)
    group, label, item = entity.group, entity.label.name, entity.short
    name = random.choice(
        (f"{entity.collection}_by_{group.name}", f"find_{entity.collection}", f"list_{entity.collection}")
    )
    description = pick(
        random, f"Find the {entity.plural} of one {group.words}", f"List {entity.plural} with the given {group.words}"
    )
    decorator, told = _called(random, description)
    flagged, labels = one_in(random, 2), one_in(random, 2)
    pairs = [(group.name, group.name), *([(entity.flag.name, "false")] if flagged else [])]
    returned = "List[str]" if labels else f"List[{entity.name}]"
    rows = f"db.{entity.name}.filter({record(pairs)})"
    body = (f"let rows = {rows}", f"return rows.map({item} => {item}.{label})") if labels else (f"return {rows}",)
    code = block(f'{decorator} "{description}"\nfn {name}({group.declaration}) to {returned}', *body)
    wanted = f"the rows with that `{group.name}`" + (f" and `{entity.flag.name}` false" if flagged else "")
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"`{name}({group.declaration}) to {returned}` returns "
        + (f"the `{label}` of {wanted}." if labels else f"{wanted}."),
        told,
    )
    what = f"an MCP tool `{name}` and the table it reads"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _guarded(random: Random) -> Draft:
    name, a, b, formula, what_for = random.choice((
        ("split_bill", "cents", "people", "{a} / {b}", "share of one person in cents"),
        ("knots_to_metres", "knots", "hours", "{a} * {b} * 1852", "metres travelled at a speed in knots"),
        ("fuel_needed", "kilometres", "litres_per_100", "{a} * {b} / 100", "litres of fuel for a distance"),
        ("tiles_needed", "area", "tile_area", "({a} + {b} - 1) / {b}", "number of tiles for an area, rounded up"),
        ("reading_days", "pages", "pages_a_day", "({a} + {b} - 1) / {b}", "days for a book, rounded up"),
    ))  # fmt: skip
    low = random.choice((0, 1))
    most = random.choice((50, 100, 500, 1000))
    expression = formula.format(a=a, b=b)
    decorator, told = _called(random, what_for.capitalize())
    conditions = [f"{a} >= {low}", random.choice((f"{b} > 0", f"{b} > 0 and {b} <= {most}"))]
    ensured = one_in(random, 3)
    pure = one_in(random, 2)
    lines = [f'{decorator} "{what_for.capitalize()}"', *(f"@require({c})" for c in conditions)]
    lines += ["@ensure(result >= 0)"] if ensured else []
    lines += ["@pure"] if pure else []
    code = block("\n".join([*lines, f"fn {name}({a}: int, {b}: int) to int"]), f"return {expression}")
    details = (
        f"`{name}({a}: int, {b}: int) to int` returns `{expression}`.",
        f"Two `@require` contracts guard it: `{conditions[0]}` and `{conditions[1]}`"
        + ("; an `@ensure` says `result >= 0`." if ensured else "."),
        told,
        "Mark it `@pure` as well." if pure else "",
    )
    return Draft(ask(random, f"an MCP tool `{name}` with contracts", *details), (code,))


_FACTS: Final = (
    ("hours", "opening_hours", "Opening hours", ('"Tuesday to Sunday, 10:00 to 18:00"', '"Every day, 9:00 to 17:00"')),
    ("rules", "house_rules", "Rules of the house", ('"No shoes, no dogs"', '"Quiet after ten"', '"Close every gate"')),
    ("contact", "contact_line", "How to reach us", ('"desk@example.org"', '"555-0100, weekdays only"')),
    ("fees", "fee_note", "What it costs", ('"Free for members"', '"Five euros a day"', '"First hour free"')),
    ("motto", "motto", "Our motto", ('"Lend, mend, send back"', '"Slow is smooth"', '"Bring your own cup"')),
    ("status", "site_status", "Current status", ('"open"', '"closed for repairs"', '"open, no parking"')),
)


def _uri(random: Random, domain: str, path: str) -> str:
    return f"{domain}://{path}" if one_in(random, 2) else f"{domain}://public/{path}"


def _resource_head(random: Random, uri: str, description: str) -> tuple[str, str]:
    if one_in(random, 3):
        form = f'@resource "{uri}" "{description}"'
        return form, f'It is a `@resource` (the form without parentheses) at `{uri}`, described as "{description}".'
    told = pick(random, f"It is served at `{uri}`", f"Its URI is `{uri}`")
    return f'@mcp.resource("{uri}", "{description}")', f'{told}, described as "{description}".'


def _fact(random: Random) -> Draft:
    domain = random.choice(ENTITIES).domain
    path, name, description, values = random.choice(_FACTS)
    value = random.choice(values)
    head, told = _resource_head(random, _uri(random, domain, path), description)
    code = block(f"{head}\nfn {name}() to str", f"return {value}")
    details = (told, f"`{name}() to str` returns {value}.")
    return Draft(ask(random, f"an MCP resource `{name}`", *details, domain=domain), (code,))


def _values(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    field = random.choice([f for f in entity.fields if f.type in ("str", "int")])
    kind, item = field.type, entity.short
    name = random.choice((f"{field.name}_values", f"{field.name}_list", f"{item}_{field.name}_values"))
    description = pick(random, f"Known values of {field.words}", f"Values of {field.words} for {entity.plural}")
    head, told = _resource_head(random, _uri(random, entity.domain, field.name.replace("_", "-")), description)
    values = random.sample(field.examples, random.randint(2, len(field.examples)))
    code = block(f"{head}\nfn {name}() to List[{kind}]", f"return [{', '.join(values)}]")
    details = (told, f"`{name}() to List[{kind}]` returns {listed(values)}, in this order.")
    return Draft(ask(random, f"an MCP resource `{name}`", *details, domain=entity.domain), (code,))


def _described(entity: Entity, flag: str) -> str:
    return f"{entity.plural.capitalize()} with {flag.replace('_', ' ')} set"


def _rows(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.flag, most=5)
    flag, label, item = entity.flag.name, entity.label.name, entity.short
    name = random.choice((f"{flag}_{entity.collection}", f"{entity.collection}_board", f"{entity.variable}_summary"))
    head, told = _resource_head(
        random, _uri(random, entity.domain, entity.collection.replace("_", "-")), _described(entity, flag)
    )
    rows = f"db.{entity.name}.filter({{ {flag}: true }})"
    kind, body, says = random.choice((
        (f"List[{entity.name}]", (f"return {rows}",), f"the rows whose `{flag}` is true"),
        ("List[str]", (f"let rows = {rows}", f"return rows.map({item} => {item}.{label})"),
         f"the `{label}` of the rows whose `{flag}` is true"),
        ("int", (f"return len({rows})",), f"how many rows have `{flag}` true"),
        ("str", (f"let chosen = len({rows})", f"let total = len(db.{entity.name}.all())",
                 'return str(chosen) + " of " + str(total)'),
         f'a text such as "3 of 8": how many rows have `{flag}` true, and how many there are'),
    ))  # fmt: skip
    code = block(f"{head}\nfn {name}() to {kind}", *body)
    details = (has_fields(random, f"The table `{entity.name}`", fields), told, f"`{name}() to {kind}` returns {says}.")
    what = f"an MCP resource `{name}` and the table it reads"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("mcp_tool/pure", _pure),
    family("mcp_tool/add", _add),
    family("mcp_tool/search", _search),
    family("mcp_tool/guarded", _guarded),
    family("mcp_resource/fact", _fact),
    family("mcp_resource/values", _values),
    family("mcp_resource/rows", _rows),
)
"""What an assistant may call and read."""
