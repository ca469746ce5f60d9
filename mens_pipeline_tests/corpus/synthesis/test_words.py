"""The word banks."""

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mens_pipeline.corpus.synthesis import families
from mens_pipeline.corpus.synthesis.families.templates import load_banks
from mens_pipeline.corpus.synthesis.words import (
    Entity,
    EntityField,
    ask,
    count_things,
    describe_fields,
    has_fields,
    is_plural,
    list_items,
    load_phrasing,
    load_words,
    with_article,
)
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import KEYWORDS
from mens_pipeline_tests.every import every, every_row

_WORDS = load_words()
_BANKS = load_banks(Path(families.__file__).parent)
_LITERALS = {"str": r'"[^"\\]+"', "int": r"-?\d+", "float": r"\d+\.\d+", "bool": "true|false"}

_each_entity = every("entity", _WORDS.entities, ids=lambda entity: entity.name)


def test_there_are_enough_entities() -> None:
    assert len(_WORDS.entities) >= 40
    assert len({entity.domain for entity in _WORDS.entities}) >= 12
    assert len({entity.name for entity in _WORDS.entities}) == len(_WORDS.entities)
    assert {entity.domain for entity in _WORDS.entities} == set(_WORDS.domains)


@_each_entity
def test_entities_are_well_formed(entity: Entity) -> None:
    names = [field.name for field in entity.fields]

    assert re.fullmatch("[A-Z][A-Za-z]+", entity.name)
    assert re.fullmatch("[a-z]+( [a-z]+)*", entity.plural)
    assert entity.noun.replace(" ", "_") == entity.variable
    assert entity.variable.endswith(entity.short)
    assert [field.type for field in entity.fields[:4]] == ["str", "str", "int", "bool"]
    assert (entity.label, entity.group, entity.number, entity.flag) == entity.fields[:4]
    assert 5 <= len(names) <= 8
    assert len(set(names)) == len(names)
    assert {entity.variable, entity.short, entity.collection, *names} & set(KEYWORDS) == set()


@every("field", [field for entity in _WORDS.entities for field in entity.fields])
def test_fields_have_fitting_examples(field: EntityField) -> None:
    assert re.fullmatch("[a-z][a-z_]*", field.name)
    assert field.declaration == f"{field.name}: {field.type}"
    assert field.words == field.name.replace("_", " ")
    assert len(set(field.examples)) == len(field.examples) >= 2
    assert all(re.fullmatch(_LITERALS[field.type], example) for example in field.examples)


def test_levels_are_not_added_up() -> None:
    added = {entity.number.name for entity in _WORDS.additive}

    assert added & {"celsius", "priority", "urgency"} == set()
    assert len(_WORDS.additive) >= 30


@every("sum_type", _BANKS["SUM_TYPES"], ids=lambda sum_type: sum_type.name)
def test_sum_types_are_well_formed(sum_type: Any) -> None:
    assert len(sum_type.variants) >= 3
    for name, fields, _, samples in sum_type.variants:
        assert re.fullmatch("[A-Z][A-Za-z]+", name)
        kinds = re.findall(r"\w+: (\w+)", fields)
        values = samples.split(", ") if samples else []
        assert all(re.fullmatch(_LITERALS[kind], value) for kind, value in zip(kinds, values, strict=True))


def test_enumerations_are_well_formed() -> None:
    for _, variants in _BANKS["ENUMS"] + _BANKS["CYCLES"]:
        assert len(set(variants)) == len(variants) >= 3
    assert {name for name, _ in _BANKS["ENUMS"]} & {name for name, _ in _BANKS["CYCLES"]} == set()


_BOOK = """domains: {library: [a library, a shelf]}
entities:
  - name: Book
    domain: library
    plural: books
    fields: {title: [Emma, Dune], author: [Austen, Herbert], pages: [180, 320], on_loan: bool, weight: [0.5, 1.5]}
"""


