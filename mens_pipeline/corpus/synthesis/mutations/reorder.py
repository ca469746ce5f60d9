"""Reordering what may stand in any order: declarations, fields, variants."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.task import Change, described, listed, task_of, with_remark
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import DeclarationSpan, Mode
from mens_pipeline.language.ast.base import Node
from mens_pipeline.language.ast.data import Field, Table, TypeDef, Variant

_FEWEST_MEMBERS: Final = 2
_MEMBER_FRAMES: Final = (
    "Put the {noun} of {owner} in this Vox program in the order {order}:",
    "Reorder the {noun} of {owner} so that they stand in this order: {order}. Change nothing else.",
    "In the following Vox program, the {noun} of {owner} should come in the order {order}.",
)
_ALPHABET_FRAMES: Final = (
    "Sort the {noun} of {owner} in this Vox program by name, from A to Z:",
    "In the following Vox program, put the {noun} of {owner} in alphabetical order.",
)
_SWAP_FRAMES: Final = (
    "Swap {first} and {second} in this Vox program:",
    "In this Vox program, {second} should stand where {first} stands, and the other way round.",
)
_END_FRAMES: Final = (
    "Move {first} to the end of this Vox program:",
    "In the following Vox program, put {first} behind all other declarations.",
)
_START_FRAMES: Final = (
    "Move {first} to the top of this Vox program:",
    "In the following Vox program, put {first} in front of all other declarations.",
)


@dataclass(frozen=True, slots=True)
class _Order:
    """A new order of declarations: the declarations by their old places, and how to ask for it."""

    places: tuple[int, ...]
    frames: tuple[str, ...]
    first: DeclarationSpan
    second: DeclarationSpan


def reorder(program: Program, random: Random) -> Sample | None:
    """Make a task: a prompt to put fields, variants or declarations in another order, and the program in that order.

    Declarations only move past others that neither need them nor are needed by them; comments directly above a
    declaration move with it.

    Returns:
        The task; None when nothing may move.
    """
    owners = [place for place, span in enumerate(program.spans) if _are_free(program, _members(span))]
    orders = _orders(program)
    if owners and (not orders or random.random() < 0.5):  # noqa: PLR2004 - the toss of a coin
        change = _member_change(program, random.choice(owners), random)
    elif orders:
        change = _declaration_change(program, random.choice(orders), random)
    else:
        return None
    return task_of(program, change)


def _members(span: DeclarationSpan) -> tuple[Field | Variant, ...]:
    """Return the fields or variants of a type or table, whose order means nothing; none for other declarations."""
    declaration = span.declaration
    if isinstance(declaration, Table):
        return declaration.fields
    return (declaration.fields or declaration.variants) if isinstance(declaration, TypeDef) else ()


def _are_free(program: Program, members: Sequence[Field | Variant]) -> bool:
    """Return whether members can trade places: several, by different names, with no comment among or beside them."""
    if len({member.name for member in members}) < max(_FEWEST_MEMBERS, len(members)):
        return False
    end = program.source.find("\n", members[-1].end)
    return not any(token.kind == "COMMENT" and members[0].start < token.start < end for token in program.tokens)


def _member_change(program: Program, place: int, random: Random) -> Change:
    span = program.spans[place]
    members = _members(span)
    names = [member.name for member in members]
    wanted = sorted(names, key=lambda name: (name.lower(), name))
    frames: tuple[str, ...] = _ALPHABET_FRAMES
    if wanted == names or random.random() < 0.5:  # noqa: PLR2004 - the toss of a coin
        wanted = _shuffled(names, random)
        frames = _MEMBER_FRAMES
    noun = "fields" if isinstance(members[0], Field) else "variants"
    order = listed([f"`{name}`" for name in wanted])
    request = random.choice(frames).format(noun=noun, owner=described(span), order=order)
    by_name = {member.name: member for member in members}
    edits = _traded(program.source, members, [by_name[name] for name in wanted])
    return Change("reorder", span.construct.name, request, edits, _has_members(place, wanted))


def _has_members(place: int, wanted: list[str]) -> Callable[[Program], bool]:
    return lambda after: [member.name for member in _members(after.spans[place])] == wanted


def _shuffled(names: list[str], random: Random) -> list[str]:
    """Return another order of several different names."""
    wanted = list(names)
    while wanted == names:
        random.shuffle(wanted)
    return wanted


def _traded(source: str, places: Sequence[Node], items: Sequence[Node]) -> tuple[Edit, ...]:
    return tuple(
        Edit(place.start, place.end, source[item.start : item.end]) for place, item in zip(places, items, strict=True)
    )


def _declaration_change(program: Program, order: _Order, random: Random) -> Change:
    spans = program.spans
    request = random.choice(order.frames).format(first=described(order.first), second=described(order.second))
    if order.first.doc or order.second.doc:
        request = with_remark(request, "A comment above a declaration moves with it.")
    moved = [spans[place] for place in order.places]
    edits = tuple(
        Edit(old.doc_start, old.end, program.source[new.doc_start : new.end])
        for old, new in zip(spans, moved, strict=True)
    )
    wanted = [(span.construct, span.name) for span in moved]

    def is_done(after: Program) -> bool:
        return [(span.construct, span.name) for span in after.spans] == wanted

    return Change("reorder", order.first.construct.name, request, edits, is_done)


def _orders(program: Program) -> list[_Order]:
    """Return every swap and move that keeps what is needed above what needs it."""
    if program.mode is Mode.SCRIPT or not _stand_apart(program):
        return []
    needs = program.needs
    return [order for order in _permutations(program.spans) if _keeps(order.places, needs)]


def _permutations(spans: Sequence[DeclarationSpan]) -> Iterator[_Order]:
    all_places = range(len(spans))
    for i, j in combinations(all_places, 2):
        swapped = (*range(i), j, *range(i + 1, j), i, *range(j + 1, len(spans)))
        yield _Order(swapped, _SWAP_FRAMES, spans[i], spans[j])
    for i in all_places[:-2]:
        yield _Order((*range(i), *range(i + 1, len(spans)), i), _END_FRAMES, spans[i], spans[i])
    for j in all_places[2:]:
        yield _Order((j, *range(j), *range(j + 1, len(spans))), _START_FRAMES, spans[j], spans[j])


def _keeps(places: Sequence[int], needs: Sequence[frozenset[int]]) -> bool:
    """Return whether everything that was declared above its users still is."""
    where = {place: position for position, place in enumerate(places)}
    return all(
        where[needed] < where[user] for user, all_needed in enumerate(needs) for needed in all_needed if needed < user
    )


def _stand_apart(program: Program) -> bool:
    """Return whether descriptions of declarations differ, none is an import, and only blanks stand between them."""
    spans = program.spans
    gaps = [program.source[one.end : other.doc_start] for one, other in pairwise(spans)]
    edges = [program.source[: spans[0].doc_start], program.source[spans[-1].end :]]
    told = {described(span) for span in spans}
    has_import = any(span.construct.name == "import" for span in spans)
    is_blank = not "".join((*gaps, *edges)).strip()
    return is_blank and not has_import and len(told) == len(spans) and all("\n" in gap for gap in gaps)
