"""Families of whole small applications: tables, endpoints, components, routes and native blocks."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import (
    Draft,
    block,
    family,
    params,
    record,
    same_names,
    table,
    with_record,
)
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, one_in
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES, Entity


def _mutations(random: Random, entity: Entity) -> tuple[str, str, str]:
    item, flag = entity.short, entity.flag.name
    taken = (entity.label, entity.group, entity.number)
    checked = one_in(random, 2)
    message = f"{entity.label.words} is required"
    check = [block(f"if len({entity.label.name}.trim()) is 0", f'return Error("{message}")')] if checked else []
    add = block(
        f"@endpoint(kind: mutation)\nfn add_{entity.variable}({params(taken)}) to Result[Id[{entity.name}]]",
        *check,
        with_record(f"let id = db.{entity.name}.insert(", [*same_names(taken), (flag, "false")], ")?"),
        "return Ok(id)",
    )
    mark = block(
        f"@endpoint(kind: mutation)\nfn mark_{flag}({item}: Id[{entity.name}]) to Result[Unit]",
        f"db.{entity.name}.update({item}, {{ {flag}: true }})?",
        "return Ok(Unit)",
    )
    told = (
        f"The mutation `add_{entity.variable}` takes `{params(taken)}` and inserts a row with `{flag}` false, "
        f"returning its id"
        + (f'; a blank `{entity.label.name}` is `Error("{message}")`. ' if checked else ". ")
        + f"The mutation `mark_{flag}({item}: Id[{entity.name}]) to Result[Unit]` sets `{flag}` to true."
    )
    return add, mark, told


def _application(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = (entity.label, entity.group, entity.number, entity.flag)
    item, items, flag, label, group = entity.short, entity.collection, entity.flag.name, entity.label.name, entity.group
    add, mark, told = _mutations(random, entity)
    order, ordered = random.choice((("asc", "ascending"), ("desc", "descending")))
    board, query = f"{entity.name}Board", f"open_{items}"
    index = f"@index {entity.name}.by_{group.name} on ({group.name}, {flag})"
    pairs = record([(group.name, group.name), (flag, "false")])
    listing = block(
        f"@endpoint(kind: query)\nfn {query}({group.declaration}) to List[{entity.name}]",
        f'return db.{entity.name}.filter({pairs}).order_by("{entity.number.name}", "{order}")',
    )
    press = block("button(on_click=@cancellable fn()", f"mark_{flag}({item}._id)", f"{items} = {query}({group.name})")
    caption = random.choice(("Done", "Tick off", "Next", "Settle"))
    component = block(
        f"component {board}({group.declaration})",
        f"state {items}: List[{entity.name}] = []",
        f"on mount: {{ {items} = {query}({group.name}) }}",
        "",
        block(
            "view: column(gap=3, pad=4)",
            f"heading(level=1) {{ {group.name} }}",
            block(
                f"for {item} in {items} key={item}._id",
                block('row(justify="between")', f"text() {{ {item}.{label} }}", f'{press}) {{ "{caption}" }}'),
            ),
        ),
    )
    path = f"/{items.replace('_', '-')}/:{group.name}"
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"The index `by_{group.name}` covers `{group.name}` and `{flag}`.",
        (
            f"The query `{query}({group.declaration})` lists the rows with that `{group.name}` whose `{flag}` is "
            f"false, by "
            f"`{entity.number.name}` {ordered}."
        ),
        told,
        (
            f"The component `{board}({group.declaration})` loads the query on mount into `{items}` and shows a heading "
            f"with "
            f"`{group.name}` and, per row (keyed by id, justified between), a text with `{label}` and a button "
            f'"{caption}" that '
            "calls the second mutation and loads again."
        ),
        f'The route "{path}" leads to it.',
    )
    declarations = (
        table(entity, fields),
        index,
        listing,
        add,
        mark,
        component,
        block("routes", f'"{path}" to {board}'),
    )
    what = f"a small full-stack module for {entity.plural}"
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _phone(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    device, path = f"{entity.name}Device", f"/{entity.collection.replace('_', '-')}"
    scheme = random.choice(("wayfarer", "larder", "tidebook", "kestrel", "relay", "orchard", "harbour", "plotter"))
    save = block(
        f"@endpoint(kind: mutation)\nfn save_device(token: str) to Result[Id[{device}]]",
        f"return Ok(db.{device}.insert({{ token: token }})?)",
    )
    opener = f"open_{entity.variable}"
    opening = block(f"@endpoint(kind: query)\nfn {opener}(payload: str) to str", f'return "{path}/" + payload')
    linking = block(
        "@endpoint(kind: query)\nfn open_link(address: str) to str", f'return address.replace("{scheme}://", "/")'
    )
    closing = block("@endpoint(kind: mutation)\nfn close_sheet() to bool", "return true")
    home = block("@endpoint(kind: query)\nfn go_home() to str", f'return "{path}"')
    fallback = one_in(random, 2)
    push = block("@push", "on_register: save_device", f"on_action: {opener}")
    link = block("@deep_link", f'scheme: "{scheme}"', "on_link: open_link")
    back = block("@back_button", "on_press: close_sheet", *(["fallback: go_home"] if fallback else []))
    details = (
        (
            f"The table `{device}` stores `token: str`; the mutation `save_device(token: str)` inserts a row and "
            f"returns its id."
        ),
        (
            f'The query `{opener}(payload: str) to str` returns "{path}/" followed by the payload; both belong to the '
            f"push block, for "
            "registration and for a tap."
        ),
        (
            f'Deep links have the scheme "{scheme}"; the query `open_link(address: str) to str` replaces "{scheme}://" '
            f'by "/".'
        ),
        "The back button calls the mutation `close_sheet() to bool`, which returns true"
        + (
            f'; its fallback is the query `go_home() to str`, which returns "{path}".'
            if fallback
            else "; there is no fallback."
        ),
    )
    declarations = (
        block(f"@table type {device}", "token: str"), save, opening, linking, closing, *([home] if fallback else []),
        push, link, back,
    )  # fmt: skip
    what = f"a set of native blocks for a phone app about {entity.plural}"
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _linked(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    segment = entity.collection.replace("_", "-")
    url, menu = f"{entity.name}Link", f"{entity.name}Menu"
    function, tested = random.choice(("path_of", "address_of")), one_in(random, 2)
    sample = random.choice(("larch", "x7", "old-mill", "bx-100"))
    variants = ("Start", f"{entity.name}Detail(slug: str)")
    code = block(
        f"fn {function}(target: {url}) to str",
        block("return match target", 'Start => "/"', f'{entity.name}Detail(slug) => "/{segment}/" + slug'),
    )
    component = block(
        f"component {menu}(slugs: List[str])",
        block(
            "view: nav()",
            f'link(href={function}(Start)) {{ "All {entity.plural}" }}',
            block("for slug in slugs key=slug", f"link(href={function}({entity.name}Detail(slug))) {{ slug }}"),
        ),
    )
    test = block(
        f"@test\nfn test_{function}() to Unit",
        f'assert({function}({entity.name}Detail("{sample}")) is "/{segment}/{sample}")',
    )
    details = (
        f"The url type `{url}` has the variants `{variants[0]}` and `{variants[1]}`.",
        f'`{function}(target: {url}) to str` turns `Start` to "/" and the other to "/{segment}/" followed by the slug.',
        (
            f'The component `{menu}(slugs: List[str])` is a `nav` with a link "All {entity.plural}" to the start and '
            f"one link for "
            "each slug, keyed by it and captioned with it."
        ),
        f'The test `test_{function}` checks the slug "{sample}".' if tested else "",
    )
    what = f"typed links for {entity.plural}: a url type, a path function and a menu"
    declarations = (block(f"url {url}", *variants), code, component, *([test] if tested else []))
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


FAMILIES: Final[tuple[Family, ...]] = (
    family("combination/application", _application, construct="routes"),
    family("combination/phone", _phone, construct="push"),
    family("combination/linked", _linked, construct="url"),
)
"""Applications in one file."""
