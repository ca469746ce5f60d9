"""What a model wrote against what it was asked."""

import pytest

from mens_pipeline.corpus.evolution.evolve import make_row
from mens_pipeline.corpus.evolution.examine import (
    MAX_INSTRUCTION,
    Attempt,
    Reading,
    content_refusal,
    form_refusal,
    instruction_in,
    instruction_refusal,
    names_in,
    refusal_of_tests,
)
from mens_pipeline.corpus.evolution.operators import Evolution, Operator
from mens_pipeline.corpus.evolution.requests import Request
from mens_pipeline.corpus.schema.reasons import EvolutionDrop
from mens_pipeline.corpus.schema.records import MAX_TEXT, SourceKind, TrainingPair
from mens_pipeline.language import Mode, analyze
from mens_pipeline.language.interpreter import Limits, run_tests
from mens_pipeline_tests.corpus.evolution.scripted import Scripted, good, read
from mens_pipeline_tests.corpus.rows import pair_at

_PARENT = pair_at(
    "a.vox", "Write a function `add` in Vox.", "fn add(a: int, b: int) to int {\n    return a + b\n}\n"
).model_copy(update={"category": "function"})
_INSTRUCTION = "Write a function `clamp` in Vox that keeps a weight between two bounds."
_PROGRAM = "fn clamp(a: int, low: int) to int {\n    if a < low {\n        return low\n    }\n    return a\n}\n"


_DEEPEN = Evolution(Operator.DEEPEN)


def _attempt(
    program: str = _PROGRAM,
    instruction: str = _INSTRUCTION,
    evolution: Evolution = _DEEPEN,
    parent: TrainingPair = _PARENT,
) -> Attempt:
    return Attempt(parent, evolution, 2, Request("k", "s", "p"), instruction, program)


@pytest.mark.parametrize(
    ("text", "instruction"),
    [
        ("  Write it.\n", "Write it."),
        ("Request: Write it.", "Write it."),
        ("**New request:** Write it.", "Write it."),
        ("The rewritten request**: Write it.", "Write it."),
        ('"Write it."', "Write it."),
        ("\u201cWrite it.\u201d", "Write it."),
        ('"', '"'),
        ("Request handling in Vox, please.", "Request handling in Vox, please."),
    ],
)
def test_a_request_is_taken_out_of_label_and_quotes(text: str, instruction: str) -> None:
    """Models add them whatever they are told."""
    assert instruction_in(text) == instruction


@pytest.mark.parametrize(
    ("text", "stopped", "reason"),
    [
        (_INSTRUCTION, True, None),
        ("", True, EvolutionDrop.INSTRUCTION_EMPTY),
        ("\ufffd x, 12 34 ... go", True, EvolutionDrop.INSTRUCTION_EMPTY),
        ("I cannot help with that.", True, EvolutionDrop.INSTRUCTION_REFUSED),
        (_INSTRUCTION, False, EvolutionDrop.INSTRUCTION_CUT),
        ("word " * MAX_INSTRUCTION, True, EvolutionDrop.INSTRUCTION_TOO_LONG),
        ("Here is a harder version of it: clamp a weight.", True, EvolutionDrop.INSTRUCTION_LEAKS),
        ("Write ```fn f() { }``` in Vox.", True, EvolutionDrop.INSTRUCTION_HOLDS_CODE),
        ("fn f() { }", True, EvolutionDrop.INSTRUCTION_HOLDS_CODE),
        ("Write a FUNCTION `add` in Vox.", True, EvolutionDrop.SAME_INSTRUCTION),
        ("In Vox write a function `add`.", True, EvolutionDrop.SAME_INSTRUCTION),
        ("Write a function `add`.", True, EvolutionDrop.SAME_INSTRUCTION),
    ],
)
def test_a_request_that_is_not_worth_answering_is_not_answered(
    text: str,
    stopped: bool,  # noqa: FBT001 - a case of the table
    reason: EvolutionDrop | None,
) -> None:
    """One case a reason."""
    refusal = instruction_refusal(instruction_in(text), _PARENT, read(text), stopped=stopped)

    assert (refusal and refusal[0]) == reason


def test_words_of_the_seed_do_not_leak() -> None:
    """A seed may itself speak of a rewriting."""
    parent = _PARENT.model_copy(update={"prompt": "Write a function `rewrite` in Vox: rewriting of paths."})
    text = "Write a function `rewrite` in Vox: rewriting of paths, without loops, for at most ten of them."

    assert instruction_refusal(text, parent, read(text), stopped=True) is None


