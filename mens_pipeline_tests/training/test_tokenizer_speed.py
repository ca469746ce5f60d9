"""The speed at which requests and completions become tokens."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.models.chat import IM_END, render_prompt
from mens_pipeline_tests.bench.tokenizer import tokens_per_second
from mens_pipeline_tests.training.runs import pairs


@pytest.mark.seed_row(65)
def test_every_token_is_counted(tiny_base: Path) -> None:
    """One byte is one token of the tiny base, a control token is one; faster than a person reads."""
    rows = pairs(50)
    num_tokens, rate = tokens_per_second(tiny_base, rows)
    texts = [render_prompt(SYSTEM_PROMPT, row.prompt) + row.response.rstrip("\n") + IM_END for row in rows]
    markers = "<|im_start|>", "<|im_end|>"
    expected = sum(len(text) - sum(text.count(m) * (len(m) - 1) for m in markers) for text in texts)

    assert num_tokens == expected
    assert rate > 1_000
