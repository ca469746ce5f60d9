"""Families of programs of several declarations that belong together."""

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
    struct,
    table,
    with_record,
)
from mens_pipeline.corpus.synthesis.families.durable import options_of, step_of
from mens_pipeline.corpus.synthesis.families.machines import life_of, machine, told_machine
from mens_pipeline.corpus.synthesis.families.variants import sum_type_of
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, listed, one_in
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ADDITIVE_ENTITIES, ENTITIES, Entity, Field


def _core(entity: Entity) -> tuple[Field, ...]:
    return entity.label, entity.group, entity.number, entity.flag


def _insert(entity: Entity, name: str) -> tuple[str, str]:
    taken = (entity.label, entity.group, entity.number)
    signature = f"{name}({params(taken)}) to Result[Id[{entity.name}]]"
    pairs = [*same_names(taken), (entity.flag.name, "false")]
    code = block(
        f"@endpoint(kind: mutation)\nfn {signature}",
        with_record(f"let id = db.{entity.name}.insert(", pairs, ")?"),
        "return Ok(id)",
    )
    return code, f"The mutation `{signature}` inserts a row with `{entity.flag.name}` false and returns its id."


def _open_rows(entity: Entity, name: str) -> tuple[str, str]:
    group, flag = entity.group, entity.flag.name
    signature = f"{name}({group.declaration}) to List[{entity.name}]"
    pairs = [(group.name, group.name), (flag, "false")]
    code = block(f"@endpoint(kind: query)\nfn {signature}", f"return db.{entity.name}.filter({record(pairs)})")
    return code, f"The query `{signature}` returns the rows with that `{group.name}` whose `{flag}` is false."


def _limit(random: Random, entity: Entity) -> tuple[str, str, str]:
    number = entity.number
    limit = int(random.choice(number.examples))
    name = f"is_high_{number.name}"
    code = block(f"fn {name}({number.declaration}) to bool", f"return {number.name} > {limit}")
    test = block(f"@test\nfn test_{name}() to Unit", f"assert({name}({limit + 1}))", f"assert(not {name}({limit}))")
    told = (
        f"`{name}({number.declaration}) to bool` is true above {limit}; the test `test_{name}` checks {limit + 1} "
        f"and {limit}."
    )
    return code, test, told


