"""Rows that train, and their categories."""

import pytest

from mens_pipeline.corpus.schema.records import CATEGORIES, TrainingPair
from mens_pipeline.corpus.schema.upstream_rows import OTHER_NAMES
from mens_pipeline.language import CONSTRUCTS


@pytest.mark.seed_row(49)
def test_every_construct_is_a_category_and_other_names_map_to_one() -> None:
    assert set(CONSTRUCTS) < CATEGORIES
    assert set(OTHER_NAMES.values()) < CATEGORIES
    assert not CATEGORIES & OTHER_NAMES.keys()


@pytest.mark.seed_row(49)
def test_other_names_of_categories_are_translated() -> None:
    assert TrainingPair(prompt="p", response="r", category="server_fn").category == "server"
    assert TrainingPair(prompt="p", response="r", category="workflow").category == "workflow"
