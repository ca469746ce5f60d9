"""Families of fragments, generated components, loading views and design tokens."""

import re
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, camel, family, some_fields, struct
from mens_pipeline.corpus.synthesis.phrasing import ask, counted, has_fields, listed, one_in, pick, quoted, with_article
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES, Entity, Field


def _shown(item: str, field: Field) -> str:
    value = f"{item}.{field.name}"
    return {"str": value, "bool": f'if {value} {{ "yes" }} else {{ "no" }}'}.get(field.type, f"str({value})")


def _card(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, most=5)
    item, chosen = entity.short, random.sample(fields, random.randint(2, min(3, len(fields))))
    pad, border = random.randint(2, 6), one_in(random, 2)
    name = f"{entity.name}{random.choice(('Card', 'Tile', 'Panel'))}"
    attributes = f"pad={pad}, border=true" if border else f"pad={pad}"
    lines = [f"text() {{ {_shown(item, field)} }}" for field in chosen]
    code = block(f"fragment {name}({item}: {entity.name})", block(f"card({attributes})", *lines))
    flags = [field.name for field in chosen if field.type == "bool"]
    details = (
        has_fields(random, f"The type `{entity.name}`", fields),
        (
            f"The fragment takes `{item}: {entity.name}` and draws a card with padding "
            f"{pad}{' and a border' if border else ''} "
            f"that holds one text each for {quoted([field.name for field in chosen])}."
        ),
        f'`{flags[0]}` is shown as "yes" or "no".' if flags else "",
    )
    what = f"a type `{entity.name}` and a fragment `{name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code))


def _message(random: Random) -> Draft:
    name, element, told = random.choice((
        ("Notice", "panel", "panel"), ("Hint", "aside", "aside"), ("Warning", "panel", "panel"),
        ("EmptyShelf", "card", "card"),
        ("Remark", "section", "section"), ("Footnote", "footer", "footer"),
    ))  # fmt: skip
    first, second = random.choice((("title", "body"), ("heading_text", "message"), ("caption", "explanation")))
    level, size = random.randint(2, 4), random.choice(("xs", "sm", "lg"))
    button = random.choice(("", "", "Understood", "Close", "Try again"))
    params = f"{first}: str, {second}: str" + (", on_close: fn()" if button else "")
    lines = [f"heading(level={level}) {{ {first} }}", f'text(size="{size}") {{ {second} }}']
    lines += [f'button(on_click=on_close) {{ "{button}" }}'] if button else []
    code = block(f"fragment {name}({params})", block(f"{element}()", *lines))
    parts = [f"a heading of level {level} with `{first}`", f"a text of size {size} with `{second}`"]
    parts += [f'a button "{button}" that calls `on_close`'] if button else []
    details = (f"Its parameters are `{params}`.", f"It draws {with_article(told)} with {listed(parts)}.")
    return Draft(ask(random, f"a fragment `{name}`", *details), (code,))


def _repeated(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.number, entity.flag, most=5)
    item, items, flag = entity.short, entity.collection, entity.flag.name
    row, page = f"{entity.name}Row", f"{entity.name}{random.choice(('List', 'Page', 'Wall'))}"
    on, off = random.sample(("zinc.500", "green.700", "red.700", "slate.900", "amber.700"), 2)
    gap = random.randint(1, 5)
    fragment = block(
        f"fragment {row}({item}: {entity.name})",
        block(
            f'row(gap={gap}, justify="between")',
            f'text(color=if {item}.{flag} {{ "{on}" }} else {{ "{off}" }}) {{ {item}.{entity.label.name} }}',
            f"text() {{ str({item}.{entity.number.name}) }}",
        ),
    )
    view = block(f"for {item} in {items} key={item}.{entity.label.name}", f"{row}({item}={item})")
    component = block(f"component {page}({items}: List[{entity.name}])", block("view: column(gap=2)", view))
    details = (
        has_fields(random, f"The type `{entity.name}`", fields),
        (
            f"The fragment `{row}({item}: {entity.name})` is a row (gap {gap}, justified between) of two texts: "
            f"`{entity.label.name}`, in {on} if `{flag}` is true and in {off} if not, and `{entity.number.name}`."
        ),
        (
            f"The component `{page}({items}: List[{entity.name}])` shows the fragment for each of them in a column "
            f"with gap 2, "
            f"keyed by `{entity.label.name}`."
        ),
    )
    what = f"a fragment `{row}` and a component that repeats it"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), fragment, component))


