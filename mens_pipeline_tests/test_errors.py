"""Near misses."""

import pytest

from mens_pipeline.errors import did_you_mean, near_miss


@pytest.mark.parametrize(
    ("found", "completion"),
    [
        ("querry", "Did you mean `query`?"),
        ("mut", "Did you mean `mutation`?"),
        ("mu", None),
        ("banana", None),
        ("", None),
    ],
)
def test_the_nearest_word_is_offered(found: str, completion: str | None) -> None:
    """A similar word, else one that begins so; nothing far-fetched."""
    assert did_you_mean(found, ["query", "mutation", "server"]) == completion


def test_a_near_miss_is_a_slip_alone() -> None:
    """A word that only begins alike is none."""
    assert near_miss("querry", ["query", "mutation"]) == "Did you mean `query`?"
    assert near_miss("mut", ["query", "mutation"]) is None


def test_thousands_of_words_are_not_compared() -> None:
    """A long program with many unknown names is answered in time."""
    known = [f"name{number}" for number in range(3000)]

    assert did_you_mean("name1x", known) is None
    assert near_miss("name1x", known) is None
