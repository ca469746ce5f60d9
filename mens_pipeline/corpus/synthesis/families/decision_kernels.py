"""Functions that decide: ladders of thresholds, look-ups, and checks that answer with a Result."""

from collections.abc import Callable
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import block
from mens_pipeline.corpus.synthesis.families.kernel import Kernel, text
from mens_pipeline.corpus.synthesis.phrasing import listed

_LADDERS: Final = (
    ("wind_name", "speed", 0, 12, ("calm", "breeze", "gale", "storm", "hurricane")),
    ("grade", "points", 40, 12, ("fail", "pass", "good", "very good", "excellent")),
    ("age_group", "age", 6, 15, ("child", "youth", "adult", "senior", "veteran")),
    ("load_level", "percent", 20, 20, ("idle", "light", "busy", "heavy", "overloaded")),
    ("water_level", "centimetres", 50, 60, ("low", "normal", "raised", "high", "flood")),
    ("parcel_size", "grams", 500, 900, ("letter", "small", "medium", "large", "oversize")),
    ("loyalty_tier", "visits", 3, 10, ("new", "bronze", "silver", "gold", "platinum")),
    ("noise_class", "decibels", 30, 20, ("quiet", "moderate", "loud", "very loud", "harmful")),
    ("stock_level", "pieces", 1, 40, ("none", "scarce", "some", "plenty", "surplus")),
    ("ripeness", "days", 2, 3, ("unripe", "firm", "ripe", "soft", "overripe")),
)


def _ladder(random: Random) -> Kernel:
    name, param, low, gap, labels = random.choice(_LADDERS)
    steps = random.randint(2, len(labels) - 1)
    limits = [low + random.randint(1, gap)]
    while len(limits) < steps:
        limits.append(limits[-1] + random.randint(1, gap))
    strict = random.random() < 1 / 2
    rungs = [(limit, labels[k]) for k, limit in enumerate(limits)]
    sign, says = ("<", "below") if strict else ("<=", "up to and including")
    told = [f'{says} {limit} is "{label}"' for limit, label in rungs]

    def twin(n: int) -> str:
        return next((label for limit, label in rungs if (n < limit or (n == limit and not strict))), labels[steps])

    return Kernel(
        name,
        f"{param}: int",
        "str",
        (
            *(block(f"if {param} {sign} {limit}", f"return {text(label)}") for limit, label in rungs),
            f"return {text(labels[steps])}",
        ),
        f'It names the level of `{param}`: {", ".join(told)}, anything more is "{labels[steps]}".',
        tuple((str(n), text(twin(n))) for n in (limits[0], limits[-1], limits[-1] + 1)),
    )


_LOOKUPS: Final = (
    ("opening_hour", "day", ("monday", "friday", "saturday", "sunday"), "int", ("6", "7", "8", "9", "10", "11")),
    ("desk_of", "department", ("sales", "billing", "support", "press"), "int", ("1", "2", "3", "5", "7", "11")),
    ("shipping_days", "zone", ("domestic", "nordic", "europe", "overseas"), "int", ("1", "2", "4", "6", "9", "14")),
    ("vat_percent", "category", ("food", "books", "transport", "medicine"), "int", ("0", "5", "7", "10", "14")),
    ("colour_of", "status", ("ok", "late", "failed", "paused"), "str", ("green", "amber", "red", "grey")),
    ("greeting", "language", ("fi", "de", "fr", "pt"), "str", ("hei", "hallo", "bonjour", "ola")),
    ("coach_of", "team", ("juniors", "masters", "trail", "track"), "str", ("Nia", "Tom", "Uma", "Jonas")),
    ("loan_days", "kind", ("book", "film", "magazine", "game"), "int", ("7", "14", "21", "28")),
)


def _lookup(random: Random) -> Kernel:
    name, param, keys, kind, values = random.choice(_LOOKUPS)
    chosen = keys[: random.randint(2, len(keys))]
    literals = [text(value) for value in values[: len(chosen)]]
    if kind == "int":
        literals = sorted(random.sample(values, len(chosen)), key=int)
    other = random.choice(('"unknown"', '"none"', '"?"') if kind == "str" else ("-1", "99", "100"))
    arms = [f"{text(key)} => {literal}" for key, literal in zip(chosen, literals, strict=True)]
    told = [f'"{key}" gives {literal}' for key, literal in zip(chosen, literals, strict=True)]
    return Kernel(
        name,
        f"{param}: str",
        kind,
        (block(f"return match {param}", *arms, f"_ => {other}"),),
        f"It looks up `{param}` with a `match`: {listed(told)}; everything else gives {other}.",
        (*((text(key), literal) for key, literal in zip(chosen, literals, strict=True)), ('"elsewhere"', other)),
    )