_V0: Final = """
PlanCard plan:str monthly:dec highlighted:bool features:List[str]
HeroSection headline:str button_caption:str image_url:str compact:bool
SeatMap seats:List[str] taken:List[str] rows:int on_pick:fn(int)
AvatarRow names:List[str] size:str at_most:int on_pick:fn(int)
TideStrip heights_cm:List[int] marked_hour:int caption:str compact:bool
EventCalendar month:int year:int marked_days:List[int] on_month:fn(int)
PhotoWall photo_urls:List[str] columns:int captioned:bool
StatTile caption:str value:int unit:str trend:int
OrderTimeline steps:List[str] current:int vertical:bool caption:str
MenuBoard dishes:List[str] prices:List[dec] currency:str day:str
ReviewStrip reviews:List[str] stars:int compact:bool author_names:List[str]
RouteCard origin:str destination:str minutes:int accessible:bool
PriceTable plans:List[str] prices:List[dec] currency:str current:int
BookShelf titles:List[str] author:str shelf:str at_most:int
"""
_V0_STUBS: Final = tuple(
    (name, tuple((prop.partition(":")[0], prop.partition(":")[2]) for prop in props))
    for name, *props in (line.split() for line in _V0.strip().splitlines())
)
_V0_VALUES: Final = """
plan "Crew" "Solo"; monthly 9.50dec 24dec; highlighted true false; features ["Chat","Maps"]; headline "Spring" "Welcome"
button_caption "Join" "Book"; image_url "/cover.jpg" "/hero.png"; compact true false
seats ["A1","A2"] ["C4"]; taken ["B3"] ["C1"]; rows 4 12; names ["Ines","Omar"] ["Mai"]; size "lg" "sm"; at_most 3 5
heights_cm [40,310] [120]; marked_hour 9 18; caption "Today" "Tides"; month 4 11; year 2026 2027
marked_days [1,15] [24]; columns 2 3
photo_urls ["/1.jpg","/2.jpg"] ["/reef.jpg"]; captioned true false; value 12 340; unit "km" "litres"; trend 3 8
steps ["Packed","Sent"] ["Paid"]; current 0 1; vertical true false; dishes ["Soup","Tart"] ["Curry"]
prices [9.50dec,12dec] [4.90dec]; currency "EUR" "SEK"; day "Friday" "Monday"; reviews ["Lovely","Loud"] ["Fine"]
stars 4 5; author_names ["Mai","Tom"] ["Uma"]; origin "Turku" "Porto"; destination "Bergen" "Vienna"
minutes 25 90; accessible true false; plans ["Solo","Crew"] ["Studio"]; titles ["Emma","Dune"] ["Persuasion"]
author "Austen" "Herbert"; shelf "A3" "B7"
"""
_V0_EXAMPLES: Final = {
    name: tuple(value.replace(",", ", ") for value in values)
    for name, *values in (entry.split() for entry in re.split(";|\n", _V0_VALUES.strip()))
}
"""Property -> values that fit it."""


def _v0_parts(random: Random, *, callbacks: bool) -> tuple[str, str, dict[str, str], list[str]]:
    name, all_props = random.choice(_V0_STUBS)
    props = [prop for prop in all_props if callbacks or not prop[1].startswith("fn")]
    chosen = sorted(random.sample(props, random.randint(2, len(props))), key=props.index)
    optional = random.sample(chosen[1:], random.randint(0, len(chosen) - 1))
    lines = [f"{prop}?: {kind}" if (prop, kind) in optional else f"{prop}: {kind}" for prop, kind in chosen]
    return name, block("@head@", *lines), dict(chosen), lines


def _v0(random: Random) -> Draft:
    name, body, _, lines = _v0_parts(random, callbacks=True)
    if one_in(random, 3):
        source = f"design/{name.lower()}.png"
        head, told = f'@v0 from "{source}" {name}', f'It was made from the image "{source}".'
    else:
        source = f"b_{random.choice('abcdefghk')}{random.randint(10, 9999)}"
        head, told = f'@v0 "{source}" {name}', f'Its v0 id is "{source}".'
    needed, optional = (
        [line for line in lines if "?" not in line],
        [line.replace("?", "") for line in lines if "?" in line],
    )
    details = (
        told,
        f"Required properties: {quoted(needed)}." if optional else f"Its properties are {quoted(needed)}.",
        f"Optional: {quoted(optional)}." if optional else "",
        "Keep this order: " + ", ".join(line.partition(":")[0].rstrip("?") for line in lines) + "." if optional else "",
    )
    what = pick(random, f"a v0 component stub `{name}`", f"the stub of the generated v0 component `{name}`")
    return Draft(ask(random, what, *details), (body.replace("@head@", head),))


