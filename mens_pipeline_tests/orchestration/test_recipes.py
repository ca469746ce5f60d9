"""The best of several adapters that passed the gate is chosen by pass@1."""

from collections.abc import Sequence

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.orchestration.recipes import Candidate, ranked
from mens_pipeline.promotion.benchmark_gate import KIND
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline_tests.evaluation.judged import BROKEN, GOOD, evaluation, judged_answers


def _candidate(name: str, answers: Sequence[str], second: Sequence[str | None] = ()) -> Candidate:
    """An adapter that gave these answers, the last of them to a task of a benchmark."""
    judged = judged_answers(evaluation([BROKEN] * len(answers), answers, second=second))
    return Candidate(name, f"sha256 of {name}", ArtifactRef(KIND, name), judged)


def _told(candidates: Sequence[Candidate], in_use: str | None = None) -> list[tuple[str, str, str]]:
    return [(p.candidate.name, p.rate.partition(" ")[0], p.behind) for p in ranked(candidates, in_use)]


def test_the_one_that_passes_most_comes_first() -> None:
    """By its first answers, as the gate judges: what the parser mends of the second tries does not count."""
    mended = _candidate("mended", [GOOD, BROKEN, BROKEN], second=[None, GOOD, GOOD])

    assert _told([_candidate("two", [GOOD, GOOD, BROKEN]), mended, _candidate("three", [GOOD] * 3)]) == [
        ("three", "3/3", ""),
        ("two", "2/3", "-33.3 points (p = 1.000)"),
        ("mended", "1/3", "-66.7 points (p = 0.500)"),
    ]


@pytest.mark.parametrize(("in_use", "first"), [(None, "b"), ("sha256 of a", "a"), ("another", "b")])
def test_of_equal_ones_the_adapter_in_use_stays(in_use: str | None, first: str) -> None:
    """Else the one that was named first."""
    candidates = [_candidate(name, answers) for name, answers in {"b": [GOOD, BROKEN], "a": [BROKEN, GOOD]}.items()]

    assert _told(candidates, in_use)[0][0] == first


def test_requests_that_all_were_asked_count() -> None:
    """One was asked a further file; and what belongs to no exam is left out."""
    long, short = _candidate("long", [BROKEN, GOOD, GOOD]), _candidate("short", [GOOD, GOOD])
    synthetic = [answer.model_copy(update={"suite": Suite.UNKNOWN_TASK}) for answer in long.answers]
    longer = Candidate("long", long.adapter_sha256, long.gate, (*long.answers, *synthetic))

    assert _told([longer, short]) == [("short", "1/1", ""), ("long", "0/1", "-100.0 points (p = 1.000)")]


def test_adapters_of_different_exams_are_not_ranked() -> None:
    """There is nothing to compare them by."""
    one = _candidate("one", [GOOD, GOOD])
    other = [answer.model_copy(update={"prompt": f"Another {answer.prompt}"}) for answer in one.answers]

    with pytest.raises(RefusedError, match="found no task that all were asked"):
        ranked([one, Candidate("other", "sha256", one.gate, other)], None)


def test_one_alone_is_the_best() -> None:
    """Where nothing else passed."""
    assert _told([_candidate("one", [BROKEN, GOOD])]) == [("one", "1/2", "")]
