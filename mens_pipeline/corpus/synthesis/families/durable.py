"""Families of scheduled functions, activities and workflows."""

from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family, some_fields, table
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES

_TIMES: Final = (
    ("15m", "every fifteen minutes"), ("30m", "every half hour"), ("1h", "every hour"), ("3h", "every three hours"),
    ("6h", "every six hours"), ("12h", "every twelve hours"), ("24h", "every 24 hours"), ("168h", "every 168 hours"),
    ("0 6 * * *", "every day at six in the morning (cron)"), ("30 1 * * *", "every night at half past one (cron)"),
    ("0 18 * * 5", "every Friday at six in the evening (cron)"),
    ("0 9 1 * *", "at nine on the first of every month (cron)"),
)  # fmt: skip


def _told_time(random: Random, interval: str, words: str) -> str:
    return pick(
        random,
        f'It runs {words}, written as "{interval}".',
        f'Schedule: "{interval}", that is {words}.',
        f'It runs {words}: "{interval}".',
    )


_CHORES: Final = (
    ("rotate_banner", "banner rotated"), ("refresh_cache", "cache refreshed"), ("ping_sensors", "sensors asked"),
    ("sync_calendar", "calendar synchronised"), ("send_digest", "digest sent"), ("check_backups", "backups checked"),
    ("renew_leases", "leases renewed"), ("empty_trash", "trash emptied"), ("update_ranking", "ranking updated"),
)  # fmt: skip


def _chore(random: Random) -> Draft:
    interval, words = random.choice(_TIMES)
    name, message = random.choice(_CHORES)
    level = random.choice(("info", "warn"))
    timed = one_in(random, 2)
    body = (
        ("let at = std.time.now_ms()", f'std.log.{level}("{message} at " + str(at))')
        if timed
        else (f'std.log.{level}("{message}")',)
    )
    uses = "@uses(clock)\n" if timed else ""
    code = block(f'@scheduled("{interval}")\n{uses}fn {name}() to Unit', *body)
    details = (
        _told_time(random, interval, words),
        f'`{name}() to Unit` logs "{message}'
        + (f' at " and the current milliseconds with `std.log.{level}`, and declares `@uses(clock)`.' if timed
           else f'" with `std.log.{level}`.'),
    )  # fmt: skip
    return Draft(ask(random, f"a scheduled function `{name}`", *details), (code,))


def _sweep(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.number, entity.flag, most=5)
    interval, words = random.choice(_TIMES)
    flag, number, item = entity.flag.name, entity.number, entity.short
    limit = random.choice(number.examples)
    name = random.choice((f"review_{entity.collection}", f"check_{entity.collection}", f"sweep_{entity.collection}"))
    action, told = random.choice(
        (
            (
                f'std.log.warn({item}.{entity.label.name} + " needs attention")',
                f'logs a warning of `{entity.label.name}` followed by " needs attention"',
            ),
            (f"db.{entity.name}.update({item}._id, {{ {flag}: true }})?", f"sets `{flag}` to true"),
            (f"db.{entity.name}.delete({item}._id)?", "deletes the row"),
        )
    )
    condition = f"{item}.{number.name} > {limit}"
    code = block(
        f'@scheduled("{interval}")\n@uses(db)\nfn {name}() to Result[int]',
        "let mut handled = 0",
        block(
            f"for {item} in db.{entity.name}.filter({{ {flag}: false }})",
            block(f"if {condition}", action, "handled += 1"),
        ),
        "return Ok(handled)",
    )
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        _told_time(random, interval, words),
        (
            f"`{name}() to Result[int]` uses the database (`@uses(db)`), looks at the rows whose `{flag}` is false, "
            f"{told} for each "
            f"whose `{number.name}` is above {limit}, and returns how many these were."
        ),
    )
    what = f"a scheduled function `{name}` and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), code))


