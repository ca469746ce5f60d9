"""A completion begins with the word before the cursor, in the tokens that the model prefers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mens_pipeline.inference.constraint import BegunWord, InsertConstraint, Vocabulary
from mens_pipeline.inference.engine import Slot
from mens_pipeline.inference.generate import complete_slots
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.language.surroundings import Surroundings


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer of parts of words, with their blanks, like those of SmolLM2 and Qwen."""
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    inner.train_from_iterator(["let return total = retry total_1 return"] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>")  # noqa: S106 - the end of a turn


@pytest.fixture(scope="module")
def sentencepiece() -> Any:
    """A tokenizer whose decoder leaves out a blank at the beginning of a text, like that of Gemma."""
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    inner.decoder = decoders.Metaspace(prepend_scheme="always")
    inner.train_from_iterator(["a let return total retry"] * 20, trainers.BpeTrainer(vocab_size=80))
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def test_tokens_fit_if_they_spell_the_word_or_more(tokenizer: Any, sentencepiece: Any) -> None:
    """A blank that a decoder leaves out counts."""
    texts = set(Vocabulary(sentencepiece).find_fitting(" re").values())
    assert (" return" in texts, "return" in texts) == (True, False)
    fitting = Vocabulary(tokenizer).find_fitting(" re")

    assert {" ", " ret", " return", " retry"} <= set(fitting.values())
    assert all(text.startswith(" re") or " re".startswith(text) for text in fitting.values())
    assert tokenizer.eos_token_id not in fitting


@pytest.mark.parametrize("word", [" re", " return", " retry_", "tot", " q7"])
def test_spells_the_word_whatever_tokens_are_likely(tokenizer: Any, word: str) -> None:
    import torch

    for seed in range(20):
        begun, written = BegunWord(tokenizer, word), list[int]()
        random = torch.Generator().manual_seed(seed)
        while len(tokenizer.decode(written)) < len(word):
            token = int(begun.narrow(torch.randn(len(tokenizer), generator=random)).argmax())
            begun.take(token)
            written.append(token)
        scores = torch.randn(len(tokenizer))

        assert tokenizer.decode(written).startswith(word)
        assert begun.narrow(scores) is scores


@pytest.fixture(scope="module")
def complete(tiny_base: Path) -> Callable[..., str]:
    """Complete with a model of random weights, whose tokens are single bytes."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, own = AutoModelForCausalLM.from_pretrained(tiny_base).eval(), AutoTokenizer.from_pretrained(tiny_base)

    def complete(word: str, sample: int, constraint: InsertConstraint | None = None) -> str:
        stop = frozenset({own.eos_token_id})
        row = Slot(
            tuple(own.encode("let x =")),
            Sampler(1.0, 1.0, str(sample)),
            12,
            constraint,
            0.0,
            word=BegunWord(own, word),
            name="0",
            sample=sample,
        )
        complete_slots(model, [row], stop, 4_096, lambda _row: None)
        assert row.log_probability is not None
        assert row.log_probability > float("-inf")
        return str(own.decode(row.tokens, skip_special_tokens=True))

    return complete


def test_a_completion_begins_with_the_word(complete: Callable[..., str]) -> None:
    for sample in range(4):
        assert complete(" total", sample).startswith(" total")


def test_a_constrained_piece_begins_with_the_word(complete: Callable[..., str], tiny_base: Path) -> None:
    import torch
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(tiny_base)
    stop = frozenset({own.eos_token_id})

    def constraint() -> InsertConstraint:
        return InsertConstraint(own, stop, Surroundings("let x = tot", "\n"), begun=" tot")

    scores = torch.zeros(len(own))
    scores[own.encode("(", add_special_tokens=False)[0]] = 5.0
    scores[own.encode(" ", add_special_tokens=False)[0]] = 4.0

    assert own.decode([constraint().choose(scores, Sampler(0.0, 1.0, ""))]) == " "
    assert all(complete(" tot", sample, constraint()).startswith(" tot") for sample in range(4))
