"""Answers of a model, many at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.inference import decode as decode_module
from mens_pipeline.inference.decode import Row, Vocabulary, decode
from mens_pipeline.inference.generation import Decoding
from mens_pipeline_tests.evaluation.hybrid import hybrid_model

_PROMPTS = ("Write a function.", "A type, please, with two fields.", "x", "Why?", "An actor `Printer` with a handler.")


@pytest.fixture(scope="module")
def model(tiny_base: Path) -> Any:
    """The tiny base in full precision."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_base).eval()


def _rows(samples: int = 1) -> list[Row]:
    return [Row(text, sample, tuple(text.encode())) for text in _PROMPTS for sample in range(samples)]


def _answers(
    model: Any, rows: list[Row], stop: frozenset[int] = frozenset(), **decoding: Any
) -> dict[tuple[str, int], tuple[list[int], bool]]:
    decode(model, rows, Vocabulary(stop, 0), Decoding(**decoding), lambda _row: None)
    return {(row.name, row.sample): (row.tokens, row.stopped) for row in rows}


def test_greedy_answers_are_those_of_the_library(model: Any) -> None:
    """A batch with padding gives, row by row, what `generate` gives for one row without."""
    import torch

    answers = _answers(model, _rows(), max_new_tokens=12)

    for text in _PROMPTS:
        ids = torch.tensor([list(text.encode())])
        mask = torch.ones_like(ids)
        output = model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=-1)
        assert answers[text, 0] == (output[0, ids.shape[1] :].tolist(), False)


def test_the_size_of_a_batch_changes_nothing(model: Any) -> None:
    """One at a time, or all at once."""
    settings: dict[str, Any] = {"max_new_tokens": 10, "num_samples": 3, "temperature": 1.0}

    together = _answers(model, _rows(3), **settings, batch_tokens=12_288)
    alone = _answers(model, _rows(3), **settings, batch_tokens=256)

    assert together == alone


def test_the_likelihood_of_an_answer_is_that_of_its_tokens(model: Any) -> None:
    """Added up while it is written; as one pass over the whole text gives it."""
    import torch

    rows = [replace(row, log_probability=0.0) for row in _rows()]
    _answers(model, rows, max_new_tokens=8, temperature=1.0)
    for row in rows:
        with torch.inference_mode():
            scores = model(torch.tensor([[*row.prompt, *row.tokens]])).logits[0].float().log_softmax(-1)
        each = [scores[len(row.prompt) - 1 + place, token] for place, token in enumerate(row.tokens)]
        assert row.log_probability == pytest.approx(float(sum(each)), abs=1e-3)
    assert _rows()[0].log_probability is None


def test_a_row_ends_where_its_turn_ends(model: Any) -> None:
    """The others go on; each is reported once, when it has ended."""
    free = _answers(model, _rows(), max_new_tokens=20)
    stop = frozenset({free[_PROMPTS[0], 0][0][5]})
    done: list[str] = []
    rows = _rows()
    decode(model, rows, Vocabulary(stop, 0), Decoding(max_new_tokens=20), lambda row: done.append(row.name))

    assert sorted(done) == sorted(_PROMPTS)
    for row in rows:
        whole = free[row.name, 0][0]
        end = next((place for place, token in enumerate(whole) if token in stop), None)
        assert row.stopped == (end is not None)
        assert row.tokens == (whole if end is None else whole[: end + 1])


def test_a_place_that_gets_free_is_filled_without_a_change(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token what batches that only shrink give; rows of very different length have room of their own."""
    rows = [Row(f"{text}{n}", 0, tuple((text + "?" * n).encode())) for text in _PROMPTS for n in (0, 7, 90)]
    stop = frozenset(range(32, 64))
    settings: dict[str, Any] = {"max_new_tokens": 24, "temperature": 1.0, "batch_tokens": 256}
    filled = _answers(model, [replace(row, tokens=[]) for row in rows], stop, **settings)
    monkeypatch.setattr(decode_module, "sees_everything", lambda _config: False)
    shrinking = _answers(model, [replace(row, tokens=[]) for row in rows], stop, **settings)

    assert filled == shrinking
    assert len({len(tokens) for tokens, _ in filled.values()}) > 3


def test_samples_differ_and_come_again(model: Any) -> None:
    """The seed decides them, with request and number of the sample; nothing else does."""
    settings: dict[str, Any] = {"max_new_tokens": 16, "num_samples": 4, "temperature": 1.0}

    first = _answers(model, _rows(4), **settings)
    alone = _answers(model, [Row(_PROMPTS[1], 2, tuple(_PROMPTS[1].encode()))], **settings)
    other = _answers(model, _rows(4), **settings, seed=7)

    assert len({tuple(first[_PROMPTS[0], sample][0]) for sample in range(4)}) == 4
    assert alone[_PROMPTS[1], 2] == first[_PROMPTS[1], 2]
    assert other != first


def test_a_narrow_choice_is_the_greedy_one(model: Any) -> None:
    """With hardly any probability to sample from, the most likely token alone is left."""
    sampled = _answers(model, _rows(), max_new_tokens=8, temperature=1.0, top_p=1e-9)

    assert sampled == _answers(model, _rows(), max_new_tokens=8)


def test_linear_attention_lets_rows_leave_as_well() -> None:
    """Rows of a model such as Qwen3.5 end one by one, and give what `generate` gives for each alone."""
    import torch

    model, stop = hybrid_model(), frozenset(range(40))
    answers = _answers(model, _rows(), stop, max_new_tokens=12)

    assert len({len(tokens) for tokens, _ in answers.values()}) > 1
    for text in _PROMPTS:
        ids = torch.tensor([list(text.encode())])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, eos_token_id=sorted(stop)
        )
        assert answers[text, 0][0] == output[0, ids.shape[1] :].tolist()
