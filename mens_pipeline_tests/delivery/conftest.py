"""What takes long to make and several tests need."""

from pathlib import Path

import pytest

from mens_pipeline_tests.delivery.delivered import trained_run
from mens_pipeline_tests.training.conftest import tiny_base

__all__ = ["tiny_base", "trained"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a tiny base, really trained, with held-out pairs beside its train set."""
    return trained_run(tmp_path_factory.mktemp("delivered"))
