"""Families of types: structs, enumerations, sum types and recursive ones."""

from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import (
    Draft,
    block,
    family,
    sentence,
    snake,
    some_fields,
    struct,
    with_record,
)
from mens_pipeline.corpus.synthesis.families.variants import CYCLES, choice_type, enum_of, sum_type_of
from mens_pipeline.corpus.synthesis.phrasing import (
    ask,
    counted,
    described_fields,
    has_fields,
    listed,
    one_in,
    pick,
    quoted,
    with_article,
)
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ENTITIES


def _struct(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, most=7)
    public = one_in(random, 4)
    told = pick(
        random,
        has_fields(random, "It", fields),
        f"Its {counted(len(fields), 'field')} are {described_fields(random, fields)}.",
        f"Fields: {described_fields(random, fields)}.",
    )
    what = pick(
        random, f"a struct type `{entity.name}`", f"a type `{entity.name}`", f"a record type called `{entity.name}`"
    )
    details = (told, "It is public." if public else "")
    return Draft(
        ask(random, what, *details, domain=entity.domain),
        (struct(entity.name, fields, "pub type" if public else "type"),),
    )


def _optional(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.group, most=6)
    maybe = random.sample(fields[1:], random.randint(1, min(2, len(fields) - 1)))
    lines = [f"{f.name}: Option[{f.type}]" if f in maybe else f.declaration for f in fields]
    missing = [f.name for f in fields if f in maybe]
    told = f"Fields: {quoted(lines)}."
    if one_in(random, 2):
        told = (
            f"{has_fields(random, 'It', fields)} {sentence(quoted(missing))} may be missing, so "
            f"{'it is an option' if len(missing) == 1 else 'they are options'}."
        )
    what = f"a type `{entity.name}` with optional fields"
    return Draft(ask(random, what, told, domain=entity.domain), (block(f"type {entity.name}", *lines),))


def _nested(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, most=5)
    outer, first = random.choice(
        (
            (f"{entity.name}List", "title: str"),
            (f"{entity.name}Page", "page: int"),
            (f"{entity.name}Report", "made_on: str"),
            (f"{entity.name}Export", "file_name: str"),
            (f"{entity.name}Group", "name: str"),
        )
    )
    last = random.choice(("", "total: int", "complete: bool", "note: Option[str]"))
    lines = [first, f"{entity.collection}: List[{entity.name}]", *([last] if last else [])]
    details = (has_fields(random, f"`{entity.name}`", fields), f"`{outer}` has the fields {quoted(lines)}.")
    what = pick(
        random,
        f"two types (`{entity.name}` and `{outer}`)",
        f"a type `{entity.name}` and a type `{outer}` that holds several",
    )
    return Draft(
        ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), block(f"type {outer}", *lines))
    )


def _enum(random: Random) -> Draft:
    name, variants = enum_of(random)
    public = one_in(random, 4)
    code = choice_type(name, list(variants), "pub type" if public else "type")
    told = pick(
        random,
        f"The variants are {quoted(variants)}.",
        f"It is one of {quoted(variants)}.",
        f"Its variants, in this order: {quoted(variants)}.",
    )
    details = (told, "None of them carries a value." if one_in(random, 3) else "", "Make it public." if public else "")
    what = pick(random, f"a type `{name}`", f"an enumeration `{name}`", f"a sum type `{name}`")
    return Draft(ask(random, what, *details), (code,))


def _enum_next(random: Random) -> Draft:
    name, variants = enum_of(random)
    variable = snake(name).rpartition("_")[2]
    wraps = (name, variants) in CYCLES
    function = random.choice((f"next_{variable}", f"after_{variable}", f"{variable}_after"))
    followers = [*variants[1:], variants[0] if wraps else variants[-1]]
    arms = [f"{a} => {b}" for a, b in zip(variants, followers, strict=True)]
    code = block(f"fn {function}({variable}: {name}) to {name}", block(f"return match {variable}", *arms))
    end = f"after `{variants[-1]}` comes `{variants[0]}` again" if wraps else f"`{variants[-1]}` stays as it is"
    details = (
        f"The variants of `{name}` are {quoted(variants)}.",
        f"`{function}({variable}: {name}) to {name}` returns the one that follows in this order; {end}.",
    )
    what = f"a type `{name}` and a function `{function}`"
    return Draft(ask(random, what, *details), (choice_type(name, list(variants)), code))


def _sum(random: Random) -> Draft:
    chosen = sum_type_of(random)
    told = pick(
        random,
        f"Its variants are {chosen.told}.",
        f"It is either {listed([f'`{v.declaration}`' for v in chosen.variants]).replace(' and ', ' or ')}.",
        f"The variants: {chosen.told}.",
    )
    return Draft(
        ask(random, pick(random, f"a sum type `{chosen.name}`", f"a type `{chosen.name}`"), told), (chosen.code,)
    )


