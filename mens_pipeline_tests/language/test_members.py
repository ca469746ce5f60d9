"""The members that may stand behind a dot, known while the program is still being written."""

from itertools import pairwise

import pytest

from mens_pipeline.language import Mode, mode_of, tokenize
from mens_pipeline.language.semantics import members_after, members_at
from mens_pipeline_tests.language.examples import parse, right_programs

_POINT = "type P { x: int, near: Option[P] }\n"


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("fn f(s: str) to int {\n    return s.", {"len", "trim"}),
        (f"{_POINT}fn f(p: P) to int {{ let q = p\n    return q.", {"x", "near"}),
        (f"{_POINT}fn f(ps: List[P]) {{ for p in ps {{ print(p.", {"x", "near"}),
        ("fn f() { let n = std.", {"regex", "fs"}),
        ("fn f() { let n = std.regex.", {"compile"}),
        ("@table type Note { title: str }\nfn f() { db.Note.", {"insert", "filter"}),
        ("actor A { on ask(n: int) to int { return n } }\nfn f() { let a = spawn(A)\n    a.", {"ask"}),
    ],
    ids=["library", "struct", "element", "std", "namespace", "table", "actor"],
)
def test_members_of_a_known_value(text: str, some: set[str]) -> None:
    """Fields and methods; a name that none of them has is none of them."""
    known = members_after(text)

    assert known is not None
    assert some <= known
    assert "size_of" not in known


@pytest.mark.parametrize(
    "text",
    [
        "fn f(p: Later) { return p.",
        "fn f() { return later().",
        "fn f() { db.",
        "import ledger.",
        "import ledger\nfn f() { ledger.",
        "fn f(row: Json) { row.",
        "fn f() { let a = 1 }}.",
    ],
    ids=["type to come", "function to come", "table to come", "path", "other file", "open", "dead"],
)
def test_what_is_not_known_may_have_any_member(text: str) -> None:
    """What is declared later, or in another file."""
    assert members_after(text) is None


def test_a_value_without_members_has_none() -> None:
    """A variant is looked into with `match`."""
    assert members_after("type S = | A | B\nfn f(s: S) { s.") == frozenset()


def test_it_is_enough_to_complete_what_is_unsettled() -> None:
    """The rest was read before, and its declarations still count."""
    unsettled = "fn f(p: P) { p."

    assert members_after(_POINT + unsettled, unsettled=unsettled) == members_after(_POINT + unsettled)


def test_members_are_told_where_one_is_missing() -> None:
    """And nowhere else."""
    source = f"{_POINT}fn f(p: P) to int {{ return p.y + p.x }}"
    module = parse(source)

    assert members_at(module, source, source.index("y +")) == frozenset(("x", "near"))
    assert members_at(module, source, source.index("x }")) is None


def _refused(programs: dict[str, str]) -> tuple[int, list[str]]:
    """How many members of programs are known where they stand, and which would be refused."""
    num_known, refused = 0, []
    for name, source in programs.items():
        for dot, word in pairwise(tokenize(source)):
            if dot.text == "." and word.text.isidentifier():
                known = members_after(source[: dot.end], mode_of(name))
                num_known += known is not None
                if known is not None and word.text not in known:
                    refused.append(f"{name}: {source[max(0, dot.end - 40) : word.end]}")
    return num_known, refused


def test_right_programs_can_be_written_member_by_member() -> None:
    """Every tenth of them; the slow test takes all."""
    programs = right_programs()
    num_known, refused = _refused({name: programs[name] for name in sorted(programs)[::10]})

    assert (num_known > 50, refused) == (True, [])


@pytest.mark.nightly
def test_all_right_programs_can_be_written_member_by_member() -> None:
    """Golden programs and references."""
    num_known, refused = _refused(right_programs())

    assert (num_known > 1_500, refused) == (True, [])


def test_members_of_a_reactive_file_are_read_in_its_mode() -> None:
    """State stands at its top level."""
    known = members_after('state name: str = "a"\nderived size = name.', Mode.UI)

    assert known is not None
    assert "len" in known
