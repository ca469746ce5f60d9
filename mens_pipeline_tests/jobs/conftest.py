"""Fixtures of trainings, for jobs."""

from mens_pipeline_tests.training.conftest import own_signals

__all__ = ["own_signals"]
