"""A constrained model writes programs, whatever tokens it prefers."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.inference.constraint import Constraint, would_run_away
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generate import complete_slots, generate, new_slot
from mens_pipeline.inference.generation import (
    Completion,
    Decoding,
    Generation,
    GenerationJob,
    Request,
    Syntax,
    as_served,
    is_program,
)
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.language import CONSTRUCTS, Mode, Viability, ViableText, analyze, mode_of
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline_tests.language.examples import Program, golden_programs, right_programs, showing_all, shown_by

_PROMPTS = tuple(f"Write program {number}." for number in range(3))


def _complete(model: Any, tokenizer: Any, mode: Mode, **changes: Any) -> list[Slot]:
    decoding, stop = Decoding(syntax=Syntax.CONSTRAINED, **changes), frozenset({tokenizer.eos_token_id})
    rows = [
        new_slot(
            text, sample, tokenizer.encode(text), decoding, Constraint(tokenizer, stop, mode, decoding.max_new_tokens)
        )
        for text in _PROMPTS
        for sample in range(decoding.num_samples)
    ]
    complete_slots(model, rows, stop, decoding.batch_tokens, lambda _row: None)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        (Mode.SOURCE, {"max_new_tokens": 12}),
        (Mode.SOURCE, {"max_new_tokens": 20, "temperature": 0.8}),
        (Mode.SCRIPT, {"max_new_tokens": 30, "temperature": 2.0, "top_p": 1.0}),
        (Mode.UI, {"max_new_tokens": 25}),
    ],
    ids=["greedy, short", "sampled", "script, hot", "ui"],
)
def test_every_completion_is_a_whole_program(model: Any, tokenizer: Any, mode: Mode, changes: dict[str, Any]) -> None:
    rows = _complete(model, tokenizer, mode, **changes)
    texts = [tokenizer.decode(row.tokens, skip_special_tokens=True) for row in rows]
    modules = [analyze(text, mode).module for text in texts]

    assert all(row.stopped for row in rows)
    assert [
        text for text, module in zip(texts, modules, strict=True) if module is None or not module.declarations
    ] == []


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_choice_equals_that_of_a_full_mask(tokenizer: Any, temperature: float) -> None:
    import torch

    torch.manual_seed(0)
    stop = frozenset({tokenizer.eos_token_id})
    constraint = Constraint(tokenizer, stop, Mode.SOURCE, 10_000)
    ids: list[int] = []
    for step in range(40):
        scores = torch.randn(len(tokenizer)) * 3
        text = tokenizer.decode(ids)
        alive = [
            token
            for token in range(len(tokenizer))
            if token not in stop
            and (piece := tokenizer.decode([*ids, token])).startswith(text)
            and "\ufffd" not in piece
            and ViableText(is_strict=True).would_be(piece) is not Viability.DEAD
            and not would_run_away(text, piece.removeprefix(text))
        ]
        masked = torch.full_like(scores, -torch.inf)
        masked[alive] = scores[alive]
        # Bytes of characters outside ASCII and the end of the turn have their own tests.
        outside = [token for token in range(len(tokenizer)) if token in stop or not tokenizer.decode([token]).isascii()]
        scores[outside] = masked[outside] = -torch.inf
        chosen = constraint.choose(scores, Sampler(temperature, 1.0, str(step)))
        if temperature == 0:
            assert chosen == int(masked.argmax())
        assert chosen in alive
        ids.append(chosen)


def _job(base: Path, folder: Path, decoding: Decoding) -> GenerationJob:
    asked = Generation(
        base_path=base,
        adapter_path=None,
        base_sha256="",
        adapter_sha256=None,
        quantization="none",
        double_quant=False,
        trained_in="float32",
        device="cpu",
        compute_dtype="float32",
        system_prompt="",
        decoding=decoding,
        requests=tuple(Request(task=prompt, prompt=prompt) for prompt in _PROMPTS),
    )
    return GenerationJob(generations={"all": asked}, run_dir=folder, lock_path=folder / "lock")


def test_several_completions_have_a_likelihood(tiny_base: Path, tmp_path: Path) -> None:
    decoding = Decoding(max_new_tokens=14, num_samples=2, temperature=0.8, syntax=Syntax.FALLBACK)
    generate(job := _job(tiny_base, tmp_path, decoding))
    several = list(read_models(job.completions("all"), Completion))
    generate(_job(tiny_base, tmp_path, Decoding(max_new_tokens=2)))

    assert len(several) == 4 * len(_PROMPTS)
    assert all(completion.likelihood is not None and completion.likelihood < 0 for completion in several)
    assert {completion.likelihood for completion in read_models(job.completions("all"), Completion)} == {None}


def test_completions_that_are_not_programs_are_written_again(tiny_base: Path, tmp_path: Path) -> None:
    job = _job(tiny_base, tmp_path, Decoding(max_new_tokens=16, syntax=Syntax.FALLBACK))
    generate(job)
    last = json.loads((tmp_path / TELEMETRY).read_text().splitlines()[-1])
    completions = list(read_models(job.completions("all"), Completion))
    served = as_served(completions)

    assert [(completion.task, completion.constrained) for completion in completions] == [
        (prompt, constrained) for constrained in (False, True) for prompt in _PROMPTS
    ]
    assert not any(is_program(completion.text, Mode.SOURCE) for completion in completions[: len(_PROMPTS)])
    assert [completion.task for completion in served] == list(_PROMPTS)
    assert [
        completion for completion in served if not (is_program(completion.text, Mode.SOURCE) and completion.stopped)
    ] == []
    assert last["payload"]["num_answers"] == 2 * len(_PROMPTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fn f() {\n    a = a + 1\n    a = a + 1\n", False),
        ("fn f() {\n    a = a + 1\n    a = a + 1\n    a = a + 1\n", True),
        ("fn f() {\n    a = a + 1\n    a = a + 1\n    // on\n    a  = a + 1\n", True),
        ("fn f() {\n    a = a + 1\n    a = a + 1\n    a = a + 1", False),
        ("fn f() {\n    a = a + 1\n    a = a + 2\n    a = a + 1\n", False),
        ("if x {\n    a = 1\n}\nif x {\n    a = 1\n}\nif x {\n    a = 1\n}", True),
        ("fn f() {\n    a(1)\n    b(2)\n    a(1)\n    b(2)\n    a(1)\n    b(2)\n", True),
        ("fn f() {\n    a(1)\n    b(2)\n    a(1)\n    b(2)\n    a(1)\n", False),
        ("type T {\n    a: int,\n    a: int,\n    a: int,", True),
        ("let a = [" + "[0, 1], " * 8, False),
        ("let a = [" + "[0, 1], " * 9, True),
        ('let a = ["' + 'open", "' * 9, True),
        ("let a = [" + "0, 1, " * 9, True),
        ("let a = f(g(f(g(x), 1), g(f(x)))", False),
        ("let a = str(str(x))", False),
        ("let a = str(str(str(", True),
        ("let a = str(len(str(len(str(len(", True),
        ("let a = str(str(str", False),
        ("let a = cons(1, cons(2, cons(3, cons(4, nil))))", False),
        ("let a: list[list[list[int", True),
        ("fn f() {\n    if a {\n        if a {\n            if a {\n", True),
        ("let a = (((((((x + 1) * 2) * 3) * 4) * 5) * 6) * 7)", False),
        ("let a = (((((((((x", True),
        ("fn f() {\n" + "".join(f"while a{n} {{\n" for n in range(40)), True),
        ("fn f() {\n" + "".join(f"while a{n} {{\n" for n in range(39)), False),
        ("let a = 1" + " + 1" * 38, False),
        ("let a = 1" + " + 1" * 40, True),
        ('let a = "' + "open_" * 40, True),
        ("// " + "-" * 100 + "\n", False),
        ("// " + "-" * 160, True),
        ("\n" * 160, True),
        ("let a = f(" + "{ a: 1 }, " * 9, True),
        ("fn f() {\n    a(1)\n    a(1)\n    a(1)\n    ", True),
        ("}}} a\n a\n a\n", False),
    ],
)
def test_detects_repetition(text: str, expected: bool) -> None:  # noqa: FBT001 - a table of texts
    assert would_run_away("", text) is expected
    assert any(would_run_away(text[:end], text[end : end + 3]) for end in range(0, len(text), 3)) is expected


def test_hardly_any_golden_program_repeats_itself() -> None:
    found = {name for name, source in golden_programs().items() if would_run_away("", source)}

    assert found == {"app/loading_reef_gallery.vox"}


@pytest.mark.parametrize(
    ("start", "again"),
    [
        ("fn a() to int {\n    return range(0, str(len(", "str("),
        ('fn a() to list[str] {\n    return ["open", ', '"open_open", '),
        ("fn a() {\n    ", "if b {\n"),
        ("fn a() {\n    ", "".join(f"f{number}(" for number in range(200))),
        ("fn a() {\n    b = b", " + b"),
        ('fn a() {\n    b = "', "open_"),
        ("fn a() {\n", "    b = b + 1\n"),
        ("", "\n"),
    ],
)
def test_a_runaway_program_is_closed_soon(tokenizer: Any, start: str, again: str) -> None:
    """Although the model prefers to repeat the same text for ever."""
    import torch

    end = tokenizer.eos_token_id
    constraint, scores = Constraint(tokenizer, frozenset({end}), Mode.SOURCE, 1_024), torch.zeros(len(tokenizer))
    pending, ids = list(tokenizer.encode(start, add_special_tokens=False)), list[int]()
    repeated = list(tokenizer.encode(again, add_special_tokens=False))
    scores[tokenizer.encode("a(b)1", add_special_tokens=False)] = 0.1
    while not ids or ids[-1] != end:
        pending = pending or [*repeated]
        favoured = scores.clone()
        favoured[pending.pop(0)] = 1.0
        ids.append(constraint.choose(favoured, Sampler(0.0, 1.0, "")))
    text = tokenizer.decode(ids, skip_special_tokens=True)

    assert len(ids) < 600, text  # of bytes: 150 of a real tokenizer
    assert is_program(text, Mode.SOURCE)
    assert constraint.cut == "repetition"


def test_draws_only_among_tokens_that_are_not_refused() -> None:
    import torch

    scores = torch.tensor([4.0, 3.0, 2.0, 1.0]).log()
    sampler = Sampler(1.0, 1.0, "draws")
    drawn = [sampler.choose(scores, [0, 2]) for _ in range(2000)]

    assert set(drawn) == {1, 3}
    assert drawn.count(1) / len(drawn) == pytest.approx(0.75, abs=0.04)
    assert Sampler(1.0, 0.1, "draws").choose(scores, [0]) == 1


def _write(constraint: Constraint, tokenizer: Any, text: str) -> str:
    """Return the part of a text that the constraint lets a model write."""
    import torch

    scores, ids = torch.zeros(len(tokenizer)), []
    for token in tokenizer.encode(text, add_special_tokens=False):
        scores.zero_()
        scores[token] = 1.0
        ids.append(constraint.choose(scores, Sampler(0.0, 1.0, "")))
        if ids[-1] != token:
            break
    return str(tokenizer.decode(ids))


@pytest.mark.parametrize(
    ("text", "refused"),
    [("fn f() {\n    a = a + 1\n    a = a + 1\n    a = a + 1", "\n"), ('let a = "é"', "é")],
    ids=["the end of a repeated statement", "a character outside a string"],
)
def test_does_not_write_refused_characters(tokenizer: Any, text: str, refused: str) -> None:
    """A character outside ASCII may be written byte by byte only in a string or comment."""
    import torch

    constraint = Constraint(tokenizer, frozenset({tokenizer.eos_token_id}), Mode.SOURCE, 10_000)
    scores, first = torch.zeros(len(tokenizer)), tokenizer.encode(refused, add_special_tokens=False)[0]
    scores[first] = 2.0

    assert _write(constraint, tokenizer, text) == text
    assert constraint.choose(scores, Sampler(0.0, 1.0, "")) != first


def test_the_end_of_the_turn_waits_for_a_program(tokenizer: Any) -> None:
    import torch

    end = tokenizer.eos_token_id
    constraint, scores = Constraint(tokenizer, frozenset({end}), Mode.SOURCE, 10_000), torch.zeros(len(tokenizer))
    for token in tokenizer.encode("// x\nimport a"):
        scores.zero_()
        scores[token], scores[end] = 1.0, 0.5 if token == tokenizer.encode("a")[0] else 2.0
        assert constraint.choose(scores, Sampler(0.0, 1.0, "")) == token
    scores[end] = 2.0

    assert constraint.choose(scores, Sampler(0.0, 1.0, "")) == end
    assert not constraint.is_forced


def _find_refused(tokenizer: Any, programs: Iterable[Program]) -> list[str]:
    stop = frozenset({tokenizer.eos_token_id})
    return [
        name
        for name, source, mode in programs
        if _write(Constraint(tokenizer, stop, mode, 100_000), tokenizer, source) != source
    ]


def _list_right_programs() -> list[Program]:
    return [Program(name, source, mode_of(name)) for name, source in sorted(right_programs().items())]


def test_short_right_programs_are_written_token_by_token(tokenizer: Any) -> None:
    reef = Program("reef", golden_programs()["app/loading_reef_gallery.vox"], Mode.SOURCE)  # a repetitive program
    short = [program for program in _list_right_programs() if len(program.source) < 500][::16]

    assert _find_refused(tokenizer, [*short, reef]) == ["reef"]


@pytest.mark.nightly
def test_right_programs_of_all_constructs_are_written_token_by_token(tokenizer: Any) -> None:
    programs = showing_all(_list_right_programs())
    constructs = set().union(*map(shown_by, programs))

    assert constructs >= set(CONSTRUCTS)
    assert constructs == set().union(*map(shown_by, _list_right_programs()))
    assert _find_refused(tokenizer, programs) == []
