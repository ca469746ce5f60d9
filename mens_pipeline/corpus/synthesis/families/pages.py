"""Families of routes, typed URLs and forms."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import (
    Draft,
    block,
    camel,
    family,
    params,
    same_names,
    sentence,
    struct,
    with_record,
)
from mens_pipeline.corpus.synthesis.phrasing import ask, listed, one_in, pick, quoted
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES, Entity, Field


def _path(entity: Entity) -> str:
    return f"/{entity.collection.replace('_', '-')}"


def _heading(name: str, title: str, params: str = "") -> str:
    return f'component {name}({params}) {{ view: heading(level=1) {{ "{title}" }} }}'


def _pages(random: Random) -> Draft:
    domain = random.choice(ENTITIES).domain
    entities = [entity for entity in ENTITIES if entity.domain == domain]
    chosen = random.sample(entities, random.randint(1, len(entities)))
    home = camel(f"{domain} {random.choice(('home', 'start', 'welcome'))}")
    pages = [(home, "/", "Welcome"), *((f"{e.name}Page", _path(e), sentence(e.plural)) for e in chosen)]
    if one_in(random, 2):
        pages.append(("AboutPage", "/about", "About us"))
    missing = one_in(random, 2)
    lines = [f'"{path}" to {name}' for name, path, _ in pages]
    components = [_heading(name, title) for name, _, title in pages]
    if missing:
        lines.append("not_found: PageMissing")
        components.append('component PageMissing() { view: text() { "There is no such page." } }')
    mapped = listed([f'"{path}" to `{name}`' for name, path, _ in pages])
    titled = listed([f'`{name}` "{title}"' for name, _, title in pages])
    details = (
        f"The routes are {mapped}" + ("; unknown paths lead to `PageMissing`." if missing else "."),
        f"Each page is a component that shows a heading of level 1: {titled}.",
        '`PageMissing` is the text "There is no such page."' if missing else "",
    )
    what = "a routes block with its page components"
    return Draft(ask(random, what, *details, domain=domain), ("\n".join(components), block("routes", *lines)))


def _plain(random: Random) -> Draft:
    entities = random.sample(ENTITIES, random.randint(2, 4))
    suffix = random.choice(("Page", "Screen", "View"))
    pairs = [(_path(entity), f"{entity.name}{suffix}") for entity in entities]
    if one_in(random, 2):
        pairs.insert(0, ("/", f"Home{suffix}"))
    extra = random.choice(((), (), ("not_found",), ("error",), ("not_found", "error")))
    targets = {"not_found": f"Missing{suffix}", "error": f"Broken{suffix}"}
    lines = [*(f'"{path}" to {name}' for path, name in pairs), *(f"{one}: {targets[one]}" for one in extra)]
    told = {
        "not_found": f"Unknown paths lead to `{targets['not_found']}`.",
        "error": f"Errors lead to `{targets['error']}`.",
    }
    mapped = listed([f'"{path}" to `{name}`' for path, name in pairs])
    details = (
        f"{pick(random, 'It maps', 'The entries are')} {mapped}.",
        *(told[one] for one in extra),
        pick(random, "The components exist already.", "The pages are defined elsewhere; write the routes alone."),
    )
    return Draft(ask(random, "a routes block", *details), (block("routes", *lines),))


def _nested(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    listing, page = f"{entity.name}List", f"{entity.name}Page"
    param = random.choice(("slug", "id", entity.label.name))
    loader = f"all_{entity.collection}"
    loaded, edit = one_in(random, 2), one_in(random, 2)
    names = list(entity.label.examples[: random.randint(1, 2)])
    inner = [f'"/:{param}" to {page}', *([f'"/new" to New{entity.name}'] if edit else [])]
    with_loader = f" with loader: {loader}" if loaded else ""
    routes = block("routes", block(f'"{_path(entity)}" to {listing}{with_loader}', *inner))
    query = block(f"@endpoint(kind: query)\nfn {loader}() to List[str]", f"return [{', '.join(names)}]")
    components = [
        _heading(listing, sentence(entity.plural)),
        f"component {page}({param}: str) {{ view: heading(level=1) {{ {param} }} }}",
        *([_heading(f"New{entity.name}", f"New {entity.noun}")] if edit else []),
    ]
    details = (
        f'"{_path(entity)}" leads to `{listing}`; nested in it, "/:{param}" leads to `{page}`'
        + (f' and "/new" to `New{entity.name}`.' if edit else "."),
        f"The outer route loads with the query `{loader}() to List[str]`, which returns the fixed list of "
        f"{listed(names)}."
        if loaded
        else "",
        f'`{listing}` shows the heading "{sentence(entity.plural)}", `{page}({param}: str)` the heading `{param}`'
        + (f', `New{entity.name}` the heading "New {entity.noun}"' if edit else "")
        + ", all of level 1.",
    )
    what = f"nested routes for {entity.plural}, with the components"
    declarations = (*([query] if loaded else []), "\n".join(components), routes)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


_SITES: Final = (
    ("CabinPath", "Cabin", "slug", "cabins", "larch"), ("ShopLink", "Product", "sku", "products", "bx-100"),
    ("ClubPage", "Team", "name", "teams", "masters"), ("MuseumUrl", "Exhibit", "code", "exhibits", "e-12"),
    ("ForumLink", "Thread", "slug", "threads", "soil"), ("SchoolPath", "Course", "slug", "courses", "algebra"),
    ("TrailUrl", "Trail", "name", "trails", "heron-loop"), ("LibraryLink", "Book", "isbn", "books", "9780141"),
    ("FestivalPage", "Stage", "name", "stages", "old-mill"), ("ParcelLink", "Parcel", "code", "parcels", "px-771"),
)  # fmt: skip
_VIEWS: Final = (
    ("Calendar", "month", "calendar", 7),
    ("Photos", "page", "photos", 2),
    ("Archive", "year", "archive", 2024),
)


def _url(random: Random) -> Draft:
    name, one, key, _, _ = random.choice(_SITES)
    view, number, _, _ = random.choice(_VIEWS)
    variants = [random.choice(("Home", "Start", "Overview")), f"{one}({key}: str)"]
    variants += [f"{view}({key}: str, {number}: int)"] if one_in(random, 2) else []
    variants += [random.choice(("SignIn(?return_to: str)", "Search(?query: str)", "Search(query: str, ?page: int)"))]
    variants = variants[: random.randint(2, len(variants))]
    public = one_in(random, 3)
    optional = any("?" in variant for variant in variants)
    details = (
        f"Its variants are {quoted(variants)}" + (", where `?` marks an optional argument." if optional else "."),
        "Make it public." if public else "",
    )
    return Draft(
        ask(random, f"a url type `{name}`", *details), (block(f"{'pub ' if public else ''}url {name}", *variants),)
    )


def _url_path(random: Random) -> Draft:
    name, one, key, segment, sample = random.choice(_SITES)
    view, number, part, value = random.choice(_VIEWS)
    home, function = random.choice(("Home", "Start")), random.choice(("path_of", "to_path", "address_of"))
    deeper, tested = one_in(random, 2), one_in(random, 2)
    variants = [home, f"{one}({key}: str)", *([f"{view}({key}: str, {number}: int)"] if deeper else [])]
    arms = [f'{home} => "/"', f'{one}({key}) => "/{segment}/" + {key}']
    arms += [f'{view}({key}, {number}) => "/{segment}/" + {key} + "/{part}/" + str({number})'] if deeper else []
    code = block(f"fn {function}(target: {name}) to str", block("return match target", *arms))
    checks = [f'assert({function}({home}) is "/")', f'assert({function}({one}("{sample}")) is "/{segment}/{sample}")']
    checks += (
        [f'assert({function}({view}("{sample}", {value})) is "/{segment}/{sample}/{part}/{value}")'] if deeper else []
    )
    test = block("@test\nfn test_paths() to Unit", *checks)
    paths = [f'`{home}` to "/"', f'`{one}` to "/{segment}/" followed by `{key}`']
    paths += [f'`{view}` to "/{segment}/", `{key}`, "/{part}/" and `{number}`'] if deeper else []
    details = (
        f"The variants are {quoted(variants)}.",
        f"`{function}(target: {name}) to str` turns {listed(paths)}.",
        f'A test `test_paths` checks one of each, with "{sample}"' + (f" and {value}." if deeper else ".")
        if tested
        else "",
    )
    what = f"a url type `{name}` and a function `{function}`" + (", with a test" if tested else "")
    declarations = (block(f"url {name}", *variants), code, *([test] if tested else []))
    return Draft(ask(random, what, *details), declarations)


def _form_field(random: Random, field: Field) -> tuple[str, str]:
    label = field.words.capitalize()
    if field.type == "int" and field.name != "celsius":
        low, high = random.choice((0, 1)), random.choice((10, 100, 500, 1000000))
        if any(int(example) > high for example in field.examples):
            high = 1000000
        return (
            f'field {field.declaration} required label("{label}") range({low}..{high})',
            f'`{field.declaration}` is required, labelled "{label}" and from {low} to {high}',
        )
    if field.type != "str":
        return (
            f'field {field.declaration} optional label("{label}")',
            f'`{field.declaration}` is optional and labelled "{label}"',
        )
    most = random.choice((40, 80, 120))
    least = random.choice((0, 2, 3))
    need = random.choice(("required", "required", "optional"))
    minimum = f" min_len({least})" if least and need == "required" else ""
    between = f"of {least} to {most} characters" if minimum else f"of at most {most} characters"
    return (
        f'field {field.declaration} {need} label("{label}"){minimum} max_len({most})',
        f'`{field.declaration}` is {need}, labelled "{label}" and {between}',
    )


def _form_parts(random: Random) -> tuple[Entity, tuple[Field, ...], list[str], list[str]]:
    entity = random.choice(ENTITIES)
    fields = (entity.label, *random.sample(entity.fields[1:], random.randint(1, 3)))
    written, told = zip(*(_form_field(random, field) for field in fields), strict=True)
    return entity, fields, list(written), list(told)


def _ends(random: Random, entity: Entity) -> tuple[list[str], str]:
    ends = [(f'success_redirect: "{_path(entity)}/thanks"', f'success leads to "{_path(entity)}/thanks"')]
    ends += [
        (
            f'error_message: "The {entity.noun} was not saved."',
            f'the error message is "The {entity.noun} was not saved."',
        )
    ]
    chosen = ends[: random.randint(0, 2)]
    return [line for line, _ in chosen], sentence(" and ".join(told for _, told in chosen)) + "." if chosen else ""


def _form(random: Random) -> Draft:
    entity, _, written, told = _form_parts(random)
    handler = random.choice((f"save_{entity.variable}", f"add_{entity.variable}", f"submit_{entity.variable}"))
    lines, ending = _ends(random, entity)
    name = f"{entity.name}Form"
    code = block(f"@form {name}", *written, f"on_submit: {handler}", *lines)
    details = (
        f"Fields: {'; '.join(told)}.",
        f"Submitting calls `{handler}`, which exists already.",
        ending,
    )
    return Draft(ask(random, f"a form `{name}`", *details, domain=entity.domain), (code,))


def _form_saved(random: Random) -> Draft:
    entity, fields, written, told = _form_parts(random)
    handler = random.choice((f"save_{entity.variable}", f"add_{entity.variable}", f"submit_{entity.variable}"))
    lines, ending = _ends(random, entity)
    name = f"{entity.name}Form"
    mutation = block(
        f"@endpoint(kind: mutation)\nfn {handler}({params(fields)}) to Result[Id[{entity.name}]]",
        with_record(f"let id = db.{entity.name}.insert(", same_names(fields), ")?"),
        "return Ok(id)",
    )
    form = block(f"@form {name}", *written, f"on_submit: {handler}", *lines)
    details = (
        (
            f"The table `{entity.name}` has the fields {quoted([field.declaration for field in fields])}, and the form "
            f"the same: "
            f"{'; '.join(told)}."
        ),
        (
            f"The mutation `{handler}` takes all of them in this order, inserts a row and returns its id; the form "
            f"calls it."
        ),
        ending,
    )
    what = f"a table `{entity.name}`, a mutation and a form `{name}`"
    declarations = (struct(entity.name, fields, "@table type"), mutation, form)
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _form_hidden(random: Random) -> Draft:
    entity, _, written, told = _form_parts(random)
    handler, name = f"send_{entity.variable}", f"{random.choice(('New', 'Quick', 'Public'))}{entity.name}Form"
    field, kind, values = random.choice((
        ("campaign", "str", ('"spring"', '"poster"', '"newsletter"')), ("year", "int", ("2025", "2026", "2027")),
        ("source", "str", ('"web"', '"kiosk"', '"app"')), ("version", "int", ("1", "2", "3")),
    ))  # fmt: skip
    value = random.choice(values)
    lines, ending = _ends(random, entity)
    code = block(
        f"@form {name}", *written, f"field {field}: {kind} hidden default({value})", f"on_submit: {handler}", *lines
    )
    details = (
        f"Visible fields: {'; '.join(told)}.",
        f"A hidden field `{field}: {kind}` has the default {value}.",
        f"It submits to `{handler}`.",
        ending,
    )
    return Draft(ask(random, f"a form `{name}` with a hidden field", *details, domain=entity.domain), (code,))


FAMILIES: Final[tuple[Family, ...]] = (
    family("routes/pages", _pages),
    family("routes/plain", _plain),
    family("routes/nested", _nested),
    family("url/variants", _url),
    family("url/path", _url_path),
    family("form/alone", _form),
    family("form/saved", _form_saved),
    family("form/hidden", _form_hidden),
)
"""Where pages are found and how they are filled in."""
