"""Checks of the replies of a model."""

from mens_pipeline.corpus.evolution.evolve import (
    MAX_INSTRUCTION,
    Attempt,
    Reading,
    check_content,
    check_form,
    check_tests,
    find_fault,
    instruction_in,
    make_row,
    names_in,
)
from mens_pipeline.corpus.evolution.operators import Evolution, ModelRequest, Operator
from mens_pipeline.corpus.schema.reasons import EvolutionDrop
from mens_pipeline.corpus.schema.records import MAX_TEXT, SourceKind, TrainingPair
from mens_pipeline.language import Mode
from mens_pipeline.language.interpreter import Limits, run_tests
from mens_pipeline_tests.corpus.evolution.scripted import Scripted, good, read
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import parse

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
    return Attempt(parent, evolution, 2, ModelRequest("k", "s", "p"), instruction, program)


@every_row(
    ("  Write it.\n", "Write it."),
    ("Request: Write it.", "Write it."),
    ("**New request:** Write it.", "Write it."),
    ("The rewritten request**: Write it.", "Write it."),
    ('"Write it."', "Write it."),
    ("\u201cWrite it.\u201d", "Write it."),
    ('"', '"'),
    ("Request handling in Vox, please.", "Request handling in Vox, please."),
)
def test_labels_and_quotes_of_an_instruction_are_removed(text: str, instruction: str) -> None:
    assert instruction_in(text) == instruction


@every_row(
    (_INSTRUCTION, True, None),
    ("", True, "too few words"),
    ("\ufffd x, 12 34 ... go", True, "too few words"),
    ("I cannot help with that.", True, "a refusal"),
    (_INSTRUCTION, False, "cut off"),
    ("word " * MAX_INSTRUCTION, True, "9999 characters"),
    ("Here is a harder version of it: clamp.", True, "says `harder version`"),
    ("Write ```fn f() { }``` in Vox.", True, "contains code"),
    ("fn f() { }", True, "contains code"),
    ("Write a FUNCTION `add` in Vox.", True, "adds nothing new"),
    ("In Vox write a function `add`.", True, "adds nothing new"),
    ("Write a function `add`.", True, "adds nothing new"),
)
def test_an_unusable_instruction_has_a_fault(text: str, *, stopped: bool, fault: str | None) -> None:
    assert find_fault(instruction_in(text), _PARENT, read(text), stopped=stopped) == fault


def test_words_of_the_seed_are_allowed() -> None:
    parent = _PARENT.model_copy(update={"prompt": "Write a function `rewrite` in Vox: rewriting of paths."})
    text = "Write a function `rewrite` in Vox: rewriting of paths, without loops, for at most ten of them."

    assert find_fault(text, parent, read(text), stopped=True) is None


@every_row(
    (_PROGRAM, True, None),
    (" \n", True, (EvolutionDrop.BAD_REPLY, "empty")),
    ("I cannot do that.", True, (EvolutionDrop.BAD_REPLY, "a refusal")),
    (_PROGRAM, False, (EvolutionDrop.BAD_REPLY, "cut off")),
    ("x" * (MAX_TEXT + 1), True, (EvolutionDrop.BAD_REPLY, f"{MAX_TEXT + 1} characters")),
    ("fn f(", True, (EvolutionDrop.REJECTED, "1:6: ")),
    ("// nothing\n", True, (EvolutionDrop.REJECTED, "it declares nothing")),
    (f"// TODO\n{_PROGRAM}", True, (EvolutionDrop.BAD_REPLY, "a comment in place of code")),
    (f"// I cannot say more.\n{_PROGRAM}", True, None),
)
def test_a_completion_without_a_program_is_dropped(
    program: str, *, stopped: bool, refusal: tuple[EvolutionDrop, str] | None
) -> None:
    found = check_form(_attempt(program), read(program), stopped=stopped)

    assert (found and found[0]) == (refusal and refusal[0])
    assert found is None or refusal is None or found[1].startswith(refusal[1])