def _v0_used(random: Random) -> Draft:
    name, body, kinds, lines = _v0_parts(random, callbacks=False)
    identity = f"b_{random.choice('abcdefghk')}{random.randint(10, 9999)}"
    page = f"{name}{random.choice(('Page', 'Demo', 'Section'))}"
    values = {prop: random.choice(_V0_EXAMPLES[prop]) for prop in kinds}
    given = [line.partition(":")[0].rstrip("?") for line in lines if "?" not in line or one_in(random, 2)]
    call = f"{name}({', '.join(f'{prop}={values[prop]}' for prop in given)})"
    heading = random.choice(("Welcome", "Overview", "This week", "News"))
    component = block(f"component {page}()", block("view: column(gap=3)", f'heading(level=2) {{ "{heading}" }}', call))
    details = (
        f'`{name}` has the v0 id "{identity}" and the properties {quoted(lines)}, where `?` marks the optional ones.',
        (
            f'`{page}` is a column with gap 3 that shows the heading "{heading}" (level 2) and one `{name}` with '
            f"{listed([f'`{prop}` {values[prop]}' for prop in given])}."
        ),
    )
    what = f"a v0 stub `{name}` and a component `{page}` that uses it"
    return Draft(ask(random, what, *details), (body.replace("@head@", f'@v0 "{identity}" {name}'), component))


_WAITING: Final = ("Loading", "Fetching", "Looking up", "Collecting", "Opening", "Reading")


def _loading_name(random: Random, entity: Entity) -> str:
    return f"{camel(entity.plural)}{random.choice(('Pending', 'Loading', 'Skeleton'))}"


