"""A store and a trained run, as tests of evaluation have them."""

from mens_pipeline_tests.evaluation.conftest import run, store

__all__ = ["run", "store"]