@pytest.mark.parametrize(
    ("program", "stopped", "reason"),
    [
        (_PROGRAM, True, None),
        (" \n", True, EvolutionDrop.REPLY_EMPTY),
        ("I cannot do that.", True, EvolutionDrop.REPLY_REFUSED),
        (_PROGRAM, False, EvolutionDrop.REPLY_CUT),
        (_PROGRAM + "// " + "x" * MAX_TEXT, True, EvolutionDrop.REPLY_TOO_LONG),
        ("fn f(", True, EvolutionDrop.REJECTED),
        ("// nothing\n", True, EvolutionDrop.REJECTED),
        (f"// TODO\n{_PROGRAM}", True, EvolutionDrop.STUB),
        (f"// I cannot say more.\n{_PROGRAM}", True, None),
    ],
)
def test_an_answer_that_is_no_program_is_dropped(
    program: str,
    stopped: bool,  # noqa: FBT001 - a case of the table
    reason: EvolutionDrop | None,
) -> None:
    """One case a reason; a program that says something odd in a comment is a program."""
    refusal = form_refusal(_attempt(program), read(program), stopped=stopped)

    assert (refusal and refusal[0]) == reason


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (_attempt(), None),
        (_attempt(f"// {_INSTRUCTION}\n{_PROGRAM}"), EvolutionDrop.COPIES_INSTRUCTION),
        (_attempt("type Clamp { low: int }"), EvolutionDrop.WITHOUT_CONSTRUCT),
        (_attempt(evolution=Evolution(Operator.HARDER_CONSTRUCT, "table")), EvolutionDrop.WITHOUT_CONSTRUCT),
        (_attempt(_PROGRAM.replace("clamp", "other")), EvolutionDrop.WITHOUT_NAME),
        (_attempt(evolution=Evolution(Operator.CONTRACTS)), EvolutionDrop.WITHOUT_GOAL),
        (
            _attempt("fn clamp(x: int, y: int) to int {\n    // The sum.\n    return x + y\n}\n"),
            EvolutionDrop.SAME_AS_PARENT,
        ),
    ],
)
def test_a_program_that_is_not_what_was_asked_for_or_not_new_is_dropped(
    attempt: Attempt, reason: EvolutionDrop | None
) -> None:
    """One case a reason; other names and comments make nothing new."""
    module = analyze(attempt.program, attempt.mode).module
    assert module is not None
    refusal = content_refusal(attempt, module)

    assert (refusal and refusal[0]) == reason


def test_names_are_those_behind_the_noun() -> None:
    """Other things in backticks are types, fields or what is there already."""
    request = "Write a function `clamp(a: int)` or a function called `bound` on the table `T`, with `int`."

    assert names_in(request, "function") == {"clamp", "bound"}
    assert names_in(request, "table") == {"T"}
    assert names_in(request, "workflow") == set()


_TEST = "@test\nfn t() {{\n    {}\n}}\n"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (_PROGRAM, False),
        (_PROGRAM + _TEST.format("assert_eq(clamp(1, 3), 3)"), True),
        (_PROGRAM + _TEST.format("assert_eq(clamp(1, 3), 1)"), EvolutionDrop.TESTS_FAILED),
        (_PROGRAM + _TEST.format("assert_eq(nobody(1), 1)"), EvolutionDrop.TESTS_FAILED),
        (_PROGRAM + _TEST.format('let x = fs.read_text("a")'), EvolutionDrop.TESTS_NOT_RUN),
        (_PROGRAM + _TEST.format("while true { }"), EvolutionDrop.TESTS_NOT_RUN),
        (_PROGRAM + _TEST.format("let x = clamp(1, 3)"), EvolutionDrop.TESTS_EMPTY),
    ],
)
def test_tests_are_run(program: str, found: EvolutionDrop | bool) -> None:  # noqa: FBT001 - a case of the table
    """They pass, fail, touch the outside, never end, or prove nothing."""
    limits = Limits(max_steps=10_000)
    refusal = refusal_of_tests(program, Mode.SOURCE, lambda text, mode: run_tests(text, limits, mode=mode))

    assert (refusal if isinstance(refusal, bool) else refusal[0]) == found


def test_a_program_that_cannot_be_run_as_a_whole_is_not_trusted() -> None:
    """Larger than the sandbox takes."""
    program = _PROGRAM + _TEST.format("assert(true)")
    refusal = refusal_of_tests(
        program, Mode.SOURCE, lambda text, mode: run_tests(text, Limits(max_source=10), mode=mode)
    )

    assert not isinstance(refusal, bool)
    assert refusal[0] is EvolutionDrop.TESTS_NOT_RUN


def test_members_of_an_interface_stay_such() -> None:
    """The program is read as that of its parent, and the row says so by its path."""
    members = "state count: int = 0\nderived big = count > 9\n"
    parent = pair_at("a.vox.ui", "Write the reactive members.", members).model_copy(
        update={"category": "reactive_module"}
    )
    program = "state open: bool = false\nstate n: int = 1\n\non mount: {\n    n = 2\n}\n"
    attempt = _attempt(program, "Write other reactive members, two of them.", parent=parent)
    module = analyze(program, attempt.mode).module
    assert module is not None
    rows = [
        make_row(changed, module, Scripted(good), seed=7, is_tested=False)
        for changed in (attempt, _attempt(program, parent=parent.model_copy(update={"template": "t"})))
    ]

    assert attempt.mode is Mode.UI
    assert form_refusal(attempt, Reading(program, is_refusal=False, is_stub=False), stopped=True) is None
    assert [row.source and row.source.path for row in rows] == ["a.vox.ui", "a.vox.ui"]
    assert [row.template for row in rows] == [None, "t"]
    assert (rows[0].rating, rows[0].lineage and rows[0].lineage.root_kind) == (3, SourceKind.VOX_FILE)
