"""A piece that is constrained to its hole parses there, or is given up."""

from collections import Counter
from typing import Any

from mens_pipeline.inference.constraint import InsertConstraint
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generate import complete_slots
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.language import Viability, ViableText, analyze
from mens_pipeline.language.surroundings import Surroundings

_HOLES = (
    ("fn double(n: int) to int {\n    return n ", "\n}\n"),
    ("let x = ", "\nlet y = x\n"),
    ("type Pair {\n    left: i", "\n    right: int\n}\n"),
    ("fn none() ", ""),
    ("fn broken( {\n", "\n}\n"),
)


def _complete(model: Any, tokenizer: Any, temperature: float) -> list[tuple[Slot, str]]:
    stop = frozenset({tokenizer.eos_token_id})
    rows = [
        Slot(
            tuple(tokenizer.encode(prefix)),
            Sampler(temperature, 1.0, f"{number}:{sample}"),
            24,
            InsertConstraint(tokenizer, stop, Surroundings(prefix, suffix)),
            name=str(number),
            sample=sample,
        )
        for number, (prefix, suffix) in enumerate(_HOLES)
        for sample in range(6)
    ]
    complete_slots(model, rows, stop, 4_096, lambda _row: None)
    return [(row, tokenizer.decode(row.tokens, skip_special_tokens=True)) for row in rows]


def test_a_piece_that_ends_by_itself_parses(model: Any, tokenizer: Any) -> None:
    kinds = Counter[tuple[bool, bool]]()
    for row, piece in _complete(model, tokenizer, 1.0):
        prefix, suffix = _HOLES[int(row.name)]
        constraint = row.constraint
        assert constraint is not None
        is_valid = analyze(prefix + piece + suffix).ok
        kinds[row.stopped, constraint.is_forced] += 1
        if row.stopped and not constraint.is_forced:
            assert is_valid
        if prefix.startswith("fn broken"):
            assert constraint.is_forced
            assert not is_valid

    assert kinds[True, False] > 0


def test_every_piece_can_be_continued_to_a_program(model: Any, tokenizer: Any) -> None:
    first, second = (_complete(model, tokenizer, 0.0) for _ in range(2))

    assert [piece for _, piece in first] == [piece for _, piece in second]
    for row, piece in first:
        prefix, _ = _HOLES[int(row.name)]
        text = ViableText()
        if not prefix.startswith("fn broken"):
            assert text.append(prefix + piece) is not Viability.DEAD


def test_gives_up_on_a_piece_with_a_long_search(tokenizer: Any) -> None:
    """Parsing is bounded: a statement without an end would be parsed again for each token."""
    import torch

    stop = frozenset({tokenizer.eos_token_id})
    scores = torch.zeros(len(tokenizer))
    scores[tokenizer.encode(")")] = 9.0
    for prefix, most in (("let a = 1" + " + 1" * 4_000, 12), ("let a = 1" + " + 1" * 40, 170)):
        constraint = InsertConstraint(tokenizer, stop, Surroundings(prefix, "\n"))
        num_taken = 0
        while not constraint.is_forced and num_taken < most:
            constraint.choose(scores, Sampler(0.0, 1.0, ""))
            num_taken += 1

        assert constraint.is_forced, len(prefix)
        assert num_taken < most


def test_no_piece_has_control_characters(tokenizer: Any) -> None:
    """Vox ignores them, so a piece of them would fit, but an editor shows them to a person."""
    import torch

    stop = frozenset({tokenizer.eos_token_id})
    scores = torch.zeros(len(tokenizer))
    scores[[tokenizer.encode(text)[-1] for text in ("\0", "\x1b", "\x7f")]] = 9.0
    scores[tokenizer.encode("1")[-1]] = 5.0
    constraint = InsertConstraint(tokenizer, stop, Surroundings("let x = ", "\n"))

    assert tokenizer.decode([constraint.choose(scores, Sampler(0.0, 1.0, ""))]) == "1"


_REST = "\n\nfn last() to int {\n    return 3\n}\n"
"""A program after the line of the cursor."""


def test_a_piece_may_leave_blocks_open_during_typing(tokenizer: Any) -> None:
    import torch

    prefix, stop = "fn f(a: int) to int {\n    if a > 1 {\n        return ", frozenset({tokenizer.eos_token_id})
    digit = tokenizer.encode("1", add_special_tokens=False)[0]
    scores = torch.zeros(len(tokenizer))
    scores[digit], scores[tokenizer.eos_token_id] = 2.0, 1.0

    ended = scores.clone()
    ended[tokenizer.eos_token_id] = 3.0

    def ends(*, is_typed: bool) -> bool:
        constraint = InsertConstraint(tokenizer, stop, Surroundings(prefix, _REST), is_typed=is_typed)
        constraint.choose(scores, Sampler(0.0, 1.0, ""))
        return constraint.choose(ended, Sampler(0.0, 1.0, "")) in stop and not constraint.is_forced

    assert (ends(is_typed=True), ends(is_typed=False)) == (True, False)