def _loading_text(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    name = _loading_name(random, entity)
    text = f"{random.choice(_WAITING)} the {entity.plural}"
    colour = random.choice(("zinc.600", "slate.500", "zinc.400", ""))
    element, told = random.choice((("text", "a text"), ("heading", "a heading")))
    attributes = "level=2" if element == "heading" else f'color="{colour}"' if colour else ""
    code = block(f"@loading\nfn {name}() to Element", f'return {element}({attributes}) {{ "{text}" }}')
    extra = " of level 2" if element == "heading" else f" in {colour}" if colour else ""
    details = (
        f'It returns {told}{extra} that says "{text}".',
        "Its return type is `Element`." if one_in(random, 2) else "",
    )
    return Draft(ask(random, f"a loading view `{name}`", *details, domain=entity.domain), (code,))


def _skeleton(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    name = _loading_name(random, entity)
    bars, gap, colour = random.randint(1, 4), random.randint(1, 4), random.choice(("zinc.200", "slate.200", "zinc.100"))
    widths = [random.choice((32, 48, 56, 64)) for _ in range(bars)]
    lines = [f'panel(h=4, w={width}, bg="{colour}", radius="md")' for width in widths]
    text = f"{random.choice(_WAITING)} the {entity.plural}"
    last = one_in(random, 2)
    lines += [f'text(color="zinc.600") {{ "{text}" }}'] if last else []
    code = block(f"@loading\nfn {name}() to Element", block(f"return column(gap={gap}, pad=4)", *lines))
    shape = (
        f"height 4, background {colour}, radius md, {'width' if bars == 1 else 'widths'} {', '.join(map(str, widths))}"
    )
    details = (
        f"It returns a column with gap {gap} and padding 4 that holds {counted(bars, 'empty panel')} ({shape})"
        + (f', and then a text in zinc.600 that says "{text}".' if last else "."),
    )
    return Draft(ask(random, f"a loading view `{name}`", *details, domain=entity.domain), (code,))


def _loading_route(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    name, page, loader = _loading_name(random, entity), f"{entity.name}Page", f"all_{entity.collection}"
    path, text = f"/{entity.collection.replace('_', '-')}", f"{random.choice(_WAITING)} the {entity.plural}"
    names = [random.choice(entity.label.examples)] if one_in(random, 2) else list(entity.label.examples[:2])
    query = block(f"@endpoint(kind: query)\nfn {loader}() to List[str]", f"return [{', '.join(names)}]")
    view = block(f"@loading\nfn {name}() to Element", f'return text() {{ "{text}" }}')
    title = camel(entity.plural[:1]) + entity.plural[1:]
    component = block(f"component {page}()", f'view: heading(level=1) {{ "{title}" }}')
    routes = block("routes", f'"{path}" to {page} with (loader: {loader}, pending: {name})')
    details = (
        f"The query `{loader}() to List[str]` returns the fixed list of {listed(names)}.",
        f'`{name}` is a text that says "{text}".',
        f'`{page}` shows the heading "{title}" (level 1).',
        f'The route "{path}" leads to `{page}`, with the query as loader and the loading view as pending view.',
    )
    what = f"a loading view `{name}` for a route"
    return Draft(ask(random, what, *details, domain=entity.domain), (query, view, component, routes))


_PALETTE: Final = (
    ("surface", "#ffffff", "#18181b"), ("ink", "#1c1917", "#fafaf9"), ("accent", "#b91c1c", "#f87171"),
    ("muted", "#71717a", "#a1a1aa"), ("sea", "#e0f2fe", "#082f49"), ("lamp", "#a16207", "#fde047"),
    ("leaf", "#166534", "#86efac"), ("berry", "#9f1239", "#fda4af"), ("stone", "#e7e5e4", "#292524"),
    ("night", "#1e293b", "#e2e8f0"), ("foam", "#ecfeff", "#164e63"), ("rust", "#9a3412", "#fdba74"),
)  # fmt: skip
_MEASURES: Final = (
    ("spacing", "gutter", ("8px", "16px", "24px")), ("spacing", "wide", ("32px", "40px")),
    ("spacing", "tight", ("2px", "4px")),
    ("radius", "card", ("6px", "12px")), ("radius", "pill", ("999px", "24px")), ("radius", "field", ("4px", "8px")),
    ("shadow", "raised", ("0 4px 12px rgba(0,0,0,0.18)", "0 2px 8px rgba(15,23,42,0.25)")),
    ("shadow", "flat", ("0 1px 2px rgba(0,0,0,0.2)", "none")),
)  # fmt: skip
_FONTS: Final = (
    ("body", "Inter, system-ui, sans-serif"), ("body", "Source Serif, Georgia, serif"), ("heading", "Spectral, serif"),
    ("mono", "Iosevka, monospace"), ("heading", "Nunito, sans-serif"),
)  # fmt: skip


def _tokens(random: Random, measures: int, fonts: int) -> tuple[str, list[str]]:
    colours = random.sample(_PALETTE, random.randint(1, 4))
    lines = [f'color {name} light: "{light}" dark: "{dark}"' for name, light, dark in colours]
    told = [f"the colour `{name}` ({light} in light, {dark} in dark mode)" for name, light, dark in colours]
    kinds = {"spacing": "the spacing", "radius": "the radius", "shadow": "the shadow"}
    for kind, name, values in sorted(random.sample(_MEASURES, measures)):
        value = random.choice(values)
        lines.append(f'{kind} {name}: "{value}"')
        told.append(f'{kinds[kind]} `{name}` of "{value}"')
    for name, fonts_of in random.sample(_FONTS, fonts):
        lines.append(f'font {name} family: "{fonts_of}"')
        told.append(f'the font `{name}` with the family "{fonts_of}"')
    return block("@tokens", *lines), told


def _colours(random: Random) -> Draft:
    code, told = _tokens(random, 0, 0)
    return Draft(ask(random, "design tokens for colours", f"Define {listed(told)}."), (code,))


def _theme(random: Random) -> Draft:
    code, told = _tokens(random, random.randint(1, 4), random.randint(0, 1))
    lead = pick(random, "It defines", "It holds", "Define", "Wanted are")
    domain = random.choice(ENTITIES).domain
    return Draft(ask(random, "a block of design tokens", f"{lead} {listed(told)}.", domain=domain), (code,))


def _themed(random: Random) -> Draft:
    code, told = _tokens(random, random.randint(0, 2), 1)
    name, param = random.choice(
        (("Sign", "department"), ("Title", "caption"), ("Badge", "label_text"), ("Headline", "words"))
    )
    pad, weight = random.randint(2, 8), random.choice(("bold", "normal"))
    component = block(
        f"component {name}({param}: str)", block(f"view: panel(pad={pad})", f'text(weight="{weight}") {{ {param} }}')
    )
    details = (
        f"The tokens are {listed(told)}.",
        f"`{name}({param}: str)` is a panel with padding {pad} around a text of weight {weight} with `{param}`.",
    )
    return Draft(ask(random, f"design tokens and a component `{name}`", *details), (code, component))


FAMILIES: Final[tuple[Family, ...]] = (
    family("fragment/card", _card),
    family("fragment/message", _message),
    family("fragment/repeated", _repeated),
    family("v0_component/stub", _v0),
    family("v0_component/used", _v0_used),
    family("loading/text", _loading_text),
    family("loading/skeleton", _skeleton),
    family("loading/route", _loading_route),
    family("design_tokens/colours", _colours),
    family("design_tokens/theme", _theme),
    family("design_tokens/themed", _themed),
)
"""Views without state of their own."""
