"""Families of tests and properties."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import Draft, block, family
from mens_pipeline.corpus.synthesis.families.variants import sum_type_of
from mens_pipeline.corpus.synthesis.phrasing import ask, listed, one_in, pick
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.tasks.draw import ObservedFunction, observed_function
from mens_pipeline.corpus.synthesis.tasks.wording import assertion

_MOST_CALLS: Final = 3
"""Calls that a test checks at most."""


def _tested(random: Random) -> tuple[ObservedFunction, str, tuple[str, ...], str]:
    """Draw a function, the name of a test, the sentences that describe it, and the test."""
    function = observed_function(random)
    calls = sorted(
        random.sample(function.calls, random.randint(1, min(_MOST_CALLS, len(function.calls)))),
        key=function.calls.index,
    )
    name = pick(random, f"test_{function.name}", f"{function.name}_of_known_values", f"checks_{function.name}")
    label = f"known results of {function.name}"
    header, labelled = random.choice(
        (("@test", ""), ("@test", ""), (f'@test("{label}")', f'The label of the test is "{label}".'))
    )
    checks = listed([f"`{call.call}` is `{call.result}`" for call in calls])
    test = block(f"{header}\nfn {name}() to Unit", *(assertion(call) for call in calls))
    return function, name, (checks, labelled), test


def _with_test(random: Random) -> Draft:
    function, name, (checks, labelled), test = _tested(random)
    signature = pick(
        random,
        f"Its signature is `{function.signature}`.",
        f"It takes and returns `{function.signature}`.",
        f"The function has the signature `{function.signature}`.",
    )
    told = f"The test `{name}` {pick(random, 'checks that', 'asserts that')} {checks}."
    details = (signature, function.behaviour, told, labelled)
    return Draft(ask(random, f"a function `{function.name}` with a test", *details), (function.code, test))


def _given(random: Random) -> Draft:
    function, name, (checks, labelled), test = _tested(random)
    opening = pick(
        random,
        f"Write a test `{name}` for this Vox function",
        f"I have the Vox function below. Add a test `{name}`",
        f"Please write the Vox test `{name}` for the following function",
        f"This Vox function needs a test `{name}`",
        f"How do I test this function in Vox? Name the test `{name}`",
    )
    told = pick(random, f"It checks that {checks}.", f"Assert that {checks}.")
    alone = pick(
        random, "Answer with the test alone.", "Only the test, not the function.", "Do not repeat the function."
    )
    sentences = " ".join(part for part in (told, labelled, alone) if part)
    return Draft(f"{opening}.\n\n```vox\n{function.code}\n```\n\n{sentences}", (test,))


def _variant_test(random: Random) -> Draft:
    chosen = sum_type_of(random)
    function = random.choice(("describe", "caption", f"{chosen.variable}_text"))
    name = f"every_{chosen.variable}_has_a_text" if one_in(random, 2) else f"test_{function}"
    test = block(
        f"@test\nfn {name}() to Unit",
        *(f"assert({function}({variant.sample}) is {variant.sample_text})" for variant in chosen.variants),
    )
    told = listed([f"`{variant.sample}` gives `{variant.sample_text}`" for variant in chosen.variants])
    details = (
        f"The variants of `{chosen.name}` are {chosen.told}.",
        (
            f"`{function}({chosen.variable}: {chosen.name}) to str` matches on it: "
            f"{listed([variant.told for variant in chosen.variants])}."
        ),
        f"The test `{name}` checks one of each: {told}.",
    )
    what = f"a sum type `{chosen.name}`, a function `{function}` and a test"
    return Draft(ask(random, what, *details), (chosen.code, chosen.describe(function), test))


def _property(random: Random, label: str) -> tuple[str, str]:
    if one_in(random, 2):
        return "@forall", ""
    return f'@forall("{label}")', f'Label the property "{label}".'


def _bounds(random: Random) -> Draft:
    low, width = random.randint(0, 50), random.randint(5, 300)
    high = low + width
    name, value = random.choice((
        ("clamp_volume", "volume"), ("legal_speed", "speed"), ("safe_level", "level"), ("valid_dose", "dose"),
        ("kept_in_range", "reading"), ("limited", "amount"),
    ))  # fmt: skip
    code = block(
        f"fn {name}({value}: int) to int",
        block(f"if {value} < {low}", f"return {low}"),
        block(f"if {value} > {high}", f"return {high}"),
        f"return {value}",
    )
    title = f"{name}_stays_in_bounds"
    header, label = _property(random, f"{name} stays between {low} and {high}")
    again = one_in(random, 2)
    checks = [f"let kept = {name}({value})", f"assert(kept >= {low} and kept <= {high})"]
    checks += [f"assert({name}(kept) is kept)"] if again else []
    details = (
        f"`{name}({value}: int) to int` keeps `{value}` between {low} and {high}.",
        f"The property `{title}({value}: int)` says that the result is never outside of these bounds"
        + (" and that applying it twice changes nothing more." if again else "."),
        label,
    )
    property_code = block(f"{header}\nfn {title}({value}: int) to Unit", *checks)
    return Draft(ask(random, f"a function `{name}` and a property test for it", *details), (code, property_code))


_SYMMETRIC: Final = (
    ("distance", ("if {a} > {b}", "return {a} - {b}"), "return {b} - {a}", "the distance between its two arguments"),
    ("larger", ("if {a} > {b}", "return {a}"), "return {b}", "the larger one of its two arguments"),
    ("smaller", ("if {a} < {b}", "return {a}"), "return {b}", "the smaller one of its two arguments"),
    ("spread", ("if {a} < {b}", "return {b} - {a}"), "return {a} - {b}", "the difference without its sign"),
)


def _symmetric(random: Random) -> Draft:
    name, (condition, early), late, told = random.choice(_SYMMETRIC)
    a, b = random.choice((("a", "b"), ("x", "y"), ("first", "second"), ("left", "right"), ("from_km", "to_km")))
    code = block(
        f"fn {name}({a}: int, {b}: int) to int",
        block(condition.format(a=a, b=b), early.format(a=a, b=b)),
        late.format(a=a, b=b),
    )
    header, label = _property(random, f"{name} does not mind the order")
    title = random.choice((f"{name}_is_symmetric", "order_does_not_matter", f"{name}_commutes"))
    checks = [f"assert({name}({a}, {b}) is {name}({b}, {a}))"]
    equal = one_in(random, 2)
    at_equal = "0" if name in ("distance", "spread") else a
    checks += [f"assert({name}({a}, {a}) is {at_equal})"] if equal else []
    details = (
        f"`{name}({a}: int, {b}: int) to int` returns {told}.",
        f"The property `{title}({a}: int, {b}: int)` says that swapping the arguments changes nothing"
        + (f" and that `{name}({a}, {a})` is `{at_equal}`." if equal else "."),
        label,
    )
    property_code = block(f"{header}\nfn {title}({a}: int, {b}: int) to Unit", *checks)
    return Draft(ask(random, f"a function `{name}` and a property for it", *details), (code, property_code))


def _round_trip(random: Random) -> Draft:
    factor, offset = random.randint(2, 60), random.randint(0, 90)
    there, back = random.choice((
        ("encode", "decode"), ("to_ticks", "from_ticks"), ("pack", "unpack"), ("to_code", "from_code"),
        ("scale_up", "scale_down"),
    ))  # fmt: skip
    plus, minus = (f" + {offset}", f" - {offset}") if offset else ("", "")
    first = block(f"fn {there}(n: int) to int", f"return n * {factor}{plus}")
    returned = f"(n{minus}) / {factor}" if offset else f"n / {factor}"
    second = block(f"fn {back}(n: int) to int", f"return {returned}")
    title = random.choice(("round_trip", f"{back}_undoes_{there}", "there_and_back"))
    header, label = _property(random, f"{back} undoes {there}")
    sample = random.randint(2, 400)
    pipe = one_in(random, 3)
    check = f"assert((n |> {there} |> {back}) is n)" if pipe else f"assert({back}({there}(n)) is n)"
    details = (
        f"`{there}(n: int) to int` multiplies by {factor}"
        + (f" and adds {offset}" if offset else "")
        + f", so `{there}({sample})` is {sample * factor + offset}; `{back}(n: int) to int` undoes that.",
        f"The property `{title}(n: int)` says that `{back}` after `{there}` gives `n` again"
        + (", written with the pipe operator." if pipe else "."),
        label,
    )
    property_code = block(f"{header}\nfn {title}(n: int) to Unit", check)
    what = f"two functions (`{there}` and `{back}`) and a property"
    return Draft(ask(random, what, *details), (first, second, property_code))


_LENGTH_LAWS: Final = (
    ("doubled", "values.map(n => n * {k})", "multiplies every element by {k}", "is"),
    ("shifted", "values.map(n => n + {k})", "adds {k} to every element", "is"),
    ("large_ones", "values.filter(n => n > {k})", "keeps the elements above {k}", "<="),
    ("small_ones", "values.filter(n => n < {k})", "keeps the elements below {k}", "<="),
    ("with_marker", "values.push({k})", "appends {k}", ">"),
)


def _length_law(random: Random) -> Draft:
    name, formula, told, sign = random.choice(_LENGTH_LAWS)
    k, items = random.randint(2, 90), random.choice(("values", "readings", "scores", "prices"))
    code = block(
        f"fn {name}(values: List[int]) to List[int]".replace("values", items),
        f"return {formula.format(k=k)}".replace("values", items),
    )
    law = {"is": "the length stays the same", "<=": "the result is never longer", ">": "the result is longer"}[sign]
    title = f"{name}_and_length"
    header, label = _property(random, f"{name}: {law}")
    details = (
        f"`{name}({items}: List[int]) to List[int]` {told.format(k=k)}.",
        f"The property `{title}({items}: List[int])` says that {law}, measured with `len`.",
        label,
    )
    check = f"assert(len({name}({items})) {sign} len({items}))"
    property_code = block(f"{header}\nfn {title}({items}: List[int]) to Unit", check)
    return Draft(ask(random, f"a list function `{name}` and a property", *details), (code, property_code))


FAMILIES: Final[tuple[Family, ...]] = (
    family("test/with_function", _with_test),
    family("test/given", _given),
    family("test/variant", _variant_test),
    family("forall/bounds", _bounds),
    family("forall/symmetric", _symmetric),
    family("forall/round_trip", _round_trip),
    family("forall/length_law", _length_law),
)
"""Tests beside the function, tests alone, and properties."""
