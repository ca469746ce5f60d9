"""A model that is held to the language writes programs, whatever it would rather write."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.evaluation.constraint import Constraint
from mens_pipeline.evaluation.decode import Row, Vocabulary, decode
from mens_pipeline.evaluation.generation import Decoding
from mens_pipeline.evaluation.sampling import Sampler
from mens_pipeline.language import Mode, analyze
from mens_pipeline.language.viability import Viability, viable

_PROMPTS = tuple(f"Write program {number}." for number in range(5))


@pytest.fixture(scope="module")
def tokenizer(tiny_base: Path) -> Any:
    """Of single bytes."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_base)


@pytest.fixture(scope="module")
def model(tiny_base: Path) -> Any:
    """A model of random weights, which knows nothing of Vox."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_base).eval()


def _answered(model: Any, tokenizer: Any, mode: Mode, **changes: Any) -> list[Row]:
    decoding, stop = Decoding(is_constrained=True, **changes), frozenset({tokenizer.eos_token_id})
    rows = [
        Row(
            text,
            sample,
            tuple(tokenizer.encode(text)),
            constraint=Constraint(tokenizer, stop, mode, decoding.max_new_tokens),
        )
        for text in _PROMPTS
        for sample in range(decoding.num_samples)
    ]
    decode(model, rows, Vocabulary(stop, tokenizer.pad_token_id), decoding, lambda _row: None)
    return rows


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        (Mode.SOURCE, {"max_new_tokens": 12}),
        (Mode.SOURCE, {"max_new_tokens": 40, "temperature": 0.8, "num_samples": 2}),
        (Mode.SCRIPT, {"max_new_tokens": 30, "temperature": 2.0, "top_p": 1.0}),
        (Mode.UI, {"max_new_tokens": 25}),
    ],
    ids=["greedy, short", "sampled", "script, hot", "ui"],
)
def test_every_answer_is_a_program_that_ended(model: Any, tokenizer: Any, mode: Mode, changes: dict[str, Any]) -> None:
    """Within any budget in which one fits; also by a model that would write noise."""
    rows = _answered(model, tokenizer, mode, **changes)
    texts = [tokenizer.decode(row.tokens, skip_special_tokens=True) for row in rows]
    modules = [analyze(text, mode).module for text in texts]

    assert all(row.stopped for row in rows)
    assert [
        text for text, module in zip(texts, modules, strict=True) if module is None or not module.declarations
    ] == []


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_choice_is_that_of_a_full_mask(tokenizer: Any, temperature: float) -> None:
    """Of every token of the vocabulary it is asked whether it leaves the text alive, step by step."""
    import torch

    torch.manual_seed(0)
    stop = frozenset({tokenizer.eos_token_id})
    constraint = Constraint(tokenizer, stop, Mode.SOURCE, 10_000)
    ids: list[int] = []
    for step in range(60):
        scores = torch.randn(len(tokenizer)) * 3
        text = tokenizer.decode(ids)
        alive = [
            token
            for token in range(len(tokenizer))
            if token not in stop
            and (piece := tokenizer.decode([*ids, token])).startswith(text)
            and "\ufffd" not in piece
            and viable(piece, is_strict=True) is not Viability.DEAD
        ]
        masked = torch.full_like(scores, -torch.inf)
        masked[alive] = scores[alive]
        # Bytes of characters outside ASCII and the end of the turn have tests of their own.
        outside = [token for token in range(len(tokenizer)) if token in stop or not tokenizer.decode([token]).isascii()]
        scores[outside] = masked[outside] = -torch.inf
        chosen = constraint.choose(scores, Sampler(temperature, 1.0, str(step)))
        if temperature == 0:
            assert chosen == int(masked.argmax())
        assert chosen in alive
        ids.append(chosen)


def test_a_draw_among_refused_tokens_is_that_of_the_others() -> None:
    """In the shares that they have of one another."""
    import torch

    scores = torch.tensor([4.0, 3.0, 2.0, 1.0]).log()
    sampler = Sampler(1.0, 1.0, "draws")
    drawn = [sampler.choose(scores, [0, 2]) for _ in range(2000)]

    assert set(drawn) == {1, 3}
    assert drawn.count(1) / len(drawn) == pytest.approx(0.75, abs=0.04)
    assert Sampler(1.0, 0.1, "draws").choose(scores, [0]) == 1


def test_a_character_may_be_written_byte_by_byte_where_text_stands(tokenizer: Any) -> None:
    """In a string; elsewhere it is dead with its first byte."""
    import torch

    stop = frozenset({tokenizer.eos_token_id})
    constraint, scores = Constraint(tokenizer, stop, Mode.SOURCE, 10_000), torch.zeros(len(tokenizer))
    for token in (*tokenizer.encode('let a = "'), *tokenizer.encode("é"), *tokenizer.encode('"')):
        scores.zero_()
        scores[token] = 1.0
        assert constraint.choose(scores, Sampler(0.0, 1.0, "")) == token
    scores[tokenizer.encode("é")[0]] = 2.0

    assert constraint.choose(scores, Sampler(0.0, 1.0, "")) != tokenizer.encode("é")[0]


def test_the_end_of_the_turn_waits_for_a_program(tokenizer: Any) -> None:
    """Not behind nothing, a comment, or half a declaration; then it is free to come."""
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
