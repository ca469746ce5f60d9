"""The best of several adapters that passed the gate is chosen by pass@1."""

from collections.abc import Sequence

import pytest

from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.orchestration.recipes import Candidate, rank
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, evaluation, scored_completions


def _candidate(name: str, completions: Sequence[str], second: Sequence[str | None] = ()) -> Candidate:
    scored = scored_completions(evaluation([BROKEN] * len(completions), completions, second=second))
    return Candidate(name, f"sha256 of {name}", ArtifactRef(Kind.BENCHMARK_GATE, name), scored)


def _list_places(candidates: Sequence[Candidate], in_use: str | None = None) -> list[tuple[str, str, str]]:
    return [(p.candidate.name, p.rate.partition(" ")[0], p.behind) for p in rank(candidates, in_use)]


def test_the_recipe_that_passes_most_comes_first() -> None:
    """By first completions, as in the gate: constrained second tries do not count."""
    mended = _candidate("mended", [GOOD, BROKEN, BROKEN], second=[None, GOOD, GOOD])

    assert _list_places([_candidate("two", [GOOD, GOOD, BROKEN]), mended, _candidate("three", [GOOD] * 3)]) == [
        ("three", "3/3", ""),
        ("two", "2/3", "-33.3 points (p = 1.000)"),
        ("mended", "1/3", "-66.7 points (p = 0.500)"),
    ]


@pytest.mark.parametrize(("in_use", "first"), [(None, "b"), ("sha256 of a", "a"), ("another", "b")])
def test_among_equal_recipes_the_champion_stays(in_use: str | None, first: str) -> None:
    candidates = [
        _candidate(name, completions) for name, completions in {"b": [GOOD, BROKEN], "a": [BROKEN, GOOD]}.items()
    ]

    assert _list_places(candidates, in_use)[0][0] == first


def test_only_prompts_that_all_completed_count() -> None:
    long, short = _candidate("long", [BROKEN, GOOD, GOOD]), _candidate("short", [GOOD, GOOD])
    synthetic = [completion.model_copy(update={"suite": Suite.UNKNOWN_TASK}) for completion in long.completions]
    longer = Candidate("long", long.adapter_sha256, long.gate, (*long.completions, *synthetic))

    assert _list_places([longer, short]) == [("short", "1/1", ""), ("long", "0/1", "-100.0 points (p = 1.000)")]


def test_a_single_recipe_is_the_best() -> None:
    assert _list_places([_candidate("one", [BROKEN, GOOD])]) == [("one", "1/2", "")]
