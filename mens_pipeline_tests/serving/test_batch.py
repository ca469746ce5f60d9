"""Answers that are written together are those that would be written alone."""

from typing import Any

import pytest

from mens_pipeline.inference.decode import Row, Vocabulary, decode
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.serving.batch import Batch, Prompt, can_join, new_cache
from mens_pipeline_tests.evaluation.hybrid import hybrid_model

_PROMPTS = (
    b"Write a function `double` in Vox.",
    b"x",
    b"A type with two fields.",
    b"Why? Because of a longer prompt here.",
)
_NUM_TOKENS = 14


@pytest.fixture(scope="module", params=["full", "linear"])
def model(request: pytest.FixtureRequest) -> Any:
    """With full attention alone, and with linear attention as well."""
    from transformers import AutoModelForCausalLM

    if request.param == "linear":
        return hybrid_model()
    return AutoModelForCausalLM.from_pretrained(request.getfixturevalue("merged")).eval()


def _alone(model: Any) -> dict[bytes, list[int]]:
    """What evaluation has the model answer, one at a time."""
    rows = [Row(prompt.decode(), 0, tuple(prompt)) for prompt in _PROMPTS]
    decoding = Decoding(max_new_tokens=_NUM_TOKENS, batch_tokens=256)
    for row in rows:
        decode(model, [row], Vocabulary(frozenset(), 0), decoding, lambda _row: None)
    return {row.name.encode(): row.tokens for row in rows}


def _read(model: Any, prompt: bytes, piece: int) -> tuple[Prompt, int]:
    reading = Prompt(model, tuple(prompt), piece)
    scores = reading.read()
    while scores is None:
        scores = reading.read()
    return reading, int(scores.argmax())


@pytest.mark.parametrize("piece", [4, 512])
def test_answers_that_come_and_go_are_those_written_alone(model: Any, piece: int) -> None:
    """Each joins two steps after the one before it, and leaves when it is long enough; prompts are read in pieces."""
    import torch

    batch, waiting = Batch(model), list(_PROMPTS)
    writing: list[tuple[bytes, list[int]]] = []
    answers: dict[bytes, list[int]] = {}
    with torch.inference_mode():
        step = 0
        while waiting or writing:
            if waiting and step % 2 == 0:
                prompt, token = _read(model, waiting[0], piece)
                batch.join(prompt)
                writing.append((waiting.pop(0), [token]))
            for (_, tokens), scores in zip(writing, batch.step([tokens[-1] for _, tokens in writing]), strict=True):
                tokens.append(int(scores.argmax()))
            staying = [place for place, (_, tokens) in enumerate(writing) if len(tokens) < _NUM_TOKENS]
            answers |= {name: tokens for name, tokens in writing if len(tokens) >= _NUM_TOKENS}
            if len(staying) < len(writing):
                batch.keep(staying)
                writing = [writing[place] for place in staying]
            step += 1

    assert answers == _alone(model)
    assert len({tuple(tokens) for tokens in answers.values()}) == len(_PROMPTS)


def test_what_the_longest_held_is_let_go_with_it(model: Any) -> None:
    """A batch is as wide as its longest answer; the shorter one goes on as if it had been alone."""
    import torch

    with torch.inference_mode():
        batch, (long, _), (short, token) = Batch(model), _read(model, _PROMPTS[0], 512), _read(model, _PROMPTS[1], 512)
        batch.join(long)
        batch.join(short)
        batch.keep([1])
        width = short.cache.get_seq_length()
        tokens = [token]
        for _ in range(_NUM_TOKENS - 1):
            tokens.append(int(batch.step([tokens[-1]])[0].argmax()))

    assert width == len(_PROMPTS[1])
    assert tokens == _alone(model)[_PROMPTS[1]]


def test_windows_of_attention_are_not_joined(model: Any) -> None:
    """They forget what is far away, each at its own place; such answers are written one at a time."""
    cache = new_cache(model)
    assert can_join(cache)

    from transformers.cache_utils import DynamicSlidingWindowLayer

    cache.layers[0] = DynamicSlidingWindowLayer(sliding_window=4)
    assert not can_join(cache)
