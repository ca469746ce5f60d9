"""Whether a training row repeats a held-out task."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.heldout_split import HeldoutTasks, refuse_trained_heldout, structures_in
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.errors import RefusedError
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.every import every, every_row

_ANSWER = """fn total(prices: List[int], limit: int) to int {
    let mut sum = 0
    for price in prices {
        if price < limit { sum = sum + price }
    }
    return sum
}
"""
_RENAMED = """// What is owed.
fn owed(debts: List[int], most: int) to int {
    let mut all = 100
    for debt in debts { if debt < most { all = all + debt } }
    return (all)
}
"""
_OTHER = 'fn greet(name: str) to str { return "Good morning to you, " + name + ", and welcome" }\n'
_TASK = pair_at("held.vox", "Write a function `total`.", _ANSWER)


def test_without_tasks_there_is_no_overlap() -> None:
    assert HeldoutTasks([], 0.5, 12).overlap(_TASK) is None


@every(
    "case",
    [
        ("Write a greeting.", _OTHER, None),
        ("write  a Function\n`TOTAL` .", _OTHER, SplitReason.PROMPT),
        ("Add up.", _ANSWER, SplitReason.WORDS),
        ("Add up.", f"// Adds.\n{_ANSWER}\n{_OTHER}", SplitReason.WORDS),
        (f"What does this do?\n\n{_ANSWER}", _OTHER, SplitReason.WORDS),
        (f"Complete this.\n\n{_ANSWER[:120]}", _ANSWER[120:], SplitReason.WORDS),
        ("Add up.", _RENAMED, SplitReason.STRUCTURE),
        ("Add up.", f"{_OTHER}\n{_RENAMED}", SplitReason.STRUCTURE),
        ("Add up.", _RENAMED.replace("all + debt", "all * debt"), None),
    ],
)
def test_a_row_that_repeats_a_task_is_an_overlap(case: tuple[str, str, SplitReason | None]) -> None:
    prompt, response, reason = case
    found = HeldoutTasks([_TASK], 0.5, 12).overlap(pair_at("train.vox", prompt, response))

    assert found == (reason and (reason, "held.vox"))


def test_the_permitted_overlap_is_a_parameter() -> None:
    words = "a b c d e f g h i j k l m n o p"  # nine runs of eight
    task = pair_at("held.vox", "p", words)
    row = pair_at("train.vox", "q", "a b c d e f g h i j")  # three of them

    assert HeldoutTasks([task], 3 / 9, 12).overlap(row) is None
    assert HeldoutTasks([task], 0.33, 12).overlap(row) == (SplitReason.WORDS, "held.vox")
    assert HeldoutTasks([task], 1.0, 12).overlap(task.model_copy(update={"prompt": "other"})) is None


def test_the_first_of_several_tasks_is_named() -> None:
    tasks = [pair_at(None, "p", _ANSWER), _TASK]

    assert HeldoutTasks(tasks, 0.5, 12).overlap(pair_at("t.vox", "q", _ANSWER)) == (
        *(SplitReason.WORDS, "a row without a source"),
    )
    assert HeldoutTasks(tasks, 0.5, 12).overlap(pair_at("t.vox", "q", _RENAMED)) == (
        *(SplitReason.STRUCTURE, "a row without a source"),
    )


def test_a_renamed_copy_of_a_program_of_several_declarations_is_an_overlap() -> None:
    completion = (
        "type Bid { lot: int, cents: int }\n\nfn best(bids: List[Bid], most: int) to int { return worth(bids[most]) }\n"
    )
    copy = "type Offer { thing: int, price: int }\n\nfn top(all: List[Offer], n: int) to int { return value(all[n]) }\n"
    helper = "\nfn {}(x: {}) to int {{ return x.{} }}\n"
    task = pair_at("held.vox", "p", completion + helper.format("worth", "Bid", "cents"))
    row = pair_at("train.vox", "q", copy + helper.format("value", "Offer", "price"))

    assert HeldoutTasks([task], 1.0, 12).overlap(row) == (SplitReason.STRUCTURE, "held.vox")


def test_small_declarations_are_not_compared() -> None:
    task, row = pair_at("held.vox", "p", "fn f() { }\n"), pair_at("train.vox", "q", "fn g() { }\n")

    assert HeldoutTasks([task], 1.0, 12).overlap(row) is None
    assert HeldoutTasks([task], 1.0, 1).overlap(row) == (SplitReason.STRUCTURE, "held.vox")


def test_prose_and_rejected_code_have_no_structure() -> None:
    prose = _TASK.model_copy(update={"response_mode": "prose_only"})

    assert len(structures_in(_TASK, 12)) == 1
    assert structures_in(prose, 1) == structures_in(pair_at(None, "p", "fn ("), 1) == ()


_HELD = [pair_at(f"{n}.vox", f"Write f{n}.", f"fn f{n}() to int {{\n    return {n}\n}}\n") for n in range(3)]
_FREE = [pair_at(f"{n}.vox", f"Write f{n}.", f"fn f{n}() to int {{\n    return {n}\n}}\n") for n in range(3, 9)]


def _write(path: Path, pairs: list[object]) -> Path:
    path.write_text("".join(pair.model_dump_json() + "\n" for pair in pairs))  # type: ignore[attr-defined]
    return path


def test_sets_that_share_nothing_pass(tmp_path: Path) -> None:
    refuse_trained_heldout(_write(tmp_path / "heldout.jsonl", [*_HELD]), _write(tmp_path / "train.jsonl", [*_FREE]))


@pytest.mark.threat("M14")
@every_row(
    ({}, "1 prompts and 1 responses"),
    ({"prompt": "Something else."}, "0 prompts and 1 responses"),
    ({"response": "fn other() to int { return 7 }"}, "1 prompts and 0 responses"),
    ({"prompt": "Another.", "response": "\n\nfn f1() to int {\n\treturn 1\n}"}, "0 prompts and 1 responses"),
)
def test_a_held_out_row_that_was_trained_on_is_named(changes: dict[str, str], found: str, tmp_path: Path) -> None:
    train = _write(tmp_path / "train.jsonl", [*_FREE, _HELD[1].model_copy(update=changes), _FREE[0]])
    heldout = _write(tmp_path / "heldout.jsonl", [*_HELD])

    with pytest.raises(RefusedError) as error:
        refuse_trained_heldout(heldout, train)
    assert str(error.value).startswith(
        f"{heldout}: {found} of 3 held-out pairs are in 1 rows of {train}, the first in row 7:"
    )
    assert str(error.value).endswith(
        "Run `mens corpus mix`, which writes both files without overlap, and train on its output."
    )
    assert json.loads(train.read_text().splitlines()[6])["prompt"]
