"""Families of server endpoints: calls without a table, mutations with contracts."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family, params, same_names, table, with_record
from mens_pipeline.corpus.synthesis.families.guards import endpoint, guard
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, one_in, pick, quoted
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES

_EXTRAS: Final = (
    ("zone", "str", '"UTC"'), ("version", "str", '"2.4"'), ("region", "str", '"north"'), ("healthy", "bool", "true"),
    ("build", "int", "418"), ("maintenance", "bool", "false"), ("host", "str", '"app-1"'), ("workers", "int", "4"),
)  # fmt: skip


def _status(random: Random) -> Draft:
    lines, guarded = guard(random)
    name = random.choice(("server_clock", "server_status", "ping", "health", "uptime_probe"))
    shape = random.choice(("ServerStatus", "Health", "ClockReading", "Pulse"))
    extras = random.sample(_EXTRAS, random.randint(1, 3))
    moment = random.choice(("now_ms", "at", "answered_at"))
    fields = [f"{moment}: int", *(f"{field}: {kind}" for field, kind, _ in extras)]
    pairs = [(moment, "std.time.now_ms()"), *((field, value) for field, _, value in extras)]
    code = block(endpoint("server", lines, f"{name}() to {shape}"), with_record("return ", pairs))
    fixed = quoted([f"{field}: {value}" for field, _, value in extras])
    details = (
        f"The struct `{shape}` has the fields {quoted(fields)}.",
        f"`{name}() to {shape}` fills `{moment}` with the current time in milliseconds; the rest is fixed: {fixed}.",
        guarded,
    )
    return Draft(ask(random, f"a server endpoint `{name}`", *details), (block(f"type {shape}", *fields), code))


_FETCHES: Final = (
    ("river_forecast", "river", "https://rivers.example/forecast/", "forecast"),
    ("exchange_rate", "currency", "https://rates.example/latest/", "rate"),
    ("timetable", "station", "https://trains.example/board/", "timetable"),
    ("air_quality", "town", "https://air.example/v1/", "air quality"),
    ("book_details", "isbn", "https://books.example/isbn/", "book"),
    ("track_parcel", "code", "https://parcels.example/track/", "parcel"),
    ("tide_table", "harbour", "https://tides.example/v1/", "tide table"),
    ("pollen_report", "region", "https://pollen.example/today/", "pollen report"),
)


def _fetch(random: Random) -> Draft:
    lines, guarded = guard(random)
    name, param, url, what = random.choice(_FETCHES)
    wrapped = one_in(random, 2)
    call = f'std.http.get_text("{url}" + {param})'
    message = f"no {what} for "
    arms = ("Ok(body) => Ok(body)", f'Error(reason) => Error("{message}" + {param} + ": " + reason)')
    body = (block(f"return match {call}", *arms),) if wrapped else (f"let body = {call}?", "return Ok(body)")
    signature = f"{name}({param}: str) to Result[str]"
    code = block(endpoint("server", lines, signature), *body)
    failing = (
        f'A failure becomes an error that begins with "{message}", the `{param}` and ": ", and ends with the reason.'
        if wrapped
        else "A failure is passed on with `?`."
    )
    details = (
        f'`{signature}` fetches the text at "{url}" followed by `{param}` with `std.http.get_text` and returns it.',
        failing,
        guarded,
    )
    return Draft(ask(random, f"a server endpoint `{name}`", *details), (code,))


_QUOTES: Final = (
    ("quote_cabin", "nights", "beds", "beds for one night"),
    ("quote_print", "pages", "copies", "page of one copy"),
    ("quote_freight", "pallets", "kilometres", "pallet and kilometre"),
    ("quote_lessons", "pupils", "lessons", "pupil and lesson"),
    ("quote_van", "days", "vans", "van for one day"),
    ("quote_catering", "guests", "courses", "course for one guest"),
)


def _quote(random: Random) -> Draft:
    lines, guarded = guard(random)
    name, a, b, _ = random.choice(_QUOTES)
    each, fee = random.randint(2, 90) * 10, random.choice((0, 250, 500, 1200))
    most = random.choice((10, 50, 200))
    message = f"{a} must be between 1 and {most}"
    price = f"{a} * {b} * {each}" + (f" + {fee}" if fee else "")
    signature = f"{name}({a}: int, {b}: int) to Result[int]"
    checks = block(f"if {a} < 1 or {a} > {most}", f'return Error("{message}")')
    code = block(endpoint("server", lines, signature), checks, f"return Ok({price})")
    details = (
        f"`{signature}` answers with a price in cents: `{a}` times `{b}` times {each}"
        + (f", plus {fee}." if fee else "."),
        f'When `{a}` is below 1 or above {most} the answer is `Error("{message}")`.',
        guarded,
    )
    return Draft(ask(random, f"a server endpoint `{name}`", *details), (code,))


def _settings(random: Random) -> Draft:
    lines, guarded = guard(random)
    chosen = random.sample(
        (
            ("page_size", "int", "20"), ("theme", "str", '"dark"'), ("beta", "bool", "false"),
            ("locale", "str", '"en"'),
            ("max_upload_mb", "int", "25"), ("currency", "str", '"EUR"'), ("signup_open", "bool", "true"),
        ),
        random.randint(2, 4),
    )  # fmt: skip
    shape = random.choice(("ClientSettings", "AppConfig", "Preferences", "FeatureSet"))
    name = random.choice(("client_settings", "app_config", "load_settings"))
    fields = [f"{field}: {kind}" for field, kind, _ in chosen]
    code = block(
        endpoint("server", lines, f"{name}() to {shape}"), with_record("return ", [(f, v) for f, _, v in chosen])
    )
    told = quoted([f"{field}: {value}" for field, _, value in chosen])
    details = (
        pick(
            random,
            f"The struct `{shape}` has the fields {quoted(fields)}.",
            f"It returns a struct `{shape}` of {quoted(fields)}.",
        ),
        f"`{name}() to {shape}` returns the fixed values {told}.",
        guarded,
    )
    return Draft(
        ask(random, f"a server endpoint `{name}` for settings", *details), (block(f"type {shape}", *fields), code)
    )


def _required(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    label, number = entity.label, entity.number
    fields = (label, entity.group, number)
    low = random.choice((0, 1)) if number.name != "celsius" else -60
    high = random.choice((100, 1000, 100000))
    name = random.choice((f"register_{entity.variable}", f"record_{entity.variable}", f"submit_{entity.variable}"))
    conditions = [f"len({label.name}) > 0", f"{number.name} >= {low} and {number.name} <= {high}"]
    lines = tuple(f"@require({condition})" for condition in conditions)
    signature = f"{name}({params(fields)}) to Result[Id[{entity.name}]]"
    short = one_in(random, 2)
    insert = f"db.{entity.name}.insert("
    body = (
        (with_record(f"return Ok({insert}", same_names(fields), ")?)"),)
        if short
        else (with_record(f"let id = {insert}", same_names(fields), ")?"), "return Ok(id)")
    )
    code = block(endpoint("mutation", lines, signature), *body)
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"`{signature}` inserts a row and returns its id.",
        f"Two `@require` decorators guard it: `{conditions[0]}` and `{conditions[1]}`.",
    )
    what = f"a mutation endpoint `{name}` with contracts, and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("server/status", _status),
    family("server/fetch", _fetch),
    family("server/quote", _quote),
    family("server/settings", _settings),
    family("mutation/required", _required),
)
"""Endpoints that compute or fetch, and one that guards its arguments."""