def test_words_are_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text(_BOOK, encoding="utf-8")
    (book,) = load_words(path).entities

    assert [field.type for field in book.fields] == ["str", "str", "int", "bool", "float"]
    assert [field.examples[0] for field in book.fields] == ['"Emma"', '"Austen"', "180", "true", "0.5"]
    assert book.adds_up


@every_row(
    ("domain: library", "domain: libary", r"Book: there is no domain 'libary' among `domains`"),
    ("[180, 320]", "[short, long]", r"the fields of Book begin with str, str, str, bool, not with str, str, int, bool"),
    ("[180, 320]", "[180]", r"entities\.0\.fields\.pages.*at least 2 items"),
    ("[180, 320]", "[2026-03-02, 2026-04-18]", r"entities\.0\.fields\.pages.*Input should be a valid"),
    ("pages:", "Pages:", r"entities\.0\.fields\.Pages"),
    ("plural: books", "plurals: books", r"entities\.0\.plural: Field required; entities\.0\.plurals: unknown"),
    (
        "entities:\n",
        "entities:\n  - {name: Book, domain: library, plural: b, fields: {a: [x,y], b: [x,y], c: [1,2],d: bool}}\n",
        "two entities Book",
    ),
)
def test_bad_words_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text(_BOOK.replace(old, new), encoding="utf-8")

    with pytest.raises(ConfigurationError, match=rf"words\.yaml: .*{message}.*Correct the file"):
        load_words(path)


def _seed(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def test_frames_are_many_and_have_a_hole() -> None:
    """At least a dozen distinct openings, each with a full stop or question mark."""
    frames = load_phrasing().frames

    assert len(set(frames)) == len(frames) >= 12
    assert all("{what}" in frame and frame[-1] in ".?" for frame in frames)


def test_frames_with_other_holes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "phrasing.yaml"
    path.write_text(
        "frames: ['Write {whot}.']\ncontext_frames: ['For {context}.']\nclosings: [Go.]\n", encoding="utf-8"
    )

    with pytest.raises(
        ConfigurationError, match=r"(?s)phrasing\.yaml: frames\.0: .*\['whot'\]; write .*context_frames\.0"
    ):
        load_phrasing(path)


def test_requests_keep_every_detail() -> None:
    for seed in range(200):
        request = ask(_seed(seed), "a table `Book`", "It has a title.", "", "It is small.", domain="library")

        assert "a table `Book`" in request
        assert request.index("It has a title.") < request.index("It is small.")
        assert "  " not in request


def test_requests_vary() -> None:
    requests = {
        ask(_seed(seed), "a type `Book`", "It has a title.", "It is small.", domain="library") for seed in range(300)
    }

    assert len(requests) > 80
    assert any("\n- " in request for request in requests)
    assert any("library" in request for request in requests)


def test_words_are_joined_as_in_sentences() -> None:
    assert [list_items(items) for items in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert [with_article(noun) for noun in ("book", "invoice", "`Invoice`")] == ["a book", "an invoice", "an `Invoice`"]
    assert [count_things(n, "field") for n in (0, 1, 3, 11)] == ["no fields", "one field", "three fields", "11 fields"]
    assert count_things(2, "index", "indexes") == "two indexes"


def test_verbs_agree() -> None:
    one = ("a table `Book`", "a function `f` with a type and a test")
    several = ("a table `Book` and an index", "a query endpoint for one book, and its table", "design tokens")

    assert [is_plural(what) for what in (*one, *several)] == [False] * 2 + [True] * 3


def test_fields_are_described_with_name_and_type() -> None:
    fields = load_words().entities[0].fields
    sentences = {has_fields(_seed(seed), "It", fields) for seed in range(60)}

    assert len(sentences) > 6
    assert all(f"`{field.name}" in sentence for sentence in sentences for field in fields)
    assert not any("fields the" in sentence for sentence in sentences)
    assert len({describe_fields(_seed(seed), fields[:1]) for seed in range(30)}) > 2
    assert has_fields(_seed(0), "It", fields[:1]).startswith(("It stores", "It holds"))
