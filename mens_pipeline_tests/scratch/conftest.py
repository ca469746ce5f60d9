"""Fixtures that the scratch lane shares with training."""

from mens_pipeline_tests.training.conftest import watched_closely

__all__ = ["watched_closely"]
