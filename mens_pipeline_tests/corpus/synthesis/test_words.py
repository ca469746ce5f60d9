"""The word banks."""

import re

import pytest

from mens_pipeline.corpus.synthesis.families.variants import CYCLES, ENUMS, SUM_TYPES
from mens_pipeline.corpus.synthesis.words import ADDITIVE_ENTITIES, DOMAINS, ENTITIES, Entity, Field
from mens_pipeline.language.vocabulary import KEYWORDS
from mens_pipeline_tests.every import every

_LITERALS = {"str": r'"[^"\\]+"', "int": r"-?\d+", "float": r"\d+\.\d+", "bool": "true|false"}

_each_entity = every("entity", ENTITIES, ids=lambda entity: entity.name)


def test_there_are_enough_entities() -> None:
    """At least forty in at least twelve domains, no name twice."""
    assert len(ENTITIES) >= 40
    assert len({entity.domain for entity in ENTITIES}) >= 12
    assert len({entity.name for entity in ENTITIES}) == len(ENTITIES)
    assert {entity.domain for entity in ENTITIES} == set(DOMAINS)


@_each_entity
def test_entities_are_well_formed(entity: Entity) -> None:
    """Names fit the language, the fields have their roles, and no field name repeats."""
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


@every("field", [field for entity in ENTITIES for field in entity.fields])
def test_fields_have_fitting_examples(field: Field) -> None:
    """At least two different literals of the type of the field."""
    assert re.fullmatch("[a-z][a-z_]*", field.name)
    assert field.declaration == f"{field.name}: {field.type}"
    assert field.words == field.name.replace("_", " ")
    assert len(set(field.examples)) == len(field.examples) >= 2
    assert all(re.fullmatch(_LITERALS[field.type], example) for example in field.examples)


def test_levels_are_not_added_up() -> None:
    """A sum of temperatures or priorities means nothing."""
    added = {entity.number.name for entity in ADDITIVE_ENTITIES}

    assert added & {"celsius", "priority", "urgency"} == set()
    assert len(ADDITIVE_ENTITIES) >= 30


@pytest.mark.parametrize("sum_type", SUM_TYPES, ids=lambda sum_type: sum_type.name)
def test_sum_types_are_well_formed(sum_type: object) -> None:
    """Each variant has a sample for each of its fields, in the type of the field."""
    variants = next(one for one in SUM_TYPES if one is sum_type).variants

    assert len(variants) >= 3
    for variant in variants:
        kinds = [kind for _, kind in variant.fields]
        assert len(kinds) == len(variant.samples)
        assert all(re.fullmatch(_LITERALS[kind], sample) for kind, sample in zip(kinds, variant.samples, strict=True))


def test_enumerations_are_well_formed() -> None:
    """Three variants or more, none twice; a cycle is no ladder."""
    for _, variants in ENUMS + CYCLES:
        assert len(set(variants)) == len(variants) >= 3
    assert {name for name, _ in ENUMS} & {name for name, _ in CYCLES} == set()
