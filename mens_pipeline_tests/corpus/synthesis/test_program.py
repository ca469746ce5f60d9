"""Accepted programs with what is asked of them."""

import pytest

from mens_pipeline.corpus.synthesis.program import MAX_LINES, read_changed, read_program
from mens_pipeline.language import Mode
from mens_pipeline_tests.corpus.rows import program_of

_SOURCE = """
@table type Task { title: str }

fn count(tasks: List[Task]) to int { return len(tasks) }

fn alone() to int { return 1 }

@test
fn counts() to Unit { assert(count([]) is 0) }
"""


def test_a_program_knows_its_declarations_and_tokens() -> None:
    """Blank lines at the ends are gone, so that places are those of the text that is shown."""
    program = read_program(_SOURCE, Mode.SOURCE, "a.vox")

    assert program is not None
    assert program.source == _SOURCE.strip("\n") + "\n"
    assert [span.name for span in program.spans] == ["Task", "count", "alone", "counts"]
    assert "".join(token.text for token in program.tokens) == program.source
    assert {"Task", "title", "assert"} <= program.identifiers
    assert "fn" not in program.identifiers
    assert (program.mode, program.origin, program.warnings, program.is_short) == (Mode.SOURCE, "a.vox", 0, True)
    assert [token.kind for token in program.significant[:3]] == ["@table", "type", "TYPEIDENT"]


@pytest.mark.parametrize("source", ["", "// nothing\n", "fn f( { }\n", "state n = 0\n"])
def test_what_is_rejected_or_declares_nothing_is_no_program(source: str) -> None:
    """There is nothing to change in it."""
    assert read_program(source) is None


def test_the_mode_decides_how_a_program_is_read() -> None:
    """A reactive member at the top level is for `.vox.ui` files."""
    assert [span.construct.name for span in program_of("state n = 0", Mode.UI).spans] == ["reactive_module"]


def test_places_belong_to_declarations() -> None:
    """Between two declarations the later one counts, behind all the last one."""
    program = program_of("fn a() { }\n\nfn b() { }\n// end")

    assert [program.place_at(offset) for offset in (0, 9, 10, 11, 15, 40)] == [0, 0, 1, 1, 1, 1]


def test_needs_go_from_a_declaration_to_those_it_names() -> None:
    """Tests need what they call and all that needs in turn."""
    program = program_of(_SOURCE)

    assert program.needs == (frozenset(), frozenset((0,)), frozenset(), frozenset((1,)))
    assert program.tested == {0, 1, 3}


def test_a_program_is_short_up_to_a_number_of_lines() -> None:
    """Longer ones make poor tasks."""
    assert program_of("fn a() { }" + "\n" * (MAX_LINES - 1) + "fn b() { }").is_short
    assert not program_of("fn a() { }" + "\n" * MAX_LINES + "fn b() { }").is_short


def test_a_changed_program_is_accepted_different_and_no_worse() -> None:
    """The front end has the last word, warnings included."""
    program = read_program("fn f() to int { return 1 }", Mode.SOURCE, "a.vox")
    assert program is not None
    changed = read_changed(program, "fn f() to int { return 2 }")

    assert changed is not None
    assert (changed.source, changed.mode, changed.origin) == ("fn f() to int { return 2 }\n", Mode.SOURCE, "a.vox")
    assert read_changed(program, "fn f() to int { return 1 }\n\n") is None
    assert read_changed(program, "fn f() to int { return }}") is None
    assert read_changed(program, "fn f() -> int { return 2 }") is None
