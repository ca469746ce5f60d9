"""Families of templates: what each promises of its programs."""

import re
from collections import Counter
from functools import cache
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.families.templates import Family, Sample, load_families
from mens_pipeline.language import CONSTRUCTS, analyze, construct_of, difficulty
from mens_pipeline_tests.every import every

_DRAWS = 300
_JUDGED = 20
_COMBINATIONS = [family for family in load_families() if family.name.startswith("combination/")]

_each_family = every("family", load_families(), ids=lambda family: family.name)


def _make(family: Family, seed: int) -> Sample:
    return family.make(Random(seed))  # noqa: S311 - a reproducible draw, no secret


@cache
def _drawn(family: Family) -> tuple[Sample, ...]:
    return tuple(_make(family, seed) for seed in range(_DRAWS))


@pytest.mark.slow
@_each_family
def test_programs_are_accepted_without_a_word(family: Family) -> None:
    """The front end accepts each program, reports nothing, and finds the construct in it."""
    for sample in _drawn(family)[:_JUDGED]:
        analysis = analyze(sample.response, sample.mode)

        assert analysis.module is not None
        assert analysis.diagnostics == ()
        assert family.construct in {construct_of(d).name for d in analysis.module.declarations}


@_each_family
def test_samples_carry_the_names_of_their_family(family: Family) -> None:
    """A sample says which family made it and what it teaches."""
    assert family.construct in CONSTRUCTS
    assert {(sample.template, sample.construct) for sample in _drawn(family)} == {(family.name, family.construct)}


@_each_family
def test_programs_are_laid_out(family: Family) -> None:
    """One newline at the end, indentation by four, no trailing blanks, no run of empty lines, at most 120 columns."""
    for sample in _drawn(family):
        lines = sample.response.split("\n")

        assert lines[-1] == ""
        assert lines[-2] != ""
        assert "\n\n\n" not in sample.response
        for line in lines:
            assert line == line.rstrip()
            assert len(line) <= 120
            assert (len(line) - len(line.lstrip(" "))) % 4 == 0


@_each_family
def test_prompts_are_text(family: Family) -> None:
    """A prompt is made of whole sentences: no hole left open, no doubled blank, something at the end."""
    for sample in _drawn(family):
        assert sample.prompt == sample.prompt.strip()
        assert sample.prompt.rstrip('"')[-1] in ".?"
        assert not [
            hole for hole in ("{what}", "{do}", "{context}", "{opening}", "None.", "..  ") if hole in sample.prompt
        ]
        if "```" not in sample.prompt:
            assert "  " not in re.sub('"[^"]*"', "text", sample.prompt)


@_each_family
def test_families_are_large(family: Family) -> None:
    """At least half of the pairs of 300 seeds differ, and the programs do, too."""
    drawn = _drawn(family)

    assert len({(sample.prompt, sample.response) for sample in drawn}) >= 150
    assert len({sample.response for sample in drawn}) >= 50


@_each_family
def test_the_same_seed_gives_the_same_sample(family: Family) -> None:
    """Nothing but the generator decides."""
    assert [_make(family, seed) for seed in range(3)] == list(_drawn(family)[:3])


def test_every_construct_has_two_families() -> None:
    """Each construct is taught by two shapes or more, combinations not counted."""
    counts = Counter(family.construct for family in load_families() if family not in _COMBINATIONS)

    assert {name for name in CONSTRUCTS if counts[name] < 2} == set()


def test_names_are_unique() -> None:
    """A name says which family it is, and its first part the construct."""
    assert len({family.name for family in load_families()}) == len(load_families())
    assert [
        f.name for f in load_families() if f not in _COMBINATIONS and not f.name.startswith(f"{f.construct}/")
    ] == []


@every("family", _COMBINATIONS, ids=lambda family: family.name)
def test_combinations_teach_their_hardest_construct(family: Family) -> None:
    """Several declarations, filed under one of the hardest among them."""
    for sample in _drawn(family)[:_JUDGED]:
        module = analyze(sample.response, sample.mode).module

        assert module is not None
        assert len(module.declarations) >= 2
        assert CONSTRUCTS[family.construct].difficulty == difficulty(module)
