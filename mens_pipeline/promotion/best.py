"""The best of several adapters that passed: by pass@1 over the prompts of the exam that all of them were asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mens_pipeline.evaluation.results import JudgedAnswer
from mens_pipeline.evaluation.statistics import p_text
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.promotion.report.leaderboard import RANKED_BY, SHOWN, Contestant, leaderboard
from mens_pipeline.promotion.report.score_table import points
from mens_pipeline.storage.store import ArtifactRef

_EXAM: Final = frozenset({Suite.HELDOUT, Suite.BENCHMARK})


@dataclass(frozen=True, slots=True)
class Candidate:
    """An adapter that may be promoted."""

    name: str
    adapter_sha256: str
    gate: ArtifactRef
    answers: Sequence[JudgedAnswer]


@dataclass(frozen=True, slots=True)
class Place:
    """One of several adapters.

    Attributes:
        rate: What it came to, as people read it.
        behind: By how much it is behind the best, with the exact paired test; empty for the best.
    """

    candidate: Candidate
    rate: str
    behind: str


def ranked(candidates: Sequence[Candidate], in_use: str | None) -> tuple[Place, ...]:
    """Rank adapters that may be promoted by pass@1; of equal ones that in use comes first, then as they are given.

    That one is better than another may be chance, and the test says how likely. It is no further hurdle: each of them
    passed on its own, and was compared with the champion.

    Raises:
        RefusedError: They were asked no prompt in common.
    """
    board = leaderboard([Contestant(one.name, tuple(filter(_is_of_exam, one.answers))) for one in candidates])
    rates = {standing.contestant.name: standing.rates[SHOWN.index(RANKED_BY)] for standing in board.standings}
    ordered = sorted(candidates, key=lambda one: (-(rates[one.name].value or 0.0), one.adapter_sha256 != in_use))
    best, behind = ordered[0].name, {ordered[0].name: ""}
    for duel in board.duels(RANKED_BY):
        others = {duel.first, duel.second} - {best}
        if len(others) == 1:  # of equal ones either may be the second, and the difference is zero
            behind[others.pop()] = f"{points(-abs(duel.difference))} ({p_text(duel.p_value)})"
    return tuple(Place(one, str(rates[one.name]), behind[one.name]) for one in ordered)


def _is_of_exam(answer: JudgedAnswer) -> bool:
    """Whether the gate judges by it: neither a second try, nor an answer to a synthetic task."""
    return answer.model == "adapter" and answer.suite in _EXAM
