"""What tests of the scratch lane share with those of training."""

from mens_pipeline_tests.training.conftest import own_signals, watched_closely

__all__ = ["own_signals", "watched_closely"]
