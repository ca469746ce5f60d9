"""A trained run, as tests of evaluation have it."""

from mens_pipeline_tests.evaluation.conftest import run

__all__ = ["run"]
