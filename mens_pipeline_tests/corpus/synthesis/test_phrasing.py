"""How requests are worded."""

from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.phrasing import (
    ask,
    counted,
    described_fields,
    has_fields,
    is_plural,
    listed,
    load_phrasing,
    with_article,
)
from mens_pipeline.corpus.synthesis.words import load_words
from mens_pipeline.errors import ConfigurationError


def _seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def test_frames_are_many_and_hold_what_is_wanted() -> None:
    """At least a dozen openings, all different, each with the thing itself and a full stop or question mark."""
    frames = load_phrasing().frames

    assert len(set(frames)) == len(frames) >= 12
    assert all("{what}" in frame and frame[-1] in ".?" for frame in frames)


def test_frames_with_other_holes_are_refused(tmp_path: Path) -> None:
    """The message says which frame, and which holes there are."""
    path = tmp_path / "phrasing.yaml"
    path.write_text(
        "frames: ['Write {whot}.']\ncontext_frames: ['For {context}.']\nclosings: [Go.]\n", encoding="utf-8"
    )

    with pytest.raises(
        ConfigurationError, match=r"(?s)phrasing\.yaml: frames\.0: .*\['whot'\]; write .*context_frames\.0"
    ):
        load_phrasing(path)


def test_requests_keep_every_detail() -> None:
    """Whatever the wording, the thing and its details are there, in their order; empty details leave no trace."""
    for seed in range(200):
        request = ask(_seeded(seed), "a table `Book`", "It has a title.", "", "It is small.", domain="library")

        assert "a table `Book`" in request
        assert request.index("It has a title.") < request.index("It is small.")
        assert "  " not in request


def test_requests_vary() -> None:
    """Openings, contexts, lists and closings make many requests of one."""
    requests = {
        ask(_seeded(seed), "a type `Book`", "It has a title.", "It is small.", domain="library") for seed in range(300)
    }

    assert len(requests) > 80
    assert any("\n- " in request for request in requests)
    assert any("library" in request for request in requests)


@pytest.mark.parametrize(
    ("items", "text"),
    [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
    ids=["one", "two", "three"],
)
def test_lists_read_as_sentences_do(items: list[str], text: str) -> None:
    """Commas between, `and` before the last."""
    assert listed(items) == text


@pytest.mark.parametrize(
    ("noun", "text"),
    [("book", "a book"), ("invoice", "an invoice"), ("`Invoice`", "an `Invoice`")],
    ids=["consonant", "vowel", "code"],
)
def test_articles_fit_the_noun(noun: str, text: str) -> None:
    """`an` before a vowel, in code too."""
    assert with_article(noun) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "no fields"), (1, "one field"), (3, "three fields"), (11, "11 fields")],
    ids=["none", "one", "few", "many"],
)
def test_numbers_agree_with_their_noun(number: int, text: str) -> None:
    """One is singular; the small ones are words."""
    assert counted(number, "field") == text


def test_irregular_plurals_can_be_given() -> None:
    """`index` is not `indexs`."""
    assert counted(2, "index", "indexes") == "two indexes"


@pytest.mark.parametrize(
    ("what", "plural"),
    [
        ("a table `Book`", False),
        ("a function `f` with a type and a test", False),
        ("a table `Book` and an index", True),
        ("a query endpoint for one book, and its table", True),
        ("design tokens", True),
    ],
    ids=["one", "with-others", "two", "comma", "no-article"],
)
def test_verbs_agree(what: str, *, plural: bool) -> None:
    """Several things `do`, one thing `does`."""
    assert is_plural(what) is plural


def test_fields_are_described_with_name_and_type() -> None:
    """Each way to list fields names all of them and never says `the fields the`."""
    fields = load_words().entities[0].fields
    sentences = {has_fields(_seeded(seed), "It", fields) for seed in range(60)}

    assert len(sentences) > 6
    assert all(f"`{field.name}" in sentence for sentence in sentences for field in fields)
    assert not any("fields the" in sentence for sentence in sentences)
    assert len({described_fields(_seeded(seed), fields[:1]) for seed in range(30)}) > 2
    assert has_fields(_seeded(0), "It", fields[:1]).startswith(("It stores", "It holds"))
