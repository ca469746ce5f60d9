"""Near misses."""

import pytest

from mens_pipeline.language.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ("querry", "Did you mean `query`?"),
        ("mut", "Did you mean `mutation`?"),
        ("mu", None),
        ("banana", None),
        ("", None),
    ],
)
def test_the_nearest_word_is_offered(found: str, answer: str | None) -> None:
    """A similar word, else one that begins so; nothing far-fetched."""
    assert did_you_mean(found, ["query", "mutation", "server"]) == answer
