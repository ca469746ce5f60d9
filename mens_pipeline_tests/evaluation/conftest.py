"""What tests that generate share."""

from pathlib import Path

import pytest

from mens_pipeline_tests.training.tiny_base import write_tiny_base


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of two layers."""
    return write_tiny_base(tmp_path_factory.mktemp("base") / "tiny")
