"""Families of templates, and the properties of their programs."""

import re
from collections import Counter
from functools import cache
from random import Random

import pytest

from mens_pipeline.corpus.synthesis.families.templates import Family, Sample, load_families
from mens_pipeline.language import CONSTRUCTS, analyze, construct_of, difficulty
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.examples import parse

_each_family = every("family", load_families, ids=lambda family: family.name)


def _combinations() -> list[Family]:
    return [family for family in load_families() if family.name.startswith("combination/")]


def _make(family: Family, seed: int) -> Sample:
    return family.make(Random(seed))  # noqa: S311 - a reproducible draw, no secret


@pytest.fixture(params=[60, pytest.param(300, marks=pytest.mark.nightly)])
def num_draws(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@cache
def _draw(family: Family, num_draws: int = 20) -> tuple[Sample, ...]:
    return tuple(_make(family, seed) for seed in range(num_draws))


@pytest.mark.slow
@pytest.mark.parametrize("num_checked", [5, pytest.param(20, marks=pytest.mark.nightly)])
@_each_family
def test_programs_are_accepted_without_diagnostics(family: Family, num_checked: int) -> None:
    for sample in _draw(family, num_checked):
        analysis = analyze(sample.response, sample.mode)

        assert analysis.module is not None
        assert analysis.diagnostics == ()
        assert family.construct in {construct_of(d).name for d in analysis.module.declarations}


@_each_family
def test_samples_are_formatted(family: Family, num_draws: int) -> None:
    assert family.construct in CONSTRUCTS
    for sample in _draw(family, num_draws):
        lines = sample.response.split("\n")

        assert (sample.template, sample.construct) == (family.name, family.construct)
        assert lines[-1] == ""
        assert lines[-2] != ""
        assert "\n\n\n" not in sample.response
        for line in lines:
            assert line == line.rstrip()
            assert len(line) <= 120
            assert (len(line) - len(line.lstrip(" "))) % 4 == 0
        assert sample.prompt == sample.prompt.strip()
        assert sample.prompt.rstrip('"')[-1] in ".?"
        holes = ("{what}", "{do}", "{context}", "{opening}", "None.", "..  ")
        assert not [hole for hole in holes if hole in sample.prompt]
        if "```" not in sample.prompt:
            assert "  " not in re.sub('"[^"]*"', "text", sample.prompt)


@_each_family
def test_families_are_large(family: Family, num_draws: int) -> None:
    drawn = _draw(family, num_draws)

    assert len({(sample.prompt, sample.response) for sample in drawn}) >= num_draws / 2
    assert len({sample.response for sample in drawn}) >= num_draws / 6


@_each_family
def test_the_same_seed_gives_the_same_sample(family: Family) -> None:
    assert [_make(family, seed) for seed in range(3)] == list(_draw(family)[:3])


def test_every_construct_has_two_families() -> None:
    counts = Counter(family.construct for family in load_families() if family not in _combinations())

    assert {name for name in CONSTRUCTS if counts[name] < 2} == set()


def test_names_are_unique() -> None:
    assert len({family.name for family in load_families()}) == len(load_families())
    assert [
        f.name for f in load_families() if f not in _combinations() and not f.name.startswith(f"{f.construct}/")
    ] == []


@every("family", _combinations, ids=lambda family: family.name)
def test_combinations_teach_their_hardest_construct(family: Family) -> None:
    for sample in _draw(family):
        module = parse(sample.response, sample.mode)

        assert len(module.declarations) >= 2
        assert CONSTRUCTS[family.construct].difficulty == difficulty(module)
