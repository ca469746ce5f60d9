"""A trained run, as in the tests of evaluation."""

from mens_pipeline_tests.evaluation.conftest import run

__all__ = ["run"]
