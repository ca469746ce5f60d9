"""Families of functions on lists of structs."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.families.draft import (
    Draft,
    block,
    example,
    family,
    record,
    sentence,
    some_fields,
    struct,
    with_record,
)
from mens_pipeline.corpus.synthesis.phrasing import ask, has_fields, one_in, pick, quoted, with_article
from mens_pipeline.corpus.synthesis.sample import Family
from mens_pipeline.corpus.synthesis.words import ADDITIVE_ENTITIES, ENTITIES, Entity, Field

_WIDTH: Final = 90
"""Characters of an expression that still stand on one line."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """A test of one record: its expression over a variable, and in words."""

    code: str
    told: str
    name: str


def _condition(random: Random, entity: Entity, variable: str) -> _Condition:
    flag, group = entity.flag, entity.group
    number = random.choice([field for field in entity.fields if field.type == "int"])
    limit = random.choice(number.examples)
    value = random.choice(group.examples)
    return random.choice(
        (
            _Condition(f"{variable}.{flag.name}", f"whose `{flag.name}` is true", flag.name),
            _Condition(f"not {variable}.{flag.name}", f"whose `{flag.name}` is false", f"not_{flag.name}"),
            _Condition(
                f"{variable}.{number.name} > {limit}", f"with `{number.name}` above {limit}", f"large_{number.name}"
            ),
            _Condition(
                f"{variable}.{number.name} <= {limit}",
                f"with `{number.name}` of at most {limit}",
                f"small_{number.name}",
            ),
            _Condition(
                f"{variable}.{group.name} is {value} and not {variable}.{flag.name}",
                f"whose `{group.name}` is {value} and whose `{flag.name}` is false",
                f"selected_{entity.collection}",
            ),
        )
    )


def _typed(random: Random, entity: Entity) -> tuple[str, str]:
    fields = some_fields(random, entity, entity.label, entity.group, entity.number, entity.flag)
    # A condition may look at any whole number of the entity.
    numbers = [field for field in entity.fields if field.type == "int"]
    chosen = tuple(field for field in entity.fields if field in fields or field in numbers)
    told = has_fields(random, sentence(with_article(f"`{entity.name}`")), chosen)
    return struct(entity.name, chosen), pick(random, told, f"The type `{entity.name}` comes with it. {told}")


def _total(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    number, items, item = entity.number.name, entity.collection, entity.short
    definition, told = _typed(random, entity)
    condition = _condition(random, entity, item)
    name = f"{random.choice(('total', 'sum_of'))}_{number}"
    step, what = f"total += {item}.{number}", f"the sum of `{number}` over all `{items}`"
    if one_in(random, 2):
        step, what = block(f"if {condition.code}", step), f"{what} {condition.told}"
    code = block(
        f"fn {name}({items}: List[{entity.name}]) to int",
        "let mut total = 0",
        block(f"for {item} in {items}", step),
        "return total",
    )
    details = (told, f"`{name}({items}: List[{entity.name}]) to int` returns {what}.")
    what = f"a function `{name}` and its type `{entity.name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (definition, code))


def _count(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    items, item = entity.collection, entity.short
    definition, told = _typed(random, entity)
    condition = _condition(random, entity, item)
    name = f"{random.choice(('count', 'num'))}_{condition.name}"
    by_filter = one_in(random, 2)
    loop = (
        "let mut found = 0",
        block(f"for {item} in {items}", block(f"if {condition.code}", "found += 1")),
        "return found",
    )
    body = (f"return len({items}.filter({item} => {condition.code}))",) if by_filter else loop
    code = block(f"fn {name}({items}: List[{entity.name}]) to int", *body)
    details = (
        told,
        f"`{name}({items}: List[{entity.name}]) to int` counts the {entity.plural} {condition.told}.",
        "Use `filter`." if by_filter else "Use a loop.",
    )
    what = f"a type `{entity.name}` and a function `{name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (definition, code))


def _labels(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    items, item, label = entity.collection, entity.short, entity.label
    definition, told = _typed(random, entity)
    condition = _condition(random, entity, item)
    separator = random.choice(("", "", ", ", "; ", " and "))
    several = label.name if label.name.endswith("s") else f"{label.name}s"
    name = f"{several}_of_{condition.name}" if one_in(random, 2) else f"{label.name}_list"
    chain = f"{items}.filter({item} => {condition.code}).map({item} => {item}.{label.name})"
    returns = "str" if separator else "List[str]"
    ending = f'.join("{separator}")' if separator else ""
    split = len(chain + ending) > _WIDTH or one_in(random, 3)
    body = (
        (
            f"let chosen = {items}.filter({item} => {condition.code})",
            f"return chosen.map({item} => {item}.{label.name}){ending}",
        )
        if split
        else (f"return {chain}{ending}",)
    )
    code = block(f"fn {name}({items}: List[{entity.name}]) to {returns}", *body)
    joined = f', joined with "{separator}"' if separator else " as a list"
    details = (
        told,
        (
            f"`{name}` takes `{items}: List[{entity.name}]` and returns the `{label.name}` of every {entity.noun} "
            f"{condition.told}{joined}; the return type is `{returns}`."
        ),
    )
    what = f"a function `{name}` on a list of {entity.plural}"
    return Draft(ask(random, what, *details, domain=entity.domain), (definition, code))


def _find(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    items, item, label = entity.collection, entity.short, entity.label
    definition, told = _typed(random, entity)
    shown = random.choice((entity.group, entity.number))
    whole = one_in(random, 2)
    name = f"find_{item}" if whole else f"{shown.name}_of"
    returned = entity.name if whole else shown.type
    value = item if whole else f"{item}.{shown.name}"
    wanted = "wanted" if one_in(random, 2) else label.name
    code = block(
        f"fn {name}({items}: List[{entity.name}], {wanted}: str) to Option[{returned}]",
        block(f"for {item} in {items}", block(f"if {item}.{label.name} is {wanted}", f"return Some({value})")),
        "return None",
    )
    what_found = f"the first {entity.noun}" if whole else f"the `{shown.name}` of the first {entity.noun}"
    details = (
        told,
        (
            f"`{name}({items}: List[{entity.name}], {wanted}: str) to Option[{returned}]` returns {what_found} whose "
            f"`{label.name}` equals `{wanted}`, or `None`."
        ),
    )
    return Draft(ask(random, f"a look-up function `{name}`", *details, domain=entity.domain), (definition, code))


def _best(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    items, item, number = entity.collection, entity.short, entity.number.name
    definition, told = _typed(random, entity)
    most = one_in(random, 2)
    name = f"{'most' if most else 'least'}_{number}"
    code = block(
        f"fn {name}({items}: List[{entity.name}]) to Option[{entity.name}]",
        block(f"if len({items}) is 0", "return None"),
        f"let mut best = {items}[0]",
        block(
            f"for {item} in {items}",
            block(f"if {item}.{number} {'>' if most else '<'} best.{number}", f"best = {item}"),
        ),
        "return Some(best)",
    )
    details = (
        told,
        (
            f"`{name}({items}: List[{entity.name}]) to Option[{entity.name}]` returns the {entity.noun} with the "
            f"{'largest' if most else 'smallest'} `{number}`, the first one if several share it, and `None` for an "
            f"empty "
            "list."
        ),
    )
    what = f"{with_article(entity.noun)} type and a function `{name}`"
    return Draft(ask(random, what, *details, domain=entity.domain), (definition, code))


def _line(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    item, label, group, number = entity.short, entity.label, entity.group, entity.number
    definition, told = _typed(random, entity)
    first, middle = random.choice(((", ", ": "), (" (", "), "), (" | ", " | "), (" - ", ": ")))
    second = random.choice((group, entity.flag))
    shown = f"{item}.{second.name}" if second.type == "str" else f'if {item}.{second.name} {{ "yes" }} else {{ "no" }}'
    name = f"{random.choice(('describe', 'line_for', 'caption_of'))}_{item}"
    lines = () if second.type == "str" else (f"let answer = {shown}",)
    piece = f"{item}.{second.name}" if second.type == "str" else "answer"
    code = block(
        f"fn {name}({item}: {entity.name}) to str",
        *lines,
        f'return {item}.{label.name} + "{first}" + {piece} + "{middle}" + str({item}.{number.name})',
    )
    says = f"`{second.name}`" if second.type == "str" else f'"yes" or "no" for `{second.name}`'
    details = (
        told,
        (
            f'`{name}({item}: {entity.name}) to str` joins `{label.name}`, the text "{first}", {says}, the text '
            f'"{middle}" '
            f"and `{number.name}` to one line."
        ),
    )
    return Draft(
        ask(random, f"a function `{name}` for one line of text", *details, domain=entity.domain), (definition, code)
    )


def _changed(random: Random) -> Draft:
    entity = random.choice(ENTITIES)
    item, flag, number = entity.short, entity.flag, entity.number
    fields = some_fields(random, entity, entity.label, number, flag)
    target: Field = random.choice((flag, number))
    value = target.name if target is number else random.choice(target.examples)
    name = {"true": f"marked_{target.name}", "false": f"unmarked_{target.name}"}.get(value, f"with_{target.name}")
    params = f"{item}: {entity.name}" + (f", {target.declaration}" if target is number else "")
    copied = [(f.name, value if f is target else f"{item}.{f.name}") for f in fields]
    returned = with_record("return ", copied)
    code = block(f"fn {name}({params}) to {entity.name}", returned)
    told_value = "the given value" if target is number else value
    details = (
        has_fields(random, sentence(with_article(f"`{entity.name}`")), fields),
        (
            f"`{name}({params}) to {entity.name}` returns a copy of `{item}` in which `{target.name}` is "
            f"{told_value} and "
            "everything else is unchanged."
        ),
    )
    what = f"a type `{entity.name}` and a function `{name}` that copies it"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code))


def _grouped(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    items, item, group, number = entity.collection, entity.short, entity.group.name, entity.number.name
    definition, told = _typed(random, entity)
    name = f"{number}_by_{group}"
    one = random.choice(("wanted", group))
    code = block(
        f"fn {name}({items}: List[{entity.name}], {one}: str) to int",
        "let mut total = 0",
        block(
            f"for {item} in {items}",
            block(f"if {item}.{group} isnt {one}", "continue"),
            f"total += {item}.{number}",
        ),
        "return total",
    )
    details = (
        told,
        (
            f"`{name}({items}: List[{entity.name}], {one}: str) to int` adds up the `{number}` of those "
            f"{entity.plural} whose "
            f"`{group}` equals `{one}`, and skips the others with `continue`."
        ),
    )
    return Draft(ask(random, f"a function `{name}`", *details, domain=entity.domain), (definition, code))


def _sample_test(random: Random) -> Draft:
    entity = random.choice(ADDITIVE_ENTITIES)
    items, item, number, flag = entity.collection, entity.short, entity.number.name, entity.flag.name
    fields = (entity.label, entity.number, entity.flag)
    wanted, other = random.sample(("true", "false"), 2)
    rows = [{**example(random, fields), flag: value} for value in (wanted, other, wanted)[: random.randint(2, 3)]]
    total = sum(int(row[number]) for row in rows if row[flag] == wanted)
    name = f"{number}_{flag if wanted == 'true' else f'not_{flag}'}"
    check = f"{item}.{flag}" if wanted == "true" else f"not {item}.{flag}"
    code = block(
        f"fn {name}({items}: List[{entity.name}]) to int",
        "let mut total = 0",
        block(f"for {item} in {items}", block(f"if {check}", f"total += {item}.{number}")),
        "return total",
    )
    test = block(
        f"@test\nfn adds_up_{number}() to Unit",
        block_list(f"let {items} =", [record(row.items()) for row in rows]),
        f"assert({name}({items}) is {total})",
        f"assert({name}([]) is 0)",
    )
    details = (
        has_fields(random, sentence(with_article(f"`{entity.name}`")), fields),
        f"`{name}({items}: List[{entity.name}]) to int` adds up `{number}` where `{flag}` is {wanted}.",
        (
            f"The test `adds_up_{number}` uses {quoted([record(row.items()) for row in rows])}, which give {total}, "
            "and the empty list, which gives 0."
        ),
    )
    what = f"a function `{name}` with a test"
    return Draft(ask(random, what, *details, domain=entity.domain), (struct(entity.name, fields), code, test))


def block_list(head: str, items: list[str]) -> str:
    """Format a list literal with one element a line.

    Args:
        head: What stands before it.
        items: Its elements.
    """
    return "\n".join([f"{head} [", *(f"    {item}," for item in items), "]"])


_WRITERS: Final[tuple[tuple[str, Callable[[Random], Draft]], ...]] = (
    ("function/record_total", _total),
    ("function/record_count", _count),
    ("function/record_labels", _labels),
    ("function/record_find", _find),
    ("function/record_best", _best),
    ("function/record_line", _line),
    ("function/record_copy", _changed),
    ("function/record_group", _grouped),
    ("test/records", _sample_test),
)

FAMILIES: Final[tuple[Family, ...]] = tuple(family(name, write) for name, write in _WRITERS)
"""Functions on the structs of an application."""
