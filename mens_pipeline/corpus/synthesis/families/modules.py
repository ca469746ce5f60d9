"""Families of imports and module-level constants."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family, record
from mens_pipeline.corpus.synthesis.phrasing import ask, counted, listed, one_in, pick, quoted
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES

_MODULE_PARTS: Final = ("model", "types", "store", "records", "data")
_HELPER_PARTS: Final = (
    ("format", "labels"),
    ("rules", "rules"),
    ("text", "texts"),
    ("money", "money"),
    ("dates", "dates"),
)


def _names(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    others = [other for other in ENTITIES if other.domain == entity.domain] + [entity]
    names = list(dict.fromkeys(other.name for other in random.sample(others, random.randint(1, len(others)))))
    part = random.choice(_MODULE_PARTS)
    module = f"{entity.domain}.{part}"
    renamed = one_in(random, 2)
    alias = random.choice(("Row", "Item", "Entry", "Record"))
    written = [f"{names[0]} as {alias}", *names[1:]] if renamed else names
    lines = [f"import {module} as {{ {', '.join(written)} }}"]
    told = [
        f"Import {quoted(names)} from the module `{module}`"
        + (f", with `{names[0]}` renamed to `{alias}`." if renamed else ".")
    ]
    if one_in(random, 2):
        helper, short = random.choice(_HELPER_PARTS)
        lines.append(f"import {entity.domain}.{helper} as {short}")
        told.append(f"Import the module `{entity.domain}.{helper}` under the name `{short}`.")
    what = "an import" if len(lines) == 1 else "two imports"
    return Draft(ask(random, f"{what} for a module about {entity.plural}", *told), ("\n".join(lines),))


_STD: Final = (
    ("std.log", "log", 'log.info("{what} started")', 'logs "{what} started" with `info`'),
    ("std.log", "log", 'log.warn("{what} is late")', 'logs "{what} is late" with `warn`'),
    ("std.log", "journal", 'journal.error("{what} failed")', 'logs "{what} failed" with `error`'),
)


def _std(random: Random) -> Draft:
    module, alias, call, told = random.choice(_STD)
    what = random.choice(("import", "backup", "nightly run", "stock count", "mail run", "clean-up", "export", "sync"))
    name = random.choice(("report", "note_it", "tell", f"{alias}_{what.split(' ')[-1].replace('-', '_')}"))
    if one_in(random, 4):
        others = random.sample(("std.fs", "std.mobile", "std.regex"), random.randint(1, 2))
        line = f"import {', '.join([module, *others])}"
        told_all = f"It brings in {quoted([module, *others])} in one statement."
        return Draft(ask(random, "an import of standard modules", told_all), (line,))
    code = block(f"fn {name}() to Unit", call.format(what=what))
    details = (
        f"`{module}` is imported under the name `{alias}`.",
        f"The function `{name}() to Unit` {told.format(what=what)}.",
    )
    return Draft(ask(random, "an import and a function that logs", *details), (f"import {module} as {alias}", code))


def _used(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    item, number = entity.short, entity.number.name
    limit = random.choice(entity.number.examples)
    helper, alias = random.choice(_HELPER_PARTS)
    call = f"{entity.short}_line"
    name = random.choice((f"large_{entity.collection}", f"{item}_lines", "lines"))
    imports = f"import {entity.domain}.model as {{ {entity.name} }}\nimport {entity.domain}.{helper} as {alias}"
    code = block(
        f"fn {name}({entity.collection}: List[{entity.name}]) to List[str]",
        f"let chosen = {entity.collection}.filter({item} => {item}.{number} > {limit})",
        f"return chosen.map({item} => {alias}.{call}({item}))",
    )
    details = (
        f"Import `{entity.name}` from `{entity.domain}.model` and the module `{entity.domain}.{helper}` as `{alias}`.",
        (
            f"`{name}({entity.collection}: List[{entity.name}]) to List[str]` keeps the {entity.plural} with "
            f"`{number}` above "
            f"{limit} and maps each to `{alias}.{call}`."
        ),
    )
    what = f"two imports and a function `{name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (imports, code))


_REACT: Final = (
    ("Sparkline", "charts", "values: List[int]", "values=values, width=240", "a sparkline of `values`, 240 wide"),
    ("DatePicker", "forms", "day: str", "value=day", "a date picker with the value `day`"),
    ("QrCode", "media", "code: str", "content=code, size=128", "a QR code of `code` with the size 128"),
    ("SeatMap", "plans", "seats: List[str]", "seats=seats", "a seat map of `seats`"),
    ("MapView", "maps", "town: str", "place=town, zoom=12", "a map of `town` with the zoom 12"),
    ("StarRating", "widgets", "stars: int", "value=stars, max=5", "a rating of `stars` with at most 5 stars"),
    ("AudioWave", "media", "source: str", "src=source, height=64", "the wave form of `source`, 64 high"),
)


def _react(random: Random) -> Draft:
    name, folder, param, props, told = random.choice(_REACT)
    path = f"./{folder}/{name}{random.choice(('', '.tsx'))}"
    page = f"{name}{random.choice(('Page', 'Panel', 'Card'))}"
    title = random.choice(("Overview", "Today", "Details", "Summary"))
    headed = one_in(random, 2)
    inner = (f'heading(level=2) {{ "{title}" }}', f"{name}({props})")
    view = block("view: column(gap=3, pad=4)", *inner) if headed else f"view: {name}({props})"
    code = block(f"component {page}({param})", view)
    details = (
        f'The React component `{name}` comes from "{path}".',
        f"The Vox component `{page}({param})` shows {told}"
        + (f', below the heading "{title}" (level 2) in a column with gap 3 and padding 4.' if headed else "."),
    )
    what = "a React import and a component that uses it"
    return Draft(ask(random, what, *details), (f'import react {name} from "{path}"', code))


_CRATES: Final = (
    ("semver", "semver", "versions"), ("regex", "regex", "patterns"), ("chrono", "chrono", "time"),
    ("url", "url", "urls"), ("uuid", "uuid", "ids"), ("itertools", "itertools", "iter"), ("csv", "csv", "sheets"),
)  # fmt: skip


def _rust(random: Random) -> Draft:
    chosen = random.sample(_CRATES, random.randint(1, 2))
    lines, told = [], []
    for crate, plain, other in chosen:
        version = random.choice(("1", "2", "0.4", "1.3"))
        alias = random.choice((plain, other, ""))
        lines.append(f'import rust:{crate}(version: "{version}")' + (f" as {alias}" if alias else ""))
        told.append(f'`{crate}` in version "{version}"' + (f" under the name `{alias}`" if alias else ""))
    what = "an import of a Rust crate" if len(lines) == 1 else "imports of two Rust crates"
    sentence = pick(random, f"Bring in {listed(told)}.", f"Needed: {listed(told)}.")
    return Draft(ask(random, what, sentence), ("\n".join(lines),))


_CONSTANTS: Final = (
    ("MAX_LOANS", "int", ("3", "5", "10"), "the most loans a member may have"),
    ("PAGE_SIZE", "int", ("10", "20", "50"), "the rows on a page"),
    ("GRACE_DAYS", "int", ("3", "7", "14"), "the days of grace"),
    ("RETRY_LIMIT", "int", ("2", "4", "6"), "the most retries"),
    ("TIMEOUT_MS", "int", ("500", "2500", "10000"), "the timeout in milliseconds"),
    ("OPENING_HOUR", "int", ("7", "9", "10"), "the opening hour"),
    ("VAT_RATE", "float", ("0.1", "0.14", "0.24"), "the tax rate"),
    ("KNOTS_TO_KMH", "float", ("1.852",), "the factor from knots to kilometres per hour"),
    ("DAILY_LIMIT", "dec", ("50.00dec", "250.00dec"), "the daily limit as an exact decimal"),
    ("SHIPPING_FEE", "dec", ("4.90dec", "7.50dec"), "the shipping fee as an exact decimal"),
    ("SUPPORT_MAIL", "str", ('"help@example.org"', '"desk@example.org"'), "the support address"),
    ("CURRENCY", "str", ('"EUR"', '"SEK"', '"USD"'), "the currency"),
    ("API_BASE", "str", ('"https://api.example.org/v1"', '"https://data.example.org"'), "the base address"),
    ("DEFAULT_LANGUAGE", "str", ('"en"', '"fi"', '"de"'), "the default language"),
    ("BETA_ENABLED", "bool", ("true", "false"), "whether the beta is on"),
    ("DRY_RUN", "bool", ("true", "false"), "whether nothing is written"),
)


def _values(random: Random) -> Draft:
    chosen = random.sample(_CONSTANTS, random.randint(1, 4))
    typed = not one_in(random, 4)
    lines, told = [], []
    for name, kind, literals, meaning in chosen:
        value = random.choice(literals)
        lines.append(f"let {name}: {kind} = {value}" if typed else f"let {name} = {value}")
        told.append(f"`{name}` is {meaning}: {value}" + (f", of type `{kind}`" if typed else ""))
    what = "a module-level constant" if len(lines) == 1 else counted(len(lines), "module-level constant")
    details = [f"{one}." for one in told]
    return Draft(ask(random, what, *details, "" if typed else "Leave out the types."), ("\n".join(lines),))


_LIMITED: Final = (
    ("MAX_LOANS", "may_borrow", "open_loans", "<", (2, 9)),
    ("GRACE_DAYS", "is_overdue", "days_late", ">", (2, 21)),
    ("RETRY_LIMIT", "may_retry", "attempts", "<", (2, 8)),
    ("HEAT_ALARM", "too_hot", "celsius", ">", (28, 90)),
    ("MIN_STOCK", "must_reorder", "pieces", "<", (3, 50)),
    ("SPEED_LIMIT", "too_fast", "speed", ">", (20, 120)),
    ("QUORUM", "may_vote", "present", ">=", (3, 40)),
    ("FREE_SHIPPING_FROM", "ships_free", "cents", ">=", (2000, 9000)),
)
_SAID: Final = {"<": "less than", ">": "greater than", ">=": "at least"}


def _limit(random: Random) -> Draft:
    constant, name, param, sign, (low, high) = random.choice(_LIMITED)
    value = random.randint(low, high)
    code = block(f"fn {name}({param}: int) to bool", f"return {param} {sign} {constant}")
    # The two values on either side of the border.
    yes, no = {"<": (value - 1, value), ">": (value + 1, value), ">=": (value, value - 1)}[sign]
    test = block(f"@test\nfn test_{name}() to Unit", f"assert({name}({yes}))", f"assert(not {name}({no}))")
    tested = one_in(random, 3)
    details = (
        f"`{constant}` is an `int` with the value {value}.",
        f"`{name}({param}: int) to bool` says whether `{param}` is {_SAID[sign]} `{constant}`.",
        f"The test `test_{name}` checks `{yes}` (true) and `{no}` (false)." if tested else "",
    )
    declarations = (f"let {constant}: int = {value}", code, test)
    what = f"a constant `{constant}` and a function `{name}`"
    return Draft(ask(random, what, *details), declarations if tested else declarations[:2])


_MAPS: Final = (
    ("PORTS", "port_of", "service", (("ssh", 22), ("smtp", 25), ("https", 443), ("imap", 143), ("dns", 53))),
    ("LOAN_DAYS", "loan_days", "kind", (("book", 28), ("film", 7), ("game", 14), ("magazine", 3))),
    ("FEES", "fee_of", "size", (("small", 250), ("medium", 480), ("large", 900), ("oversize", 2100))),
    ("FLOORS", "floor_of", "office", (("lobby", 0), ("sales", 1), ("design", 2), ("archive", 4))),
    ("SEATS", "seats_in", "room", (("attic", 12), ("main hall", 240), ("studio", 40), ("foyer", 60))),
    ("CALORIES", "calories_of", "dish", (("soup", 180), ("salad", 120), ("tart", 420), ("bread", 250))),
)


def _map(random: Random) -> Draft:
    constant, name, param, entries = random.choice(_MAPS)
    chosen = random.sample(entries, random.randint(2, len(entries)))
    missing = random.choice((0, -1))
    literal = record((f'"{key}"', str(value)) for key, value in chosen)
    arms = ("Some(found) => found", f"None => {missing}")
    code = block(f"fn {name}({param}: str) to int", block(f"return match {constant}.get({param})", *arms))
    shown = listed([f'"{key}" to {value}' for key, value in chosen])
    if one_in(random, 3):
        told = f"`{constant}` has the type `map[str, int]` and maps {shown}."
        return Draft(ask(random, f"a constant map `{constant}`", told), (f"let {constant}: map[str, int] = {literal}",))
    details = (
        f"`{constant}` has the type `map[str, int]` and maps {shown}.",
        f"`{name}({param}: str) to int` looks its argument up with `get` and returns {missing} when it is not there.",
    )
    what = f"a constant map `{constant}` and a function `{name}`"
    return Draft(ask(random, what, *details), (f"let {constant}: map[str, int] = {literal}", code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("import/names", _names),
    family("import/std", _std),
    family("import/used", _used),
    family("import/react", _react),
    family("import/rust", _rust),
    family("const/values", _values),
    family("const/limit", _limit),
    family("const/map", _map),
)
"""What stands at the top of a module."""
