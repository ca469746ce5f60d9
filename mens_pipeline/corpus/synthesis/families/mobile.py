"""Families of the native blocks: back button, deep link and push messages."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family
from mens_pipeline.corpus.synthesis.phrasing import ask, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES

_PRESSES: Final = (
    ("close_drawer", "an open drawer is closed"), ("close_dialog", "an open dialog is closed"),
    ("stop_recording", "the recording stops"), ("leave_search", "the search is left"),
    ("close_player", "the player closes"),
    ("hide_keyboard", "the keyboard is hidden"), ("cancel_edit", "editing is cancelled"),
    ("close_menu", "the menu is closed"),
)  # fmt: skip
_SCREENS: Final = (
    ("go_home", "/"), ("show_dashboard", "/dashboard"), ("show_map", "/map"), ("show_inbox", "/inbox"),
    ("show_settings", "/settings"),
)  # fmt: skip


def _fallback(random: Random) -> tuple[str, str]:
    entity = random.choice(ENTITIES)
    return random.choice((*_SCREENS, *((f"show_{entity.collection}", f"/{entity.collection.replace('_', '-')}"),) * 5))


def _back(random: Random) -> Draft:
    press, told = random.choice(_PRESSES)
    fallback, path = _fallback(random)
    both = not one_in(random, 4)
    lines = [f"on_press: {press}", *([f"fallback: {fallback}"] if both else [])]
    first = block(f"@endpoint(kind: mutation)\nfn {press}() to bool", "return true")
    second = block(f"@endpoint(kind: query)\nfn {fallback}() to str", f'return "{path}"')
    details = (
        f"When back is pressed, {told}: `{press}() to bool` is a mutation that simply returns true.",
        f'If that does not apply, the fallback is the query `{fallback}() to str`, which returns "{path}".'
        if both
        else "",
    )
    what = "a back button block with its handlers" if both else "a back button block with its handler"
    return Draft(ask(random, what, *details), (first, *([second] if both else []), block("@back_button", *lines)))


def _back_alone(random: Random) -> Draft:
    press, told = random.choice(_PRESSES)
    fallback, path = _fallback(random)
    both = one_in(random, 2)
    lines = [f"on_press: {press}", *([f"fallback: {fallback}"] if both else [])]
    details = (
        pick(random, f"On press {told} by `{press}`.", f"The handler is `{press}`; with it {told}."),
        f'The fallback is `{fallback}`, which leads to "{path}".' if both else "",
        pick(random, "The functions exist already.", "Only the block is needed, the functions are there.") if both
        else pick(random, "There is no fallback.", "The function exists already; no fallback."),
    )  # fmt: skip
    return Draft(ask(random, "a back button block", *details), (block("@back_button", *lines),))


def _scheme(random: Random) -> tuple[str, str]:
    scheme = random.choice(
        (
            "wayfarer",
            "crux",
            "heritage",
            "spanwatch",
            "larder",
            "tidebook",
            "plotter",
            "harbour",
            "kestrel",
            "relay",
            "orchard",
        )
    )
    return scheme, random.choice(
        (f"{scheme}.example", f"go.{scheme}.example", f"open.{scheme}.example", f"links.{scheme}.example")
    )


def _deep_link(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    scheme, domain = _scheme(random)
    path = f"/{entity.collection.replace('_', '-')}"
    handler = random.choice((f"open_{entity.variable}", "open_link", f"{entity.short}_link"))
    param = random.choice(("address", "link_url"))
    home = random.choice(("/", "/home", "/start"))
    with_domain = one_in(random, 2)
    query = block(
        f"@endpoint(kind: query)\nfn {handler}({param}: str) to str",
        f'return if {param}.contains("{path}/") {{ "{path}" }} else {{ "{home}" }}',
    )
    lines = [f'scheme: "{scheme}"', *([f'universal_link: "{domain}"'] if with_domain else []), f"on_link: {handler}"]
    details = (
        f'The scheme is "{scheme}"' + (f', the universal link is "{domain}".' if with_domain else "."),
        (
            f'The query `{handler}({param}: str) to str` returns "{path}" when the address contains "{path}/" and '
            f'"{home}" otherwise.'
        ),
    )
    return Draft(
        ask(random, "a deep link block and its handler", *details, domain=entity.domain),
        (query, block("@deep_link", *lines)),
    )


def _deep_link_code(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    scheme, domain = _scheme(random)
    path = f"/{entity.collection.replace('_', '-')}"
    with_domain, tested = one_in(random, 2), one_in(random, 2)
    sample = random.choice(("14", "F4Q9", "larch", "x7"))
    code = block("fn last_part(address: str) to str", 'let parts = address.split("/")', "return parts[len(parts) - 1]")
    query = block(
        f"@endpoint(kind: query)\nfn open_{entity.variable}(address: str) to str",
        f'return "{path}/" + last_part(address)',
    )
    lines = [
        f'scheme: "{scheme}"',
        *([f'universal_link: "{domain}"'] if with_domain else []),
        f"on_link: open_{entity.variable}",
    ]
    test = block(
        "@test\nfn test_last_part() to Unit",
        f'assert(last_part("{scheme}://{entity.variable}/{sample}") is "{sample}")',
    )
    details = (
        "`last_part(address: str) to str` returns what follows the last slash.",
        f'The query `open_{entity.variable}(address: str) to str` returns "{path}/" followed by that part.',
        f'The block has the scheme "{scheme}"'
        + (f', the universal link "{domain}"' if with_domain else "")
        + " and this query as handler.",
        f'The test `test_last_part` checks that "{scheme}://{entity.variable}/{sample}" gives "{sample}".'
        if tested
        else "",
    )
    what = f"a deep link block that opens one {entity.noun}, with its functions"
    declarations = (code, query, block("@deep_link", *lines), *([test] if tested else []))
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


def _push(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    device = f"{entity.name}{random.choice(('Device', 'Phone'))}"
    save = random.choice(("save_device", f"register_{entity.short}_device", "keep_token"))
    stamped = one_in(random, 2)
    fields = ["token: str", *(["registered_at: int"] if stamped else [])]
    value = "{ token: token, registered_at: std.time.now_ms() }" if stamped else "{ token: token }"
    path = f"/{entity.collection.replace('_', '-')}/"
    opener, acting = f"open_{entity.variable}", one_in(random, 2)
    mutation = block(
        f"@endpoint(kind: mutation)\nfn {save}(token: str) to Result[Id[{device}]]",
        f"return Ok(db.{device}.insert({value})?)",
    )
    query = block(f"@endpoint(kind: query)\nfn {opener}(payload: str) to str", f'return "{path}" + payload')
    lines = [f"on_register: {save}", *([f"on_action: {opener}"] if acting else [])]
    details = (
        f"The table `{device}` stores `{'` and `'.join(fields)}`.",
        f"Registering calls the mutation `{save}(token: str) to Result[Id[{device}]]`, which inserts a row"
        + (" with the current time in milliseconds and returns its id." if stamped else " and returns its id."),
        f'Tapping a notification calls the query `{opener}(payload: str) to str`, which returns "{path}" followed '
        f"by the payload."
        if acting
        else "",
    )
    declarations = (
        block(f"@table type {device}", *fields),
        mutation,
        *([query] if acting else []),
        block("@push", *lines),
    )
    return Draft(
        ask(random, "a push notification block with all it needs", *details, domain=entity.domain), declarations
    )


def _push_alone(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    register = random.choice(("save_device", "keep_token", f"add_{entity.short}_phone"))
    received = random.choice((f"refresh_{entity.collection}", f"note_{entity.short}", "count_unread"))
    action = random.choice((f"open_{entity.variable}", "open_inbox", f"show_{entity.collection}"))
    keys = [("on_register", register, "registration"), ("on_notification", received, "an incoming notification")]
    keys.append(("on_action", action, "a tap on one"))
    chosen = [key for key in keys if key[0] == "on_register" or one_in(random, 2)]
    details = (
        ", ".join(f"`{handler}` handles {what}" for _, handler, what in chosen) + ".",
        pick(random, "The functions exist already.", "Write the block alone.", "The handlers are defined elsewhere."),
    )
    code = block("@push", *(f"{key}: {handler}" for key, handler, _ in chosen))
    return Draft(ask(random, "a push notification block", *details, domain=entity.domain), (code,))


FAMILIES: Final[tuple[Family, ...]] = (
    family("back_button/handlers", _back),
    family("back_button/block", _back_alone),
    family("deep_link/handler", _deep_link),
    family("deep_link/code", _deep_link_code),
    family("push/device", _push),
    family("push/block", _push_alone),
)
"""What a phone asks of an application."""