def _sum_text(random: Random) -> Draft:
    chosen = sum_type_of(random)
    function = random.choice(("describe", "caption", f"{chosen.variable}_text"))
    details = (
        f"The variants of `{chosen.name}` are {chosen.told}.",
        (
            f"`{function}({chosen.variable}: {chosen.name}) to str` matches on it: "
            f"{listed([variant.told for variant in chosen.variants])}."
        ),
    )
    what = f"a sum type `{chosen.name}` and a function `{function}`"
    return Draft(ask(random, what, *details), (chosen.code, chosen.describe(function)))


def _maker(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    fields = some_fields(random, entity, entity.label, entity.number, most=4)
    label, number = entity.label, entity.number
    name = random.choice((f"new_{entity.variable}", f"make_{entity.variable}", f"checked_{entity.variable}"))
    blank = f"{label.words} is missing"
    checks = [block(f"if len({label.name}.trim()) is 0", f'return Error("{blank}")')]
    told = [f'a blank `{label.name}` is `Error("{blank}")`']
    if one_in(random, 2) and number.name != "celsius":
        low = f"{number.words} must not be negative"
        checks.append(block(f"if {number.name} < 0", f'return Error("{low}")'))
        told.append(f'a negative `{number.name}` is `Error("{low}")`')
    taken = ", ".join(field.declaration for field in fields)
    returned = with_record("return Ok(", [(field.name, field.name) for field in fields], ")")
    code = block(f"fn {name}({taken}) to Result[{entity.name}]", *checks, returned)
    details = (
        has_fields(random, f"`{entity.name}`", fields),
        (
            f"`{name}` takes all of them in this order and returns `Result[{entity.name}]`: {', '.join(told)}, "
            f"anything else is "
            "`Ok` with the record."
        ),
    )
    what = f"{with_article(entity.noun)} type with a checking constructor function"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code))


_TREES: Final = (
    ("Tree", "Leaf", "Node", "value"),
    ("Heap", "Nothing", "Branch", "weight"),
    ("FolderTree", "NoFolder", "Folder", "bytes"),
    ("BracketTree", "Bye", "Pairing", "points"),
    ("SearchTree", "Tip", "Fork", "number"),
)
_FOLDS: Final = (
    ("total", "0", "{value} + {f}(left) + {f}(right)", "the sum of all `{value}` numbers", True),
    ("size", "0", "1 + {f}(left) + {f}(right)", "how many `{node}` variants it contains", False),
    ("leaves", "1", "{f}(left) + {f}(right)", "how many `{leaf}` variants it contains", False),
)


def _tree(random: Random) -> Draft:
    name, leaf, node, value = random.choice(_TREES)
    fold, zero, formula, told, uses_value = random.choice(_FOLDS)
    function = f"{fold}_of" if one_in(random, 2) else f"tree_{fold}"
    variable = random.choice(("tree", "root", "branches"))
    definition = choice_type(name, [leaf, f"{node}(left: {name}, {value}: int, right: {name})"])
    pattern = f"{node}(left, {value if uses_value else '_'}, right)"
    arms = (f"{leaf} => {zero}", f"{pattern} => {formula.format(value=value, f=function)}")
    code = block(f"fn {function}({variable}: {name}) to int", block(f"return match {variable}", *arms))
    details = (
        f"`{name}` is `{leaf}` or `{node}(left: {name}, {value}: int, right: {name})`.",
        (
            f"`{function}({variable}: {name}) to int` returns {told.format(value=value, node=node, leaf=leaf)}, by "
            f"recursion."
        ),
    )
    return Draft(ask(random, f"a recursive type `{name}` and a function `{function}`", *details), (definition, code))


def _entity_with_enum(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    name = f"{entity.name}{random.choice(('Level', 'Group', 'Mark'))}"
    names = random.choice(
        (("Low", "Middle", "High"), ("Minor", "Major"), ("Green", "Amber", "Red"), ("First", "Second", "Third"))
    )
    fields = some_fields(random, entity, entity.label, most=4)
    member = snake(name).rpartition("_")[2]
    lines = [*(field.declaration for field in fields), f"{member}: {name}"]
    details = (
        f"`{name}` has the variants {quoted(names)}.",
        f"`{entity.name}` has the fields {quoted(lines)}.",
    )
    what = f"a sum type `{name}` and a struct `{entity.name}` that uses it"
    return Draft(
        ask(random, what, *details, domain=entity.domain),
        (choice_type(name, list(names)), block(f"type {entity.name}", *lines)),
    )


FAMILIES: Final[tuple[Family, ...]] = (
    family("type/struct", _struct),
    family("type/optional", _optional),
    family("type/nested", _nested),
    family("type/enum", _enum),
    family("type/enum_next", _enum_next),
    family("type/sum", _sum),
    family("type/sum_text", _sum_text),
    family("type/maker", _maker),
    family("type/tree", _tree),
    family("type/level", _entity_with_enum),
)
"""Types alone and with a function that takes them apart."""
