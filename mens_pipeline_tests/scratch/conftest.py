"""What tests of the scratch lane share with those of training."""

from mens_pipeline_tests.training.conftest import watched_closely

__all__ = ["watched_closely"]
