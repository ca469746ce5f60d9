"""Families of functions whose shape is what they teach; what functions compute is the matter of tasks."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family
from mens_pipeline.corpus.synthesis.phrasing import ask, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family

_FALLBACKS: Final = (
    ("display_name", "nickname", "str", ('"guest"', '"anonymous"', '"no name"')),
    ("page_size", "requested", "int", ("10", "20", "50")),
    ("start_page", "saved", "str", ('"/home"', '"/start"', '"/dashboard"')),
    ("volume_or_default", "volume", "int", ("5", "30", "70")),
    ("room_or_default", "room", "str", ('"foyer"', '"main hall"', '"reception"')),
    ("retries_or_default", "configured", "int", ("1", "3", "5")),
    ("timeout_seconds", "chosen", "int", ("15", "30", "60", "120")),
    ("currency_or_default", "currency", "str", ('"EUR"', '"SEK"', '"USD"')),
    ("language_or_default", "language", "str", ('"en"', '"fi"', '"de"')),
    ("delivery_note", "note", "str", ('"no note"', '"leave at the door"', '"ring twice"')),
    ("table_number", "reserved", "int", ("0", "1", "12")),
    ("theme_or_default", "theme", "str", ('"light"', '"dark"', '"system"')),
    ("deposit_cents", "agreed", "int", ("0", "5000", "10000")),
    ("contact_line", "phone", "str", ('"no phone"', '"call the office"', '"555-0100"')),
)


def _option_default(random: Random) -> Draft:
    name, param, kind, defaults = random.choice(_FALLBACKS)
    default = random.choice(defaults)
    prefix = random.choice(("Hello, ", "Welcome, ")) if name == "display_name" and one_in(random, 2) else ""
    found = f'"{prefix}" + value' if prefix else "value"
    missing = default.replace('"', f'"{prefix}', 1) if prefix else default
    some, none = f"Some(value) => {found}", f"None => {missing}"
    arms = (none, some) if one_in(random, 4) else (some, none)
    code = block(f"fn {name}({param}: Option[{kind}]) to {kind}", block(f"return match {param}", *arms))
    told = f'"{prefix}" followed by the value' if prefix else "the value"
    details = (
        f"It takes `{param}: Option[{kind}]` and returns `{kind}`.",
        pick(
            random,
            f"If there is a value it returns {told}, otherwise {missing}.",
            f"`None` gives {missing}; `Some` gives {told}.",
            f"With a `match` it returns {told} when one is present and {missing} when not.",
        ),
    )
    return Draft(ask(random, f"a function `{name}`", *details), (code,))


_FACTORIES: Final = (
    ("make_adder", "amount", "+", "adds `amount` to its argument"),
    ("make_scaler", "factor", "*", "multiplies its argument by `factor`"),
    ("surcharge_of", "fee", "+", "adds `fee` to its argument"),
    ("discount_of", "rebate", "-", "subtracts `rebate` from its argument"),
    ("make_multiplier", "times", "*", "multiplies its argument by `times`"),
)


def _closure(random: Random) -> Draft:
    name, captured, sign, does = random.choice(_FACTORIES)
    param = random.choice(("x", "n", "value"))
    short = one_in(random, 2)
    head = f"fn {name}({captured}: int) to fn(int) to int"
    body = f"{param} {sign} {captured}"
    code = block(head, f"return {param} => {body}" if short else f"return fn({param}: int) to int {{ return {body} }}")
    user = f"apply_{name.split('_')[-1]}"
    second = block(
        f"fn {user}(values: List[int], {captured}: int) to List[int]", f"return values.map({name}({captured}))"
    )
    details = (
        f"It takes `{captured}: int` and returns a function from `int` to `int` that {does}.",
        "Write the closure with an arrow." if short else "Write the closure with `fn` and typed parameters.",
    )
    if one_in(random, 2):
        return Draft(ask(random, f"a function `{name}` that returns a closure", *details), (code,))
    more = (
        f"A second function `{user}(values: List[int], {captured}: int) to List[int]` maps the closure over `values`."
    )
    return Draft(ask(random, f"a function `{name}` that returns a closure", *details, more), (code, second))


_STEPS: Final = (
    ("trimmed", ".trim()", "trims it"),
    ("lowered", ".to_lower()", "puts it in lower case"),
    ("uppered", ".to_upper()", "puts it in upper case"),
    ("dashed", '.replace(" ", "-")', "replaces spaces by dashes"),
    ("underscored", '.replace(" ", "_")', "replaces spaces by underscores"),
    ("without_commas", '.replace(",", "")', "removes commas"),
    ("without_dots", '.replace(".", "")', "removes full stops"),
    ("first_ten", ".slice(0, 10)", "cuts it to ten characters"),
    ("starred", ' + "*"', "appends a star"),
)


def _pipeline(random: Random) -> Draft:
    steps = random.sample(_STEPS, random.randint(2, 4))
    name, param = random.choice((("slug", "heading"), ("clean", "raw"), ("as_key", "label"), ("normalised", "entry")))
    small = tuple(f"fn {step}(s: str) to str {{ return s{change} }}" for step, change, _ in steps)
    chain = " |> ".join([param, *(step for step, _, _ in steps)])
    main = block(f"fn {name}({param}: str) to str", f"return {chain}")
    told = ", then ".join(f"`{step}` {does}" for step, _, does in steps)
    details = (
        (
            f"`{name}({param}: str) to str` sends its argument through {len(steps)} small functions from `str` to "
            f"`str`, "
            "in this order:"
        ),
        f"{told}.",
    )
    prompt = ask(random, f"a function `{name}` built with the pipe operator", " ".join(details))
    return Draft(prompt, ("\n".join(small), main))


_PARSERS: Final = (
    ("parse_quantity", "quantity", "order_total", "price", "*", "quantity"),
    ("parse_minutes", "minutes", "end_time", "start", "+", "number of minutes"),
    ("parse_nights", "nights", "stay_price", "rate", "*", "number of nights"),
    ("parse_tickets", "tickets", "ticket_price", "each", "*", "number of tickets"),
    ("parse_boxes", "boxes", "total_weight", "grams", "*", "number of boxes"),
    ("parse_days", "days", "last_day", "first_day", "+", "number of days"),
    ("parse_hours", "hours", "wage", "hourly", "*", "number of hours"),
    ("parse_litres", "litres", "filled_to", "level", "+", "number of litres"),
    ("parse_pages", "pages", "bookmark", "current", "+", "number of pages"),
)


def _try_chain(random: Random) -> Draft:
    parse, value, compute, other, sign, what = random.choice(_PARSERS)
    low, raw = random.randint(1, 4), random.choice(("raw", "entered", "answer"))
    message = random.choice((f"{what} must be at least {low}", f"{what} is below {low}", f"{what}: {low} or more"))
    short = one_in(random, 2)
    first = block(
        f"fn {parse}({raw}: str) to Result[int]",
        f"let {value} = int({raw}.trim())",
        block(f"if {value} < {low}", f'return Error("{message}")'),
        f"return Ok({value})",
    )
    call = f"{parse}({raw})?"
    last = (f"return Ok({call} {sign} {other})",) if short else (
        f"let {value} = {call}", f"return Ok({value} {sign} {other})"
    )  # fmt: skip
    second = block(f"fn {compute}({raw}: str, {other}: int) to Result[int]", *last)
    details = (
        (
            f"`{parse}({raw}: str) to Result[int]` trims `{raw}` and converts it with `int`; a value below {low} is "
            f'`Error("{message}")`.'
        ),
        (
            f"`{compute}({raw}: str, {other}: int) to Result[int]` passes that error on with `?` and otherwise "
            f"returns the "
            f"{what} {'times' if sign == '*' else 'plus'} `{other}`."
        ),
    )
    return Draft(ask(random, f"two functions (`{parse}` and `{compute}`)", *details), (first, second))


_CONTRACTS: Final = (
    ("tip", "cents", "percent", "cents * percent / 100", "the given percentage of `cents`, rounded down"),
    ("crop_area", "width", "height", "width * height", "`width` times `height`"),
    ("travel_minutes", "metres", "speed", "metres / speed", "`metres` divided by `speed`, rounded down"),
    ("price_each", "total", "pieces", "total / pieces", "`total` divided by `pieces`, rounded down"),
    ("fence_posts", "metres", "gap", "metres / gap + 1", "`metres` divided by `gap`, rounded down, plus one"),
)


def _contract(random: Random) -> Draft:
    name, a, b, formula, told = random.choice(_CONTRACTS)
    low, high = random.choice((0, 1)), random.choice((100, 500, 1000, 5000, 10000))
    conditions = [f"{a} >= {low}", f"{b} > 0 and {b} <= {high}"]
    if one_in(random, 2):
        conditions = [f"{a} >= {low} and {a} <= {high * 10}", f"{b} > 0"]
    lines = [f"@require({condition})" for condition in conditions]
    ensure = one_in(random, 2)
    lines += ["@ensure(result >= 0)"] if ensure else []
    pure = one_in(random, 2)
    code = "\n".join(
        [*(["@pure"] if pure else []), *lines, block(f"fn {name}({a}: int, {b}: int) to int", f"return {formula}")]
    )
    details = (
        f"It takes `{a}: int, {b}: int` and returns `int`: {told}.",
        f"Preconditions: `{conditions[0]}` and, as a second `@require`, `{conditions[1]}`.",
        "A postcondition says that the result is not negative." if ensure else "",
        "It is also marked `@pure`." if pure else "",
    )
    return Draft(ask(random, f"a function `{name}` with contracts", *details), (code,))


_EXTERNS: Final = (
    ("checksum", "digits: str", "bool", "digits"),
    ("qr_svg", "content: str", "str", "content"),
    ("distance_metres", "route: str", "int", "route"),
    ("is_holiday", "day: str", "bool", "day"),
    ("word_stem", "word: str", "str", "word"),
)


def _extern(random: Random) -> Draft:
    name, param, kind, argument = random.choice(_EXTERNS)
    module = f"./{random.choice(('', 'lib/', 'native/', 'vendor/'))}{name}"
    other = random.choice(("safe", "known", "usable"))
    extern = f'extern fn {name}({param}) to {kind} = "{module}"'
    details = (f'`{name}({param}) to {kind}` comes from the module "{module}".',)
    if one_in(random, 3):
        return Draft(ask(random, f"an extern function `{name}`", *details), (extern,))
    blank = {"bool": "false", "str": '""', "int": "0"}[kind]
    wrapper = block(
        f"fn {other}_{name}({param}) to {kind}",
        block(f"if len({argument}.trim()) is 0", f"return {blank}"),
        f"return {name}({argument}.trim())",
    )
    told = (
        f"A wrapper `{other}_{name}` of the same signature returns `{blank}` for a blank `{argument}` and "
        f"otherwise calls "
        f"it with the trimmed `{argument}`."
    )
    return Draft(ask(random, f"an extern function `{name}` and a wrapper", *details, told), (extern, wrapper))


def _generic(random: Random) -> Draft:
    name = random.choice(("or_else", "value_or", "with_default", "present_or"))
    maybe, fallback = random.choice((("maybe", "fallback"), ("found", "other"), ("value", "default_value")))
    known, missing, spare = random.sample(range(1, 90), 3)
    letter = random.choice("TAV")
    code = block(
        f"fn {name}<{letter}>({maybe}: Option[{letter}], {fallback}: {letter}) to {letter}",
        block(f"return match {maybe}", "Some(held) => held", f"None => {fallback}"),
    )
    test = block(
        "@test\nfn falls_back_only_on_none() to Unit",
        f"assert({name}(Some({known}), {missing}) is {known})",
        f"assert({name}([{known}].get({random.randint(1, 9)}), {spare}) is {spare})",
    )
    details = (
        f"Its signature is `<{letter}>({maybe}: Option[{letter}], {fallback}: {letter}) to {letter}`.",
        f"It returns what is in `{maybe}`, or `{fallback}` when that is `None`.",
    )
    if one_in(random, 2):
        return Draft(ask(random, f"a generic function `{name}`", *details), (code,))
    told = (
        f"Add a test `falls_back_only_on_none` with a present `{known}` and with a `get` outside of `[{known}]`, "
        f"where {spare} must come back."
    )
    return Draft(ask(random, f"a generic function `{name}` with a test", *details, told), (code, test))


FAMILIES: Final[tuple[Family, ...]] = (
    family("function/option_default", _option_default),
    family("function/closure", _closure),
    family("function/pipeline", _pipeline),
    family("function/try_chain", _try_chain),
    family("function/contract", _contract),
    family("function/extern", _extern),
    family("function/generic", _generic),
)
"""Functions that need no data of an application."""
