"""Rows that train, and their categories."""

import pytest

from mens_pipeline.corpus.schema.records import (
    CATEGORIES,
    OTHER_NAMES,
    TrainingPair,
    unknown_category,
)
from mens_pipeline.language import CONSTRUCTS


@pytest.mark.seed_row(49)
def test_every_construct_is_a_category_and_other_names_lead_to_one() -> None:
    """The table is that of the language and a few tasks."""
    assert set(CONSTRUCTS) < CATEGORIES
    assert set(OTHER_NAMES.values()) < CATEGORIES
    assert not CATEGORIES & OTHER_NAMES.keys()


@pytest.mark.seed_row(49)
def test_a_row_has_the_category_that_its_name_means() -> None:
    """Whatever toolchain wrote it."""
    assert TrainingPair(prompt="p", response="r", category="server_fn").category == "server"
    assert TrainingPair(prompt="p", response="r", category="workflow").category == "workflow"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("workflow", None),
        ("documentation", None),
        ("workflw", "category 'workflw' is none. Did you mean `workflow`?"),
        ("zzz", "category 'zzz' is none"),
    ],
)
def test_another_name_is_none(name: str, found: str | None) -> None:
    """With the one that was probably meant."""
    assert unknown_category(name) == found
