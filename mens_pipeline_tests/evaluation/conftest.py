"""Fixtures that are slow to make, and shared by several tests."""

import shutil
from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline_tests.evaluation.runs import trained
from mens_pipeline_tests.evaluation.trainable import rows_that_may_train


@pytest.fixture(scope="session")
def trainable_rows(tmp_path_factory: pytest.TempPathFactory, seed_run: Path) -> list[TrainingPair]:
    return rows_that_may_train(shutil.copytree(seed_run / "store", tmp_path_factory.mktemp("trainable") / "store"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return trained(tmp_path / "run")
