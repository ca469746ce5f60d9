"""Settings of a generation, and its progress."""

import re

import pytest
from pydantic import ValidationError

from mens_pipeline.inference.generation import Decoding, EvaluationConfig, Syntax, progress_of
from mens_pipeline.settings import EVALUATION
from mens_pipeline.storage.yaml_file import load_model


def test_several_samples_need_a_temperature() -> None:
    with pytest.raises(ValidationError, match="more than one sample needs a temperature above 0"):
        Decoding(num_samples=2)


def test_the_shipped_settings_are_greedy() -> None:
    assert load_model(EVALUATION, EvaluationConfig) == EvaluationConfig()
    assert EvaluationConfig(max_new_tokens=9).decoding == Decoding(max_new_tokens=9, syntax=Syntax.FALLBACK)


def test_progress_shows_count_and_speed() -> None:
    payload = {"num_done": 3, "num_answers": 9, "num_tokens": 300, "seconds": 2.0}

    assert re.fullmatch("3/9 completions, 150 tokens/s", progress_of(payload))
