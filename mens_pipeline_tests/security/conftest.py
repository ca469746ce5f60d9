"""What tests of hostile models share with those that train."""

from mens_pipeline_tests.training.conftest import own_signals

__all__ = ["own_signals"]
