"""The trained run of the tests of evaluation, and the tiny base as a model and its tokenizer."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline_tests.evaluation.conftest import run

__all__ = ["run"]


@pytest.fixture(scope="session")
def tokenizer(tiny_base: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_base)


@pytest.fixture(scope="module")
def model(tiny_base: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_base).eval()