def _snapshot(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    interval, words = random.choice(_TIMES)
    row = f"{entity.name}Snapshot"
    group = entity.group
    name = random.choice(
        (f"snapshot_{entity.collection}", f"count_{entity.collection}", f"measure_{entity.collection}")
    )
    fields = (entity.label, group, entity.flag)
    flag = entity.flag.name
    code = block(
        f'@scheduled("{interval}")\n@uses(db, clock)\nfn {name}() to Result[Unit]',
        f"let counted = len(db.{entity.name}.filter({{ {flag}: true }}))",
        f"db.{row}.insert({{ counted: counted, taken_at: std.time.now_ms() }})?",
        "return Ok(Unit)",
    )
    details = (
        has_fields(random, f"The table `{entity.name}`", fields),
        f"The table `{row}` has the fields `counted: int` and `taken_at: int`.",
        _told_time(random, interval, words),
        (
            f"`{name}() to Result[Unit]` counts the rows of `{entity.name}` whose `{flag}` is true and stores the "
            f"number with the "
            "current milliseconds; it declares `@uses(db, clock)`."
        ),
    )
    what = f"a scheduled function `{name}` with two tables"
    second = block(f"@table type {row}", "counted: int", "taken_at: int")
    return Draft(ask(random, what, *details, domain=entity.domain), (table(entity, fields), second, code))


@dataclass(frozen=True, slots=True)
class Step:
    """An activity that checks its argument.

    Attributes:
        name: What it is called.
        param: Its parameter.
        kind: The type of that parameter.
        done: What its answer begins with.
        wrong: The condition that makes it fail.
        message: The error then.
    """

    name: str
    param: str
    kind: str
    done: str
    wrong: str
    message: str

    @property
    def code(self) -> str:
        """The activity."""
        value = self.param if self.kind == "str" else f"str({self.param})"
        return block(
            f"activity {self.name}({self.param}: {self.kind}) to Result[str]",
            block(f"if {self.wrong}", f'return Error("{self.message}")'),
            f'return Ok("{self.done}" + {value})',
        )

    @property
    def told(self) -> str:
        """What it does, in a sentence."""
        return (
            f'The activity `{self.name}({self.param}: {self.kind}) to Result[str]` fails with "{self.message}" if '
            f'`{self.wrong}`, and otherwise answers with "{self.done}" followed by `{self.param}`.'
        )


_STEPS: Final = (
    Step("reserve_deck", "plate", "str", "deck-", "len(plate) is 0", "the plate is missing"),
    Step("reserve_cabin", "beds", "int", "cabin-", "beds > 4", "no cabin is that large"),
    Step("stamp_parcel", "code", "str", "STAMPED-", "len(code) is 0", "the code is blank"),
    Step("charge_card", "cents", "int", "charged-", "cents <= 0", "nothing to charge"),
    Step("print_label", "jar", "str", "label-", "len(jar) > 24", "the label is too long"),
    Step("check_photo", "applicant", "str", "photo-", "len(applicant) < 2", "the name is too short"),
    Step("book_hall", "city", "str", "hall-", "len(city) is 0", "the city is missing"),
    Step("weigh_load", "kilos", "int", "weighed-", "kilos < 10", "the load is too light"),
    Step("send_invite", "address", "str", "sent-", 'not address.contains("@")', "the address is not valid"),
    Step("hire_truck", "tons", "int", "truck-", "tons > 20", "no truck is that large"),
    Step("archive_report", "title", "str", "archived-", "title.trim().is_empty()", "the title is blank"),
    Step("reserve_tank", "litres", "int", "tank-", "litres > 9000", "no tank is that large"),
    Step("file_claim", "number", "str", "claim-", "len(number) isnt 8", "the number needs eight characters"),
    Step("seat_guests", "guests", "int", "table-", "guests > 12", "the party is too large"),
)
_BACKOFFS: Final = (
    'timeout: "5s"',
    'timeout: "20s"',
    'timeout: "1m"',
    'initial_backoff: "1s"',
    'initial_backoff: "500ms"',
)


def options_of(random: Random) -> str:
    """Draw the options of a durable call, as a record.

    Args:
        random: Decides the retries and whether there is a second option.
    """
    retries = f"retries: {random.randint(2, 9)}"
    return f"{{ {retries}, {random.choice(_BACKOFFS)} }}" if one_in(random, 2) else f"{{ {retries} }}"


def step_of(random: Random) -> Step:
    """Draw an activity.

    Args:
        random: Decides which.
    """
    return random.choice(_STEPS)


def _activity(random: Random) -> Draft:
    step = step_of(random)
    prefix = random.choice((step.done, step.done.upper(), step.done.replace("-", ": ")))
    step = Step(
        step.name,
        step.param,
        step.kind,
        prefix,
        step.wrong,
        random.choice((step.message, f"{step.name}: {step.message}")),
    )
    logging = one_in(random, 3)
    code = (
        step.code.replace("    return Ok(", f'    std.log.info("{step.name} done")\n    return Ok(')
        if logging
        else step.code
    )
    details = (step.told, f'Before a good answer it logs "{step.name} done" with `std.log.info`.' if logging else "")
    return Draft(ask(random, f"an activity `{step.name}`", *details), (code,))


_FETCHED: Final = (
    ("fetch_tide", "harbour", "tides", "tide"), ("fetch_price", "seed", "seeds", "price"),
    ("fetch_forecast", "town", "weather", "forecast"), ("fetch_menu", "day", "canteen", "menu"),
    ("fetch_track", "parcel", "post", "parcel data"), ("fetch_rate", "currency", "bank", "rate"),
    ("fetch_notice", "number", "town", "notice"), ("fetch_score", "game", "sports", "score"),
    ("fetch_stock", "sku", "depot", "stock"), ("fetch_level", "river", "gauges", "water level"),
)  # fmt: skip


def _fetching(random: Random) -> Draft:
    name, param, host, what = random.choice(_FETCHED)
    url = f"https://{host}.example.org/{random.choice(('', 'v1/', 'v2/', 'api/', 'open/'))}"
    number = one_in(random, 3)
    returned = "int" if number else "str"
    value = "int(body)" if number else "body"
    matched = one_in(random, 2)
    arms = (f"Ok(body) => Ok({value})", f'Error(reason) => Error("no {what} for " + {param} + ": " + reason)')
    body = (
        (f'let url = "{url}" + {param}', block("return match std.http.get_text(url)", *arms))
        if matched
        else (f'let body = std.http.get_text("{url}" + {param})?', f"return Ok({value})")
    )
    code = block(f"activity {name}({param}: str) to Result[{returned}]", *body)
    details = (
        f'`{name}({param}: str) to Result[{returned}]` gets the text at "{url}" followed by `{param}` with '
        f"`std.http.get_text`" + (" and converts it with `int`." if number else " and returns it."),
        f'On failure the message is "no {what} for ", `{param}`, ": " and the reason.'
        if matched
        else "A failure is passed on with `?`.",
    )
    return Draft(ask(random, f"an activity `{name}`", *details), (code,))


def _storing(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    label, number = entity.label, entity.number
    name = random.choice((f"store_{entity.variable}", f"record_{entity.variable}", f"keep_{entity.variable}"))
    stamped = one_in(random, 2)
    pairs = f"{label.name}: {label.name}, {number.name}: {number.name}" + (
        ", stored_at: std.time.now_ms()" if stamped else ""
    )
    returned = random.choice((f"Id[{entity.name}]", "Unit"))
    insert = f"db.{entity.name}.insert({{ {pairs} }})?"
    body = (insert, "return Ok(Unit)") if returned == "Unit" else (f"let id = {insert}", "return Ok(id)")
    code = block(f"activity {name}({label.declaration}, {number.declaration}) to Result[{returned}]", *body)
    lines = [label.declaration, number.declaration, *(["stored_at: int"] if stamped else [])]
    details = (
        f"The table `{entity.name}` has the fields `{'`, `'.join(lines)}`.",
        f"`{name}({label.declaration}, {number.declaration}) to Result[{returned}]` inserts a row"
        + (" with the current milliseconds" if stamped else "")
        + (", passes database errors on and returns `Ok(Unit)`." if returned == "Unit" else " and returns its id."),
    )
    what = f"an activity `{name}` and its table"
    return Draft(ask(random, what, *details, domain=entity.domain), (block(f"@table type {entity.name}", *lines), code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("scheduled/chore", _chore),
    family("scheduled/sweep", _sweep),
    family("scheduled/snapshot", _snapshot),
    family("activity/check", _activity),
    family("activity/fetch", _fetching),
    family("activity/store", _storing),
)
"""What runs by the clock, and the single steps of a workflow."""
