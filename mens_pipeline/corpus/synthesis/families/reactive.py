"""Families of reactive modules, the `.vox.ui` files."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family, some_fields, struct
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ADDITIVE_ENTITIES
from mens_pipeline.language import Mode

_GAUGES: Final = (
    ("beats", 92, "pause_ms", "60000 / beats", "60000 divided by it", "faster", "slower", 40, 208),
    ("minutes", 25, "seconds", "minutes * 60", "60 times it", "longer", "shorter", 5, 90),
    ("volume", 30, "decibels", "volume / 2 + 20", "half of it plus 20", "louder", "quieter", 0, 100),
    ("celsius", 20, "fahrenheit", "celsius * 9 / 5 + 32", "the same in Fahrenheit", "warmer", "cooler", 5, 30),
    ("servings", 4, "grams", "servings * 125", "125 times it", "more", "fewer", 1, 12),
    ("zoom", 100, "width", "zoom * 8", "8 times it", "zoom_in", "zoom_out", 25, 400),
    ("speed", 12, "metres_per_hour", "speed * 1000", "1000 times it", "speed_up", "slow_down", 0, 40),
    ("brightness", 50, "lumens", "brightness * 16", "16 times it", "brighter", "darker", 0, 100),
)


def _gauge(random: Random) -> Draft:
    state, usual, derived, formula, told, up, down, low, high = random.choice(_GAUGES)
    start = random.choice((low, usual, usual, (usual + high) // 2, (low + usual) // 2))
    step, logging = random.choice((1, 2, 5)), one_in(random, 2)
    members = [f"state {state}: int = {start}", f"derived {derived} = {formula}"]
    effect = block(f"effect depends_on ({state}):", f'print("{state}: " + str({state}))')
    raising = block(f"fn {up}() to Unit", block(f"if {state} + {step} <= {high}", f"{state} = {state} + {step}"))
    lowering = block(f"fn {down}() to Unit", block(f"if {state} - {step} >= {low}", f"{state} = {state} - {step}"))
    details = (
        (
            f"The state `{state}` is an `int` that starts at {start}; `{derived}` is derived from it as {told} "
            f"(`{formula}`)."
        ),
        f'An effect that depends on `{state}` prints "{state}: " and the number.' if logging else "",
        f"`{up}` and `{down}` change it by {step} but never above {high} or below {low}.",
    )
    what = pick(random, f"a reactive module for {state}", f"the reactive members of a `.vox.ui` file for {state}")
    declarations = ("\n".join(members), *([effect] if logging else []), raising, lowering)
    return Draft(ask(random, what, *details), declarations)


def _collection(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.number, most=4)
    items, item, number = entity.collection, entity.short, entity.number.name
    total, count = f"total_{number}", f"num_{items}"
    summing = block(
        f"fn sum_of(entries: List[{entity.name}]) to int",
        "let mut sum = 0",
        block("for entry in entries", f"sum += entry.{number}"),
        "return sum",
    )
    adding = block(f"fn add_{item}({item}: {entity.name}) to Unit", f"{items} = {items}.append({item})")
    clearing = block(f"fn clear_{items}() to Unit", f"{items} = []")
    members = [f"state {items}: List[{entity.name}] = []", f"derived {total} = sum_of({items})"]
    counting, emptied = one_in(random, 2), one_in(random, 2)
    members += [f"derived {count} = len({items})"] if counting else []
    details = (
        has_fields(random, f"The type `{entity.name}`", fields),
        f"The state `{items}` is a list of them, empty at first; `{total}` is derived with `sum_of(entries: "
        f"List[{entity.name}]) to int`, which adds up `{number}`"
        + (f", and `{count}` is their number." if counting else "."),
        f"`add_{item}({item}: {entity.name}) to Unit` appends one"
        + (f"; `clear_{items}() to Unit` empties the list." if emptied else "."),
    )
    what = f"a reactive module (a `.vox.ui` file) for {entity.plural}"
    declarations = (struct(entity.name, fields), "\n".join(members), summing, adding, *([clearing] if emptied else []))
    return Draft(ask(random, what, *details, domain=entity.domain), declarations)


_SWITCHES: Final = (
    ("dark", "theme", "dark", "light", "toggle_theme"), ("muted", "sound", "off", "on", "toggle_sound"),
    ("metric", "unit", "km", "miles", "toggle_unit"), ("paused", "label_text", "paused", "running", "toggle_pause"),
    ("compact", "layout", "compact", "roomy", "toggle_layout"),
    ("online", "status_text", "online", "offline", "toggle_link"),
    ("locked", "lock_text", "locked", "open", "toggle_lock"),
    ("sorted_up", "order_text", "rising", "falling", "toggle_order"),
)  # fmt: skip


def _switch(random: Random) -> Draft:
    state, derived, yes, no, toggle = random.choice(_SWITCHES)
    start, mounted, shown = random.choice(("true", "false")), one_in(random, 2), one_in(random, 2)
    name = f"{derived.split('_')[0].capitalize()}{random.choice(('Button', 'Switch', 'Toggle'))}"
    level = random.choice(("outline", "ghost"))
    members = [f"state {state}: bool = {start}", f'derived {derived} = if {state} {{ "{yes}" }} else {{ "{no}" }}']
    first = yes if start == "true" else no
    mount = block("on mount:", f'print("starts {first}")')
    flip = block(f"fn {toggle}() to Unit", f"{state} = not {state}")
    button = block(f"component {name}()", f'view: button(variant="{level}", on_click=fn() {toggle}()) {{ {derived} }}')
    details = (
        (
            f'The boolean state `{state}` starts as {start}; `{derived}` is derived: "{yes}" when it is true, "{no}" '
            f"otherwise."
        ),
        f'On mount it prints "starts {first}".' if mounted else "",
        f"`{toggle}() to Unit` flips the state.",
        f'The component `{name}` is a button (variant "{level}") that shows `{derived}` and calls `{toggle}`.'
        if shown
        else "",
    )
    what = pick(random, f"a reactive module with a switch `{state}`", f"a `.vox.ui` module around the flag `{state}`")
    declarations = ("\n".join(members), *([mount] if mounted else []), flip, *([button] if shown else []))
    return Draft(ask(random, what, *details), declarations)


FAMILIES: Final[tuple[Family, ...]] = (
    family("reactive_module/gauge", _gauge, mode=Mode.UI),
    family("reactive_module/collection", _collection, mode=Mode.UI),
    family("reactive_module/switch", _switch, mode=Mode.UI),
)
"""Module-level state and what follows from it."""