def _data(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    mutation, inserted = _insert(entity, f"add_{entity.variable}")
    query, listed_rows = _open_rows(entity, f"open_{entity.collection}")
    rule, test, ruled = _limit(random, entity)
    indexed = one_in(random, 2)
    index = f"@index {entity.name}.by_{entity.group.name} on ({entity.group.name}, {entity.flag.name})"
    details = (
        has_fields(random, f"The table `{entity.name}`", _core(entity)),
        f"Its index `by_{entity.group.name}` covers `{entity.group.name}` and `{entity.flag.name}`." if indexed else "",
        ruled,
        listed_rows,
        inserted,
    )
    declarations = (table(entity, _core(entity)), *([index] if indexed else []), rule, query, mutation, test)
    what = f"a module for {entity.plural} with a table, a query, a mutation and a test"
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _typed(random: Random) -> Draft:
    chosen = sum_type_of(random)
    name, member = f"{chosen.name}Entry", chosen.variable
    label, kind, samples = random.choice((
        ("day", "str", ("2026-03-02", "2026-04-18")), ("noted_by", "str", ("Mai", "Omar")),
        ("reference", "str", ("A-38", "B-2")),
    ))  # fmt: skip
    function, value = random.choice(("entry_line", "log_line")), random.choice(samples)
    definition = block(f"type {name}", f"{label}: {kind}", f"{member}: {chosen.name}")
    code = block(f"fn {function}(entry: {name}) to str", f'return entry.{label} + ": " + describe(entry.{member})')
    variant = random.choice(chosen.variants)
    joined = f'"{value}: {variant.sample_text.strip(chr(34))}"'
    literal = record([(label, f'"{value}"'), (member, variant.sample)])
    test = block(
        f"@test\nfn test_{function}() to Unit", f"let entry = {literal}", f"assert({function}(entry) is {joined})"
    )
    details = (
        f"The variants of `{chosen.name}` are {chosen.told}.",
        (
            f"`describe({chosen.variable}: {chosen.name}) to str` matches on it: "
            f"{listed([v.told for v in chosen.variants])}."
        ),
        f"`{name}` is a struct of `{label}: {kind}` and `{member}: {chosen.name}`.",
        f'`{function}(entry: {name}) to str` joins `{label}`, ": " and the description.',
        f"The test `test_{function}` checks that `{literal}` gives {joined}.",
    )
    what = f"a sum type `{chosen.name}`, a struct, two functions and a test"
    return Draft(ask(random, what, *details), (chosen.code, definition, chosen.describe("describe"), code, test))


def _machine_actor(random: Random) -> Draft:
    life = life_of(random)
    escape = one_in(random, 2)
    actor = f"{life.name}Desk"
    arms = [f'"{a}" => "{b}"' for a, b in zip(life.states, life.states[1:], strict=False)]
    handler = block("on advance(current: str) to str", block("return match current", *arms, "_ => current"))
    final = block("on is_final(current: str) to bool", f'return current is "{life.states[-1]}"')
    asked = one_in(random, 2)
    details = (
        *told_machine(life, escape=escape, payload=False),
        (
            f"The actor `{actor}` has a handler `advance(current: str) to str` that answers with the name of the state "
            f"after "
            f"`current` in the order {' - '.join(life.states)}, and with `current` itself for the last and for unknown "
            f"names."
        ),
        f'A second handler `is_final(current: str) to bool` says whether `current` is "{life.states[-1]}".'
        if asked
        else "",
    )
    code = block(f"actor {actor}", handler, *([final] if asked else []))
    what = f"a state machine `{life.name}` and an actor `{actor}`"
    return Draft(ask(random, what, *details), (machine(life, escape=escape, payload=False), code))


def _durable(random: Random) -> Draft:
    step, options = step_of(random), options_of(random)
    row = f"{step.name.split('_')[1].capitalize()}Outcome"
    name = f"run_{step.name}"
    store = block(
        f"activity store_outcome({step.param}: {step.kind}, outcome: str) to Result[Unit]",
        f"db.{row}.insert({{ {step.param}: {step.param}, outcome: outcome }})?",
        "return Ok(Unit)",
    )
    code = block(
        f"workflow {name}({step.param}: {step.kind}) to Result[str]",
        f"let outcome = ({step.name}({step.param}) with {options})?",
        f"let _ = (store_outcome({step.param}, outcome) with {{ retries: 10 }})?",
        "return Ok(outcome)",
    )
    details = (
        f"The table `{row}` has the fields `{step.param}: {step.kind}` and `outcome: str`.",
        step.told,
        f"The activity `store_outcome({step.param}: {step.kind}, outcome: str) to Result[Unit]` inserts a row.",
        (
            f"`{name}({step.param}: {step.kind}) to Result[str]` calls the first with `{options}`, stores the "
            f"answer with "
            "`{ retries: 10 }`, stops at any failure, and returns the answer."
        ),
    )
    what = f"a workflow `{name}` with its activities and table"
    first = block(f"@table type {row}", f"{step.param}: {step.kind}", "outcome: str")
    return Draft(ask(random, what, *details), (first, step.code, store, code))


def _page(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, most=4)
    item, items, label = entity.short, entity.collection, entity.label.name
    query, page, path = f"all_{items}", f"{entity.name}Page", f"/{items.replace('_', '-')}"
    pad, home = random.randint(2, 6), one_in(random, 2)
    listing = block(
        f"@endpoint(kind: query)\nfn {query}() to List[{entity.name}]",
        f'return db.{entity.name}.all().order_by("{label}", "asc")',
    )
    component = block(
        f"component {page}()",
        f"state {items}: List[{entity.name}] = []",
        f"on mount: {{ {items} = {query}() }}",
        "",
        block(
            f"view: column(gap=2, pad={pad})",
            f'heading(level=1) {{ "{entity.plural.capitalize()}" }}',
            block(f"for {item} in {items} key={item}._id", f"text() {{ {item}.{label} }}"),
        ),
    )
    start = block("component StartPage()", f'view: link(href="{path}") {{ "{entity.plural.capitalize()}" }}')
    first = 'The route "/" leads to `StartPage`, ' if home else "The route "
    routes = block("routes", *(['"/" to StartPage'] if home else []), f'"{path}" to {page}')
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"The query `{query}() to List[{entity.name}]` lists all rows ordered by `{label}` ascending.",
        (
            f"The component `{page}` loads them on mount into `{items}` and shows, in a column (gap 2, padding {pad}), "
            f"the heading "
            f'"{entity.plural.capitalize()}" (level 1) and one text per row with its `{label}`, keyed by row id.'
        ),
        f'`StartPage` is a link to "{path}" with the caption "{entity.plural.capitalize()}".' if home else "",
        f'{first}"{path}" leads to `{page}`.',
    )
    what = f"a page, from table to route, that lists {entity.plural}"
    declarations = (table(entity, fields), listing, *([start] if home else []), component, routes)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _assistant(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    rule, test, ruled = _limit(random, entity)
    item, items, number, label = entity.short, entity.collection, entity.number.name, entity.label.name
    tool, name = random.choice((f"high_{number}", f"{items}_over_limit")), f"is_high_{number}"
    description = f"{entity.plural.capitalize()} of one {entity.group.words} with {entity.number.words} above the limit"
    code = block(
        f'@mcp.tool "{description}"\nfn {tool}({entity.group.declaration}) to List[str]',
        f"let rows = db.{entity.name}.filter({{ {entity.group.name}: {entity.group.name} }})",
        f"let high = rows.filter({item} => {name}({item}.{number}))",
        f"return high.map({item} => {item}.{label})",
    )
    uri = f"{entity.domain}://{items.replace('_', '-')}/count"
    resource = block(
        f'@mcp.resource("{uri}", "Number of {entity.plural}")\nfn num_{items}() to int',
        f"return len(db.{entity.name}.all())",
    )
    with_resource = one_in(random, 2)
    details = (
        has_fields(random, f"The table `{entity.name}`", _core(entity)),
        ruled,
        (
            f'The tool `{tool}({entity.group.declaration}) to List[str]`, described as "{description}", returns the '
            f"`{label}` of the "
            f"rows with that `{entity.group.name}` for which the rule holds."
        ),
        f'The resource `num_{items}() to int` at `{uri}`, described as "Number of {entity.plural}", counts all rows.'
        if with_resource
        else "",
    )
    what = f"an MCP server for {entity.plural} with a tested rule"
    declarations = (table(entity, _core(entity)), rule, code, *([resource] if with_resource else []), test)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _entry(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    label, group = entity.label, entity.group
    save, form, thanks = f"save_{entity.variable}", f"{entity.name}Form", f"{entity.name}Thanks"
    path, most = f"/{entity.collection.replace('_', '-')}/thanks", random.choice((40, 80, 120))
    note = random.choice(("Thank you, it is saved.", "Saved. You may close this page.", "We have got it."))
    mutation = block(
        f"@endpoint(kind: mutation)\nfn {save}({params((label, group))}) to Result[Id[{entity.name}]]",
        f"let id = db.{entity.name}.insert({record(same_names((label, group)))})?",
        "return Ok(id)",
    )
    fields = [f'field {f.declaration} required label("{f.words.capitalize()}") max_len({most})' for f in (label, group)]
    form_code = block(f"@form {form}", *fields, f"on_submit: {save}", f'success_redirect: "{path}"')
    page = block(f"component {thanks}()", f'view: text() {{ "{note}" }}')
    routes = block("routes", f'"{path}" to {thanks}')
    details = (
        has_fields(random, f"The table `{entity.name}`", (label, group)),
        f"The mutation `{save}` takes both in this order, inserts a row and returns its id.",
        (
            f'The form `{form}` asks for both (required, labelled "{label.words.capitalize()}" and '
            f'"{group.words.capitalize()}", at '
            f'most {most} characters), submits to the mutation and redirects to "{path}".'
        ),
        f'That path leads to the component `{thanks}`, which says "{note}".',
    )
    what = f"a form that saves {entity.plural}, with all it needs"
    declarations = (struct(entity.name, (label, group), "@table type"), mutation, form_code, page, routes)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _alert(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    rule, test, ruled = _limit(random, entity)
    item, flag, number = entity.short, entity.flag.name, entity.number.name
    interval, words = random.choice(
        (("1h", "every hour"), ("12h", "every twelve hours"), ("0 7 * * *", "every day at seven (cron)"))
    )
    row, name = f"{entity.name}Alert", f"raise_{item}_alerts"
    label = entity.label
    job = block(
        f'@scheduled("{interval}")\n@uses(db)\nfn {name}() to Result[int]',
        "let mut raised = 0",
        block(
            f"for {item} in db.{entity.name}.filter({{ {flag}: false }})",
            block(
                f"if is_high_{number}({item}.{number})",
                f"db.{row}.insert({{ {label.name}: {item}.{label.name}, seen: false }})?",
                "raised += 1",
            ),
        ),
        "return Ok(raised)",
    )
    index = f"@index {row}.by_seen on (seen)"
    indexed = one_in(random, 2)
    details = (
        has_fields(random, f"The table `{entity.name}`", _core(entity)),
        f"The table `{row}` has the fields `{label.declaration}` and `seen: bool`"
        + (", and the index `by_seen` on `seen`." if indexed else "."),
        ruled,
        (
            f'`{name}() to Result[int]` runs {words}, written "{interval}", and uses the database: for each row of '
            f"`{entity.name}` "
            f"whose `{flag}` is false and for whose `{number}` the rule holds it inserts an alert with `seen` false; "
            f"it returns how "
            "many these were."
        ),
    )
    second = block(f"@table type {row}", label.declaration, "seen: bool")
    what = f"a scheduled alert for {entity.plural}"
    declarations = (table(entity, _core(entity)), second, *([index] if indexed else []), rule, job, test)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _themed(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    item, items, label, number = entity.short, entity.collection, entity.label, entity.number
    name, light, dark = random.choice(
        (("paper", "#fafaf9", "#1c1917"), ("sea", "#e0f2fe", "#082f49"), ("leaf", "#dcfce7", "#14532d"))
    )
    space, pad = random.choice(("8px", "12px", "16px", "24px")), random.randint(2, 6)
    tokens = block("@tokens", f'color {name} light: "{light}" dark: "{dark}"', f'spacing gutter: "{space}"')
    tile, board = f"{entity.name}Tile", f"{entity.name}Board"
    fragment = block(
        f"fragment {tile}({item}: {entity.name})",
        block(
            f"card(pad={pad})",
            f'text(weight="bold") {{ {item}.{label.name} }}',
            f"text() {{ str({item}.{number.name}) }}",
        ),
    )
    component = block(
        f"component {board}({items}: List[{entity.name}])",
        block("view: wrap(gap=3)", block(f"for {item} in {items} key={item}.{label.name}", f"{tile}({item}={item})")),
    )
    details = (
        (
            f"The tokens are the colour `{name}` ({light} in light, {dark} in dark mode) and the spacing `gutter` of "
            f'"{space}".'
        ),
        has_fields(random, f"The type `{entity.name}`", (label, number)),
        (
            f"The fragment `{tile}({item}: {entity.name})` is a card with padding {pad}: `{label.name}` in bold and "
            f"`{number.name}`."
        ),
        (
            f"The component `{board}({items}: List[{entity.name}])` wraps one tile for each with gap 3, keyed by "
            f"`{label.name}`."
        ),
    )
    what = f"design tokens, a fragment and a component for {entity.plural}"
    declarations = (tokens, struct(entity.name, (label, number)), fragment, component)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


FAMILIES: Final[tuple[Family, ...]] = (
    family("combination/data", _data, construct="query"),
    family("combination/typed", _typed, construct="function"),
    family("combination/machine_actor", _machine_actor, construct="actor"),
    family("combination/durable", _durable, construct="workflow"),
    family("combination/page", _page, construct="routes"),
    family("combination/assistant", _assistant, construct="mcp_tool"),
    family("combination/entry", _entry, construct="form"),
    family("combination/alert", _alert, construct="scheduled"),
    family("combination/themed", _themed, construct="design_tokens"),
)
"""Programs of three to six declarations; each teaches its hardest construct."""