_CHECKS: Final = (
    ("check_age", "age", "age", 0, 120),
    ("check_seats", "seats", "number of seats", 1, 12),
    ("check_percent", "percent", "percentage", 0, 100),
    ("check_month", "month", "month", 1, 12),
    ("check_quantity", "quantity", "quantity", 1, 500),
    ("check_rating", "stars", "rating", 1, 5),
    ("check_floor", "floor", "floor", -2, 30),
    ("check_hour", "hour", "hour", 0, 23),
    ("check_weeks", "weeks", "number of weeks", 1, 52),
    ("check_guests", "guests", "party", 2, 14),
    ("check_celsius", "celsius", "temperature", -40, 60),
)


def _range_check(random: Random) -> Kernel:
    name, param, what, low, high = random.choice(_CHECKS)
    below = random.choice((f"{what} is too small", f"{what} must be at least {low}", f"{what} below {low}"))
    above = random.choice((f"{what} is too large", f"{what} must be at most {high}", f"{what} above {high}"))
    return Kernel(
        name,
        f"{param}: int",
        "Result[int]",
        (
            block(f"if {param} < {low}", f"return Error({text(below)})"),
            block(f"if {param} > {high}", f"return Error({text(above)})"),
            f"return Ok({param})",
        ),
        f'It returns `Ok({param})` for values from {low} to {high}, `Error("{below}")` for smaller and '
        f'`Error("{above}")` for larger ones.',
        (
            (str(low + 1), f"Ok({low + 1})"),
            (str(low - 1), f"Error({text(below)})"),
            (str(high + 1), f"Error({text(above)})"),
        ),
    )


_TAKES: Final = (
    ("withdraw", "balance", "amount", "balance too low"),
    ("reserve", "free", "wanted", "not enough seats"),
    ("take_out", "stock", "quantity", "not enough in stock"),
    ("spend", "budget", "cost", "over budget"),
    ("draw_water", "litres_left", "litres", "the tank is too low"),
)


def _take(random: Random) -> Kernel:
    name, have, want, short = random.choice(_TAKES)
    spare = random.choice((0, 0, 5, 10, 50))
    have_now, too_much = random.randint(80, 200), random.randint(201, 400)
    bad = f"{want.replace('_', ' ')} must be positive"
    ok = have_now - spare - random.randint(1, 20)
    limit = f"{have} - {spare}" if spare else have
    return Kernel(
        name,
        f"{have}: int, {want}: int",
        "Result[int]",
        (
            block(f"if {want} <= 0", f"return Error({text(bad)})"),
            block(f"if {want} > {limit}", f"return Error({text(short)})"),
            f"return Ok({have} - {want})",
        ),
        f'It returns what is left of `{have}` after taking `{want}` away, as `Ok`. `Error("{bad}")` is the answer when '
        f'`{want}` is zero or less, `Error("{short}")` when it is more than '
        + (f"`{have}` minus {spare}." if spare else f"`{have}`."),
        (
            (f"{have_now}, {ok}", f"Ok({have_now - ok})"),
            (f"{have_now}, {too_much}", f"Error({text(short)})"),
            (f"{have_now}, 0", f"Error({text(bad)})"),
        ),
    )


def _share(random: Random) -> Kernel:
    name, total, parts, what = random.choice(
        (
            ("share", "cents", "people", "nobody to share with"),
            ("per_box", "pieces", "boxes", "there are no boxes"),
            ("pace", "seconds", "laps", "no laps were run"),
        )
    )
    a, b = random.randint(50, 900), random.randint(2, 9)
    return Kernel(
        name,
        f"{total}: int, {parts}: int",
        "Result[int]",
        (block(f"if {parts} is 0", f"return Error({text(what)})"), f"return Ok({total} / {parts})"),
        f'It divides `{total}` by `{parts}`, rounded down, and answers `Error("{what}")` when `{parts}` is 0; '
        "negative arguments do not occur.",
        ((f"{a}, {b}", f"Ok({a // b})"), (f"{a}, 0", f"Error({text(what)})"), (f"0, {b}", "Ok(0)")),
    )


LADDERS: Final[tuple[Callable[[Random], Kernel], ...]] = (_ladder,)
"""Functions that name the range a number is in."""

LOOKUPS: Final[tuple[Callable[[Random], Kernel], ...]] = (_lookup,)
"""Functions that match on a string."""

RESULTS: Final[tuple[Callable[[Random], Kernel], ...]] = (_range_check, _take, _share)
"""Functions that answer with `Ok` or `Error`."""
