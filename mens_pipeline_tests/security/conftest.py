"""What tests of hostile models share with those that train."""

from mens_pipeline_tests.training.conftest import own_signals, tiny_base

__all__ = ["own_signals", "tiny_base"]