@every_row(
    (_attempt(), None),
    (_attempt(f"// {_INSTRUCTION}\n{_PROGRAM}"), (EvolutionDrop.NOT_AS_ASKED, "repeats the request")),
    (_attempt("type Clamp { low: int }"), (EvolutionDrop.NOT_AS_ASKED, "no function")),
    (_attempt(evolution=Evolution(Operator.HARDER_CONSTRUCT, "table")), (EvolutionDrop.NOT_AS_ASKED, "no table")),
    (_attempt(_PROGRAM.replace("clamp", "other")), (EvolutionDrop.NOT_AS_ASKED, "not called clamp")),
    (_attempt(evolution=Evolution(Operator.CONTRACTS)), (EvolutionDrop.NOT_AS_ASKED, "does not show contracts")),
    (
        _attempt("fn clamp(x: int, y: int) to int {\n    // The sum.\n    return x + y\n}\n"),
        (EvolutionDrop.REPEATED, "the parent"),
    ),
)
def test_a_program_that_is_not_as_requested_or_not_new_is_dropped(
    attempt: Attempt, refusal: tuple[EvolutionDrop, str] | None
) -> None:
    module = parse(attempt.program, attempt.mode)

    assert check_content(attempt, module) == refusal


def test_names_are_read_after_their_noun() -> None:
    request = "Write a function `clamp(a: int)` or a function called `bound` on the table `T`, with `int`."

    assert names_in(request, "function") == {"clamp", "bound"}
    assert names_in(request, "table") == {"T"}
    assert names_in(request, "workflow") == set()


_TEST = "@test\nfn t() {{\n    {}\n}}\n"


@every_row(
    (_PROGRAM, False),
    (_PROGRAM + _TEST.format("assert_eq(clamp(1, 3), 3)"), True),
    (_PROGRAM + _TEST.format("assert_eq(clamp(1, 3), 1)"), EvolutionDrop.TESTS_FAILED),
    (_PROGRAM + _TEST.format("assert_eq(nobody(1), 1)"), EvolutionDrop.TESTS_FAILED),
    (_PROGRAM + _TEST.format('let x = fs.read_text("a")'), EvolutionDrop.TESTS_FAILED),
    (_PROGRAM + _TEST.format("while true { }"), EvolutionDrop.TESTS_FAILED),
    (_PROGRAM + _TEST.format("let x = clamp(1, 3)"), EvolutionDrop.TESTS_FAILED),
)
def test_tests_are_run(program: str, found: EvolutionDrop | bool) -> None:  # noqa: FBT001 - a case of the table
    limits = Limits(max_steps=10_000)
    refusal = check_tests(program, Mode.SOURCE, lambda text, mode: run_tests(text, limits, mode=mode))

    assert (refusal if isinstance(refusal, bool) else refusal[0]) == found


def test_a_program_that_cannot_be_run_as_a_whole_is_not_trusted() -> None:
    program = _PROGRAM + _TEST.format("assert(true)")
    refusal = check_tests(program, Mode.SOURCE, lambda text, mode: run_tests(text, Limits(max_source=10), mode=mode))

    assert not isinstance(refusal, bool)
    assert refusal[0] is EvolutionDrop.TESTS_FAILED


def test_members_of_a_user_interface_keep_their_mode() -> None:
    members = "state count: int = 0\nderived big = count > 9\n"
    parent = pair_at("a.vox.ui", "Write the reactive members.", members).model_copy(
        update={"category": "reactive_module"}
    )
    program = "state open: bool = false\nstate n: int = 1\n\non mount: {\n    n = 2\n}\n"
    attempt = _attempt(program, "Write other reactive members, two of them.", parent=parent)
    module = parse(program, attempt.mode)
    rows = [
        make_row(changed, module, Scripted(good), seed=7, is_tested=False)
        for changed in (attempt, _attempt(program, parent=parent.model_copy(update={"template": "t"})))
    ]

    assert attempt.mode is Mode.UI
    assert check_form(attempt, Reading(program, is_refusal=False, is_stub=False), stopped=True) is None
    assert [row.source and row.source.path for row in rows] == ["a.vox.ui", "a.vox.ui"]
    assert [row.template for row in rows] == [None, "t"]
    assert (rows[0].rating, rows[0].lineage and rows[0].lineage.root_kind) == (3, SourceKind.VOX_FILE)
