"""Families of components: state, derived values, lists, forms and tables."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family, some_fields, struct, table
from mens_pipeline.corpus.synthesis.phrasing import ask, counted, has_fields, listed, one_in, pick, with_article
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES, Entity, Field

_COLOURS: Final = ("zinc", "slate", "green", "amber", "blue", "rose")
_SLOGANS: Final = (
    "Updated every morning", "Come and see what is new", "Ask at the front desk", "Everything in one place",
    "New entries every week", "Questions? Call the office", "Sorted for you",
)  # fmt: skip


def _static(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    colour, pad, gap = random.choice(_COLOURS), random.randint(2, 8), random.randint(1, 4)
    name = f"{entity.name}{random.choice(('Banner', 'Welcome', 'Header', 'Intro'))}"
    title, slogan = (
        random.choice((f"All {entity.plural}", f"Our {entity.plural}", f"The {entity.plural}")),
        random.choice(_SLOGANS),
    )
    target, caption = f"/{entity.collection}", random.choice(("Have a look", "See more", "Go to the list"))
    linked = one_in(random, 2)
    lines = [f'heading(level=1) {{ "{title}" }}', f'text(color="{colour}.600") {{ "{slogan}" }}']
    lines += [f'link(href="{target}") {{ "{caption}" }}'] if linked else []
    told = [f'a heading of level 1 with "{title}"', f'a text in {colour}.600 with "{slogan}"']
    told += [f'a link to "{target}" with the caption "{caption}"'] if linked else []
    code = block(f"component {name}()", block(f"view: column(pad={pad}, gap={gap})", *lines))
    details = (
        f"Its view is a column with padding {pad} and gap {gap}.",
        f"In it are {listed(told)}.",
        "It has no state and no parameters.",
    )
    return Draft(ask(random, f"a component `{name}`", *details, domain=entity.domain), (code,))


_COUNTERS: Final = (
    ("visitors", "Visitors", "Someone came in", "Someone left"), ("laps", "Laps", "Lap done", "Undo a lap"),
    ("tickets", "Tickets", "One more", "One less"), ("guests", "Guests", "Add a guest", "Remove a guest"),
    ("copies", "Copies", "More", "Fewer"), ("points", "Points", "Score", "Take back"),
    ("bottles", "Bottles", "Plus", "Minus"),
    ("nights", "Nights", "Stay longer", "Leave earlier"),
)  # fmt: skip


def _counter(random: Random) -> Draft:
    state, title, more, less = random.choice(_COUNTERS)
    start, step = random.choice((0, 0, 1, 2, 10)), random.choice((1, 1, 1, 2, 5))
    bounded, both = one_in(random, 2), one_in(random, 2)
    name = f"{title[:-1]}{random.choice(('Counter', 'Stepper', 'Picker'))}"
    buttons = [f'button(on_click={{{state} = {state} + {step}}}) {{ "{more}" }}']
    if both:
        disabled = f"disabled={state} < {step}, " if bounded else ""
        buttons.append(f'button({disabled}on_click={{{state} = {state} - {step}}}) {{ "{less}" }}')
    shown = f'text() {{ "{title}: " + str({state}) }}'
    code = block(
        f"component {name}()",
        f"state {state}: int = {start}",
        block("view: row(gap=2)", shown, *buttons),
    )
    details = (
        f"Its state `{state}` is an `int` that starts at {start}.",
        f'A row with gap 2 shows "{title}: " and the number, and a button "{more}" that adds {step}'
        + (f', and a button "{less}" that subtracts {step}' if both else "")
        + (f" and is disabled while `{state}` is less than {step}." if both and bounded else "."),
    )
    return Draft(ask(random, f"a component `{name}`", *details), (code,))


def _toggle(random: Random) -> Draft:
    state, show, hide, param = random.choice((
        ("open", "Show details", "Hide details", "details"), ("expanded", "Read more", "Read less", "body"),
        ("visible", "Show the answer", "Hide the answer", "answer"), ("unfolded", "Unfold", "Fold", "notes"),
    ))  # fmt: skip
    name = f"{random.choice(('Foldable', 'Hidden', 'Expandable', 'Collapsible'))}{param.capitalize()}"
    start = random.choice(("false", "true"))
    pad, variant = random.randint(1, 6), random.choice(("ghost", "outline"))
    flip = f'if {state} {{ "{hide}" }} else {{ "{show}" }}'
    shown = block(f"if {state}", f"text() {{ {param} }}")
    headed = one_in(random, 2)
    lines = [
        *(["heading(level=3) { title }"] if headed else []),
        block(f'button(variant="{variant}", on_click={{{state} = not {state}}})', flip),
        shown,
    ]
    params = f"title: str, {param}: str" if headed else f"{param}: str"
    code = block(
        f"component {name}({params})",
        f"state {state}: bool = {start}",
        block(f"view: column(gap=2, pad={pad})", *lines),
    )
    details = (
        f"It takes `{params}` and has the boolean state `{state}`, {start} at first.",
        f"A column with gap 2 and padding {pad} holds "
        + ("a heading of level 3 with `title`, " if headed else "")
        + f'a button (variant "{variant}") that flips the state and is labelled "{hide}" while it is true and '
        f'"{show}" otherwise, '
        f"and, while it is true, a text with `{param}`.",
    )
    return Draft(ask(random, f"a component `{name}`", *details), (code,))


def _list(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, most=5)
    items, item = entity.collection, entity.short
    first, second = entity.label, random.choice((entity.group, entity.number))
    name = f"{entity.name}{random.choice(('List', 'Roster', 'Overview'))}"
    gap, mark = random.randint(1, 4), random.choice((", ", ": ", " - "))
    value = f"{item}.{second.name}" if second.type == "str" else f"str({item}.{second.name})"
    line = f'{item}.{first.name} + "{mark}" + {value}'
    missing = f"No {entity.plural} yet"
    each = block(f"for {item} in {items} key={item}.{first.name}", f"list_item() {{ {line} }}")
    empty = one_in(random, 2)
    shown = block("list()", each)
    body = (
        block(
            f"view: column(gap={gap})",
            block(f"if len({items}) is 0", f'text() {{ "{missing}" }}') + " " + block("else", shown),
        )
        if empty
        else block("view: list()", each)
    )
    code = block(f"component {name}({items}: List[{entity.name}])", body)
    details = (
        has_fields(random, f"The type `{entity.name}`", fields),
        (
            f"The component takes `{items}: List[{entity.name}]` and renders a list with one item per {entity.noun}, "
            f"keyed by "
            f'`{first.name}`, that shows `{first.name}`, "{mark}" and `{second.name}`.'
        ),
        f"The list stands in a column with gap {gap}; without {entity.plural} the column shows the text "
        f'"{missing}" instead.'
        if empty
        else "",
    )
    what = f"a type `{entity.name}` and a component `{name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code))


def _search(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, most=4)
    items, item, label = entity.collection, entity.short, random.choice((entity.label, entity.group))
    state, holder = random.choice(("needle", "wanted", "typed")), random.choice(("Search", "Start typing", "Find"))
    derived = random.choice(("shown", "found", "hits"))
    folded = one_in(random, 2)
    name = f"{entity.name}{random.choice(('Search', 'Finder', 'Directory'))}"
    left, right = (
        (f"{item}.{label.name}.to_lower()", f"{state}.to_lower()") if folded else (f"{item}.{label.name}", state)
    )
    view = block(
        "view: column(gap=3, pad=4)",
        f'input(attr_type="search", bind={state}, placeholder="{holder}")',
        block(f"for {item} in {derived} key={item}.{entity.label.name}", f"text() {{ {item}.{entity.label.name} }}"),
        f'text(size="sm") {{ str(len({derived})) + " of " + str(len({items})) }}',
    )
    code = block(
        f"component {name}({items}: List[{entity.name}])",
        f'state {state}: str = ""',
        f"derived {derived} = {items}.filter(fn({item}) {left}.contains({right}))",
        "",
        view,
    )
    details = (
        has_fields(random, f"The type `{entity.name}`", fields),
        (
            f"The component takes `{items}: List[{entity.name}]`, has the state `{state}` (text, empty at first) and "
            f"the derived "
            f"list `{derived}` of those whose `{label.name}` contains `{state}`{', ignoring case' if folded else ''}."
        ),
        (
            f'A column (gap 3, padding 4) holds a search input bound to `{state}` with the placeholder "{holder}", one '
            f"text with "
            f'the `{entity.label.name}` of each match, keyed by it, and a small text such as "2 of 7" with both counts.'
        ),
    )
    what = f"a component `{name}` that filters as one types, with the type `{entity.name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code))


def _badge(random: Random) -> Draft:
    name, param, good, bad = random.choice((
        ("StockBadge", "quantity", "in stock", "Sold out"), ("SeatBadge", "seats", "seats left", "Full"),
        ("LoanBadge", "copies", "copies on the shelf", "All lent"), ("MailBadge", "unread", "unread", "All read"),
        ("QueueBadge", "waiting", "waiting", "Nobody waits"), ("BikeBadge", "bikes", "bikes here", "No bikes"),
    ))  # fmt: skip
    bold = one_in(random, 2)
    weight = ', weight="bold"' if bold else ""
    one, other = random.sample(("green.700", "red.700", "amber.700", "blue.700", "zinc.600"), 2)
    size = random.choice(("xs", "sm", "lg"))
    code = block(
        f"component {name}({param}: int)",
        block(
            f'view: text(size="{size}"{weight}, color=if {param} > 0 {{ "{one}" }} else {{ "{other}" }})',
            f'if {param} > 0 {{ str({param}) + " {good}" }} else {{ "{bad}" }}',
        ),
    )
    details = (
        f"It takes `{param}: int` and is one {'bold ' if bold else ''}text of size {size}.",
        f'Above 0 it shows the number followed by " {good}" in {one}, otherwise "{bad}" in {other}.',
    )
    return Draft(ask(random, f"a component `{name}`", *details), (code,))


def _input(random: Random) -> Draft:
    thing, name, holder = random.choice((
        ("item", "ShoppingList", "Oat milk"), ("task", "TaskList", "Water the plants"),
        ("guest", "GuestList", "Nora Lind"),
        ("tag", "TagEditor", "urgent"), ("song", "SetList", "First song"), ("town", "RoutePlan", "Next town"),
        ("word", "WordList", "kestrel"), ("player", "LineUp", "Tom Okoro"),
    ))  # fmt: skip
    items, draft = f"{thing}s", random.choice(("draft", "entered", "next_one"))
    button, gap = random.choice(("Add", "Put on the list", "Append")), random.randint(1, 4)
    trimmed, counting = one_in(random, 2), one_in(random, 2)
    value = f"{draft}.trim()" if trimmed else draft
    click = block(
        "button(on_click=fn()", block(f"if len({value}) > 0", f"{items} = {items}.append({value})", f'{draft} = ""')
    )
    lines = [
        f'input(attr_type="text", bind={draft}, placeholder="{holder}")',
        f'{click}) {{ "{button}" }}',
        block(f"for {thing}, i in {items} key=i", f"text() {{ {thing} }}"),
        *([f'text(size="sm") {{ "{items}: " + str(len({items})) }}'] if counting else []),
    ]
    code = block(
        f"component {name}()",
        f'state {draft}: str = ""',
        f"state {items}: List[str] = []",
        "",
        block(f"view: column(gap={gap})", *lines),
    )
    details = (
        f"The states are `{draft}` (text, empty) and `{items}` (a list of texts, empty).",
        (
            f'A column with gap {gap} has a text input bound to `{draft}` with the placeholder "{holder}", a button '
            f'"{button}" that '
            f"appends {'the trimmed ' if trimmed else ''}`{draft}` to `{items}` unless it is empty and then clears it, "
            f"and one text "
            f"for each {thing}, keyed by its position."
        ),
        f'Below, a small text shows "{items}: " and their number.' if counting else "",
    )
    return Draft(ask(random, f"a component `{name}`", *details), (code,))


def _table(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.number, most=5)
    items, item = entity.collection, entity.short
    chosen = [entity.label, *[f for f in fields if f is not entity.label and f.type != "bool"]][: random.randint(2, 4)]
    name = f"{entity.name}{random.choice(('Table', 'Sheet', 'Grid'))}"
    titles = [field.words.capitalize() for field in chosen]
    captioned = one_in(random, 2)

    def cell(field: Field) -> str:
        value = f"{item}.{field.name}" if field.type == "str" else f"str({item}.{field.name})"
        return f"td() {{ {value} }}"

    view = block(
        "view: table()",
        *([f'caption() {{ "All {entity.plural}" }}'] if captioned else []),
        block("thead()", block("tr()", *(f'th() {{ "{title}" }}' for title in titles))),
        block(
            "tbody()",
            block(f"for {item} in {items} key={item}.{entity.label.name}", block("tr()", *(cell(f) for f in chosen))),
        ),
    )
    code = block(f"component {name}({items}: List[{entity.name}])", view)
    shown = listed([f"`{field.name}`" for field in chosen])
    heads = listed([f'"{title}"' for title in titles])
    details = (
        has_fields(random, f"The type `{entity.name}`", fields),
        (
            f"The component takes `{items}: List[{entity.name}]` and renders a table with "
            f"{counted(len(chosen), 'column')}: {shown}, "
            f"under the header cells {heads}."
        ),
        f"There is one row per {entity.noun}, keyed by `{entity.label.name}`"
        + (f', and the caption "All {entity.plural}".' if captioned else "."),
    )
    what = f"{with_article(entity.noun)} type and a component `{name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code))


def _loaded(random: Random) -> Draft:
    entity: Entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, entity.flag, most=5)
    items, item, label, group = entity.collection, entity.short, entity.label.name, entity.group
    query, name = f"{items}_of", f"{entity.name}{random.choice(('Page', 'Board', 'Screen'))}"
    reload, pad = one_in(random, 2), random.randint(2, 6)
    state = f"state {items}: List[{entity.name}] = []"
    fetch = f"{items} = {query}({group.name})"
    lines = [
        f"heading(level=1) {{ {group.name} }}",
        block(f"for {item} in {items} key={item}._id", f"text() {{ {item}.{label} }}"),
        *([f'button(on_click={{{fetch}}}) {{ "Reload" }}'] if reload else []),
    ]
    code = block(
        f"component {name}({group.declaration})",
        state,
        f"on mount: {{ {fetch} }}",
        "",
        block(f"view: column(gap=2, pad={pad})", *lines),
    )
    endpoint = block(
        f"@endpoint(kind: query)\nfn {query}({group.declaration}) to List[{entity.name}]",
        f"return db.{entity.name}.filter({{ {group.name}: {group.name} }})",
    )
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"The query `{query}({group.declaration})` returns its rows with that `{group.name}`.",
        f"The component takes `{group.declaration}`, loads the rows on mount into the state `{items}`, and shows a "
        f"heading with "
        f"`{group.name}` and one text per row with its `{label}`, keyed by row id, in a column (gap 2, padding {pad})"
        + (', plus a button "Reload" that loads them again.' if reload else "."),
    )
    what = pick(random, f"a component `{name}` with its table and query", f"a table, a query and a component `{name}`")
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), endpoint, code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("component/static", _static),
    family("component/counter", _counter),
    family("component/toggle", _toggle),
    family("component/list", _list),
    family("component/search", _search),
    family("component/badge", _badge),
    family("component/input", _input),
    family("component/table", _table),
    family("component/loaded", _loaded),
)
"""What a user sees and presses."""
