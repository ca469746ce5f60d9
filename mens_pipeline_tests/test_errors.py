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
    assert did_you_mean(found, ["query", "mutation", "server"]) == completion


def test_a_near_miss_is_a_slip_alone() -> None:
    assert near_miss("querry", ["query", "mutation"]) == "Did you mean `query`?"
    assert near_miss("mut", ["query", "mutation"]) is None


def test_thousands_of_words_are_not_compared() -> None:
    known = [f"name{number}" for number in range(3000)]

    assert did_you_mean("name1x", known) is None
    assert near_miss("name1x", known) is None
