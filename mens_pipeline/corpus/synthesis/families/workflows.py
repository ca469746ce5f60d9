"""Families of workflows: steps with retries, compensation, waiting and versions."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family
from mens_pipeline.corpus.synthesis.families.durable import Step, options_of, step_of
from mens_pipeline.corpus.synthesis.phrasing import ask, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family


def two_steps(random: Random) -> tuple[Step, Step]:
    """Two different activities whose parameters differ.

    Args:
        random: Decides which.
    """
    first = step_of(random)
    second = step_of(random)
    while first.param == second.param:
        second = step_of(random)
    return first, second


def _sequence(random: Random) -> Draft:
    first, second = two_steps(random)
    one, two = options_of(random), options_of(random)
    name = f"{first.name.split('_')[0]}_and_{second.name.split('_')[0]}"
    glue = random.choice((" and ", ", then ", " + "))
    code = block(
        f"workflow {name}({first.param}: {first.kind}, {second.param}: {second.kind}) to Result[str]",
        f"let first = ({first.name}({first.param}) with {one})?",
        f"let second = ({second.name}({second.param}) with {two})?",
        f'return Ok(first + "{glue}" + second)',
    )
    details = (
        first.told,
        second.told,
        (
            f"`{name}({first.param}: {first.kind}, {second.param}: {second.kind}) to Result[str]` runs them in this "
            f"order, the first "
            f"with `{one}`, the second with `{two}`; it stops at the first failure and otherwise returns both "
            f"answers with "
            f'"{glue}" between them.'
        ),
    )
    return Draft(ask(random, f"a workflow `{name}` of two activities", *details), (first.code, second.code, code))


def _saga(random: Random) -> Draft:
    first, second = two_steps(random)
    undo = f"undo_{first.name}"
    cancel = block(f"activity {undo}(done: str) to Result[str]", 'print("undone: " + done)', "return Ok(done)")
    tries, one = random.randint(5, 20), options_of(random)
    name = f"{first.name.split('_')[0]}_or_undo"
    code = block(
        f"workflow {name}({first.param}: {first.kind}, {second.param}: {second.kind}) to Result[str]",
        f"let first = ({first.name}({first.param}) with {one})?",
        block(
            f"return match {second.name}({second.param}) with {one}",
            'Ok(second) => Ok(first + " and " + second)',
            block("Error(reason) =>", f"let _ = {undo}(first) with {{ retries: {tries} }}", "Error(reason)"),
        ),
    )
    details = (
        first.told,
        second.told,
        f'The activity `{undo}(done: str) to Result[str]` prints "undone: " and `done` and returns `Ok(done)`.',
        (
            f"`{name}({first.param}: {first.kind}, {second.param}: {second.kind}) to Result[str]` runs both with "
            f"`{one}`. If the "
            f"second one fails, it calls `{undo}` with the answer of the first and `{{ retries: {tries} }}` before it "
            f"returns the "
            'error; otherwise it returns both answers with " and " between them.'
        ),
    )
    what = f"a workflow `{name}` with compensation (a saga)"
    return Draft(ask(random, what, *details), (first.code, second.code, cancel, code))


def _batch(random: Random) -> Draft:
    step = step_of(random)
    items = f"{step.param}_list"
    name = f"{step.name.split('_')[0]}_all"
    options, collecting = options_of(random), one_in(random, 2)
    kind = "List[str]" if collecting else "int"
    start = "let mut done: List[str] = []" if collecting else "let mut done = 0"
    grow = "done = done.append(answer)" if collecting else "done += 1"
    answer = "answer" if collecting else "_"
    code = block(
        f"workflow {name}({items}: List[{step.kind}]) to {kind}",
        start,
        block(
            f"for {step.param} in {items}",
            block(
                f"match {step.name}({step.param}) with {options}",
                f"Ok({answer}) => {{ {grow} }}",
                'Error(reason) => print("skipped: " + reason)',
            ),
        ),
        "return done",
    )
    details = (
        step.told,
        (
            f"`{name}({items}: List[{step.kind}]) to {kind}` calls it for each element with `{options}`, prints "
            f'"skipped: " and the '
            f"reason for those that fail, and returns {'the list of answers' if collecting else 'how many succeeded'}."
        ),
    )
    return Draft(ask(random, f"a workflow `{name}` over a list", *details), (step.code, code))


_RULES: Final = (
    ("round_price", "cents", "cents - cents % {k}", "rounds down to a multiple of {k}", (5, 10, 50, 100)),
    ("late_fee", "days", "days * {k}", "charges {k} per day", (20, 50, 75, 120)),
    ("loyalty_points", "cents", "cents / {k}", "gives one point per {k} cents", (50, 100, 200, 250)),
    ("rest_minutes", "minutes", "minutes / {k}", "gives one minute of rest per {k} minutes", (4, 5, 6, 10)),
    ("deposit", "rent", "rent * {k}", "asks for {k} times the rent", (1, 2, 3)),
    ("boarding_time", "departure", "departure - {k}", "starts {k} minutes before departure", (15, 20, 30, 45)),
    ("service_charge", "cents", "cents * {k} / 100", "takes {k} percent, rounded down", (5, 8, 10, 12)),
)  # fmt: skip


def _version(random: Random) -> Draft:
    name, param, formula, told, choices = random.choice(_RULES)
    old, new = random.sample(choices, 2)
    newest = random.choice((2, 2, 3))
    single = newest == 2  # noqa: PLR2004 - two versions leave one old one
    change = random.choice((f"{name.replace('_', '-')}-rule", "new-rule", f"change-to-{new}"))
    code = block(
        f"workflow {name}({param}: int) to int",
        f'let rule = workflow.version("{change}", 1, {newest})',
        block("if rule is 1" if single else f"if rule < {newest}", f"return {formula.format(k=old)}"),
        f"return {formula.format(k=new)}",
    )
    details = (
        (
            f"`{name}({param}: int) to int` so far {told.format(k=old)} (`{formula.format(k=old)}`); from version "
            f"{newest} on it "
            f"{told.format(k=new)} (`{formula.format(k=new)}`)."
        ),
        (
            f'Runs in flight must not break: ask for the version of "{change}" between 1 and {newest} with '
            f"`workflow.version` and keep "
            f"the old behaviour {'in version 1' if single else f'below version {newest}'}."
        ),
    )
    return Draft(ask(random, f"a workflow `{name}` with a version", *details), (code,))


_POLLED: Final = (
    ("await_heat", "read_kiln", "kiln", "celsius", "pottery"),
    ("await_level", "read_gauge", "gauge", "centimetres", "rivers"),
    ("await_charge", "read_battery", "bike", "percent", "bikes"),
    ("await_votes", "read_votes", "poll", "votes", "polls"),
    ("await_stock", "read_stock", "shelf", "pieces", "stock"),
    ("await_seats", "read_seats", "sailing", "seats", "ferries"),
)  # fmt: skip


def _poll(random: Random) -> Draft:
    name, read, param, unit, host = random.choice(_POLLED)
    most, wait = random.choice((5, 10, 20, 48)), random.choice(("30s", "5m", "1h", "2h"))
    options = options_of(random)
    url = f"https://{host}.example.org/{unit}/"
    activity = block(
        f"activity {read}({param}: int) to Result[int]",
        f'let body = std.http.get_text("{url}" + str({param}))?',
        "return Ok(int(body))",
    )
    code = block(
        f"workflow {name}({param}: int, target: int) to Result[int]",
        "let mut polls = 0",
        block(
            f"while polls < {most}",
            f"let {unit} = ({read}({param}) with {options})?",
            block(f"if {unit} >= target", f"return Ok({unit})"),
            "polls += 1",
            f'workflow_wait("{wait}")',
        ),
        f'return Error("{param} " + str({param}) + " never reached " + str(target))',
    )
    details = (
        (
            f'The activity `{read}({param}: int) to Result[int]` gets the text at "{url}" followed by the number and '
            f"converts it "
            "with `int`."
        ),
        (
            f"`{name}({param}: int, target: int) to Result[int]` calls it with `{options}` until the value is at least "
            f"`target` and "
            f'returns that value; between calls it waits "{wait}" with `workflow_wait`.'
        ),
        f'After {most} calls it gives up with the error "{param} N never reached T", with both numbers filled in.',
    )
    return Draft(ask(random, f"a workflow `{name}` that polls", *details), (activity, code))


_SIGNALS: Final = (
    ("contract-signed", "file_contract"), ("payment-received", "ship_order"), ("committee-met", "publish_decision"),
    ("keys-returned", "close_rental"), ("exam-graded", "send_certificate"), ("tide-turned", "open_sluice"),
    ("parts-arrived", "start_repair"), ("permit-granted", "begin_works"),
)  # fmt: skip


def _signal(random: Random) -> Draft:
    signal, action = random.choice(_SIGNALS)
    param = random.choice(("number", "code", "reference"))
    options = options_of(random)
    name = random.choice((f"{action}_later", f"wait_and_{action}", f"{action}_on_signal"))
    done = random.choice(("done", "finished", "completed"))
    checked = one_in(random, 2)
    check = [block(f"if len({param}) is 0", f'return Error("{param} is missing")')] if checked else []
    activity = block(f"activity {action}({param}: str) to Result[str]", *check, f'return Ok("{done} " + {param})')
    code = block(
        f"workflow {name}({param}: str) to Result[str]",
        f'workflow_wait_signal("{signal}")',
        f"return {action}({param}) with {options}",
    )
    details = (
        f'The activity `{action}({param}: str) to Result[str]` answers with "{done} " followed by `{param}`'
        + (f', and with `Error("{param} is missing")` for an empty one.' if checked else "."),
        (
            f'`{name}({param}: str) to Result[str]` waits for the signal "{signal}" with `workflow_wait_signal` and '
            f"then returns what "
            f"the activity answers, called with `{options}`."
        ),
    )
    return Draft(ask(random, f"a workflow `{name}` that waits for a signal", *details), (activity, code))


_TICKETS: Final = (
    ("COAT-", "guest"),
    ("CLAIM-", "customer"),
    ("ORDER-", "buyer"),
    ("PASS-", "visitor"),
    ("LOT-", "bidder"),
    ("RUN-", "operator"),
)


def _journal(random: Random) -> Draft:
    prefix, who = random.choice(_TICKETS)
    timed = one_in(random, 2)
    name = random.choice(
        (f"issue_{prefix.strip('-').lower()}", f"{prefix.strip('-').lower()}_ticket", f"number_for_{who}")
    )
    value = "std.time.now_ms()" if timed else "std.crypto.uuid()"
    variable = "drawn_at" if timed else "number"
    shown = f"str({variable})" if timed else variable
    printing, named = one_in(random, 2), one_in(random, 2)
    code = block(
        f"workflow {name}({who}: str) to str",
        f"let {variable} = side_effect {{ {value} }}",
        *([f'print("ticket for " + {who})'] if printing else []),
        f'return {who} + ": {prefix}" + {shown}' if named else f'return "{prefix}" + {shown}',
    )
    what_value = "the current milliseconds" if timed else "a UUID"
    details = (
        f"`{name}({who}: str) to str` takes {what_value} in a replay-safe way (`side_effect`, in `{variable}`) and "
        f"returns " + (f'`{who}`, ": {prefix}" and that value.' if named else f'"{prefix}" followed by that value.'),
        pick(
            random,
            f'It prints "ticket for " and `{who}`.',
            f'Before it returns it prints "ticket for " followed by `{who}`.',
        )
        if printing
        else "",
    )
    return Draft(ask(random, f"a workflow `{name}` with a recorded side effect", *details), (code,))


FAMILIES: Final[tuple[Family, ...]] = (
    family("workflow/sequence", _sequence),
    family("workflow/saga", _saga),
    family("workflow/batch", _batch),
    family("workflow/version", _version),
    family("workflow/poll", _poll),
    family("workflow/signal", _signal),
    family("workflow/journal", _journal),
)
"""Long-running work that survives a restart."""
