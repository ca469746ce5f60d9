"""Suggestions for misspelt words."""

import pytest

from mens_pipeline.errors import did_you_mean, near_miss


@pytest.mark.parametrize(
    ("found", "suggestion"),
    [
        ("querry", "Did you mean `query`?"),
        ("mut", "Did you mean `mutation`?"),
        ("mu", None),
        ("banana", None),
        ("", None),
    ],
)
def test_suggests_the_nearest_word(found: str, suggestion: str | None) -> None:
    assert did_you_mean(found, ["query", "mutation", "server"]) == suggestion


def test_only_a_typo_is_a_near_miss() -> None:
    assert near_miss("querry", ["query", "mutation"]) == "Did you mean `query`?"
    assert near_miss("mut", ["query", "mutation"]) is None


def test_thousands_of_words_are_not_compared() -> None:
    known = [f"name{number}" for number in range(3000)]

    assert did_you_mean("name1x", known) is None
    assert near_miss("name1x", known) is None
