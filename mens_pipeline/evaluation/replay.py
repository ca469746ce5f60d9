"""Replay a git history: compare the completions of an adapter with lines that were added later, week by week.

The sampling unit of all intervals and tests is the commit, since lines of one commit are correlated.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mens_pipeline.corpus.infill.history import History, week_of
from mens_pipeline.corpus.schema.account import counts_of
from mens_pipeline.corpus.schema.reasons import ReplayDrop
from mens_pipeline.corpus.schema.records import HoleKind
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.infill import Holes, InfillTask, build_holes, score_holes
from mens_pipeline.evaluation.results import InfillModel, InsertScore
from mens_pipeline.evaluation.statistics import Rate, mean_rate, p_text
from mens_pipeline.inference.generation import Completion, EvaluationConfig
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.storage.kinds import ReplayFile
from mens_pipeline.storage.validation import Strict

RESULTS: Final = ReplayFile.RESULTS
SHOWN_MODELS: Final[dict[InfillModel, str]] = {
    "ngram": "n-gram",
    "left_to_right": "left to right",
    "champion": "adapter before",
}
"""Model -> display name, if it differs."""

_LEAST_COMMITS: Final = 12  # fewer commits cannot show whether figures fall
_ALPHA: Final = 0.05
_SHUFFLES: Final = 10_000
_AT_ONCE: Final = 1_000
_ROUNDING: Final = 1e-12


class ReplayRates(Strict):
    """Figures over some holes; intervals are over commits."""

    num_holes: int = Field(ge=0)
    num_commits: int = Field(ge=0)
    exact: Rate = Field(description="Pieces equal to the added lines, up to white space.")
    kept: Rate = Field(description="Mean length of the correct prefix of a piece, as a share of the added lines.")
    parses: Rate = Field(description="Free pieces with which the program parses.")


class Drift(Strict):
    """Whether `kept` falls from the earlier half of the commits to the later half."""

    verdict: Literal["cannot tell", "holds", "falls"]
    num_commits: int = Field(ge=0)
    first: Rate = Field(description="`kept` in the earlier half.")
    recent: Rate = Field(description="`kept` in the later half.")
    p_value: float | None = Field(description="p-value of the fall, by a permutation test; null for too few commits.")
    hint: str = Field(description="Advice on a fall; empty without one.")

    def __str__(self) -> str:
        if self.p_value is None:
            return f"cannot tell: {self.num_commits} commits with holes, {_LEAST_COMMITS} are needed"
        halves = f"{_percent(self.first)} kept in the earlier half of {self.num_commits} commits"
        text = f"{self.verdict}: {halves}, {_percent(self.recent)} in the later half ({p_text(self.p_value)})"
        return f"{text}. {self.hint}" if self.hint else text


class ReplayFacts(Strict):
    """The replayed commits, and the adapter."""

    adapter_sha256: str
    base_model: str
    since: str = Field(description="The requested commit or date.")
    begin: int = Field(description="Time of `since`, in seconds since 1970; the first week starts here.")
    seen: int = Field(ge=0, description="Changed places, plus commits and files that were skipped as a whole.")
    dropped: dict[str, int] = Field(description="Reason -> number of these that gave no hole.")
    times: dict[str, int] = Field(description="Hole -> seconds from `begin` to its commit; 0 for an older commit.")
    champion: str | None = Field(description="Key of the previous adapter in the store, if any.")


class ReplayResults(ReplayFacts):
    """`replay_results.json`: figures of every model, and whether those of the adapter fall."""

    parts: dict[str, dict[InfillModel, ReplayRates]] = Field(
        description="`all`, `lines` (single lines, the only holes for base, n-gram and left to right), or the number "
        "of a week -> model -> figures. `champion` is the previous adapter."
    )
    drift: Drift


def build_replay_holes(
    history: History, train: Path, manifest: TrainingManifest, config: EvaluationConfig, fits: Callable[[str], bool]
) -> Holes:
    """Turn the holes of a history into tasks; count holes that are too long for a piece as dropped.

    `RefusedError` if the adapter was not trained on holes, or its train set is missing or was changed.
    """
    if not manifest.is_taught:
        found = "the adapter was not trained to complete at a cursor"
        raise RefusedError(f"{manifest.name}: {found}. Train one with `mens run --infill-share 0.2`.")
    fitting = [hole for hole in history.holes if fits(hole.middle)]
    num_long = len(history.holes) - len(fitting)
    history.dropped[ReplayDrop.TOO_LONG] += num_long
    history.kept, history.holes = history.kept - num_long, fitting
    history.check()
    tasks = tuple(
        InfillTask(
            id=f"{hole.commit[:12]}:{hole.path}:{hole.digest.hex()[:12]}",
            file=hole.commit[:12],
            kind=HoleKind.STATEMENTS if "\n" in hole.middle else HoleKind.LINE,
            prefix=hole.prefix,
            middle=hole.middle,
            suffix=hole.suffix,
            mode=hole.mode,
            has_tests=False,
        )
        for hole in fitting
    )
    lines = tuple(task for task in tasks if task.kind is HoleKind.LINE)
    return build_holes(tasks, lines, train, manifest, config)


def describe_replay(history: History, holes: Holes, since: str, adapter: Adapter, champion: str | None) -> ReplayFacts:
    """Describe a replay; `champion` is the key of the previous adapter."""
    times = (max(0, hole.time - history.begin) for hole in history.holes)
    return ReplayFacts(
        adapter_sha256=adapter.digest,
        base_model=adapter.manifest.base_model.name,
        since=since,
        begin=history.begin,
        seen=history.seen,
        dropped=counts_of(ReplayDrop, history.dropped),
        times=dict(zip((task.id for task in holes.tasks), times, strict=True)),
        champion=champion,
    )


def score_replay(
    holes: Holes, completions: Mapping[str, Sequence[Completion]], facts: ReplayFacts
) -> tuple[ReplayResults, list[InsertScore]]:
    """Score the pieces of all models; `completions` maps names of generations to completions."""
    _, scores = score_holes(holes, completions, facts.champion)
    parts: defaultdict[str, defaultdict[InfillModel, list[InsertScore]]] = defaultdict(lambda: defaultdict(list))
    for score in sorted((score for score in scores if score.model != "served"), key=lambda s: facts.times[s.task]):
        lines = ("lines",) if score.kind == HoleKind.LINE else ()
        for part in ("all", *lines, str(week_of(facts.times[score.task]))):
            parts[part][score.model].append(score)
    results = ReplayResults(
        **facts.model_dump(),
        parts={
            part: {model: compute_replay_rates(some) for model, some in models.items()}
            for part, models in parts.items()
        },
        drift=compute_drift(parts["all"]["adapter"], parts["all"]["ngram"], facts.times),
    )
    return results, scores


def compute_replay_rates(scores: Sequence[InsertScore]) -> ReplayRates:
    """Compute the figures over some holes."""
    commits = [score.file for score in scores]
    return ReplayRates(
        num_holes=len(scores),
        num_commits=len(set(commits)),
        exact=mean_rate([float(score.exact) for score in scores], commits),
        kept=mean_rate([score.kept for score in scores], commits),
        parses=mean_rate([float(score.parses) for score in scores], commits),
    )


def compute_drift(own: Sequence[InsertScore], ngram: Sequence[InsertScore], times: Mapping[str, int]) -> Drift:
    """Test whether `kept` of the adapter's scores, `own`, falls over time; `times` maps a hole to its commit's time.

    If the `ngram` scores also fall, the code has moved away from the train set, which both models share.
    """
    halves, p_value = _halve(own, times)
    is_fall = p_value is not None and p_value < _ALPHA
    moved = _halve(ngram, times)[1]
    hint = "Give it more context (infill_window of the recipe): an n-gram over the train set does not fall."
    if moved is not None and moved < _ALPHA:
        hint = "Train again: an n-gram over the train set falls as well, so the code has moved away from it."
    return Drift(
        verdict="cannot tell" if p_value is None else "falls" if is_fall else "holds",
        num_commits=len({score.file for score in own}),
        first=compute_replay_rates(halves[0]).kept,
        recent=compute_replay_rates(halves[1]).kept,
        p_value=p_value,
        hint=hint if is_fall else "",
    )


def _halve(
    scores: Sequence[InsertScore], times: Mapping[str, int]
) -> tuple[tuple[list[InsertScore], list[InsertScore]], float | None]:
    """Split scores into earlier and later commits, and return the p-value of a fall; None for too few commits.

    Source:
        A one-sided permutation test of the difference of means: without drift, the order of commits is arbitrary.
    """
    by_commit: defaultdict[tuple[int, str], list[InsertScore]] = defaultdict(list)
    for score in scores:
        by_commit[times[score.task], score.file].append(score)
    commits = [by_commit[key] for key in sorted(by_commit)]
    half = len(commits) // 2
    parts = [score for some in commits[:half] for score in some], [score for some in commits[half:] for score in some]
    if len(commits) < _LEAST_COMMITS:
        return parts, None
    kept, sizes = np.array([[sum(score.kept for score in some), len(some)] for some in commits]).T
    dice, is_early = np.random.default_rng(0), np.arange(len(commits)) < half

    def fall(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        early, number = chosen @ kept, chosen @ sizes
        fallen: NDArray[np.float64] = early / number - (kept.sum() - early) / (sizes.sum() - number)
        return fallen

    shuffled = (dice.permuted(np.tile(is_early, (_AT_ONCE, 1)), axis=1) for _ in range(_SHUFFLES // _AT_ONCE))
    as_large = sum(int((fall(chosen) >= fall(is_early) - _ROUNDING).sum()) for chosen in shuffled)
    return parts, (1 + as_large) / (1 + _SHUFFLES)


def _percent(rate: Rate) -> str:
    return f"{100 * (rate.value or 0.0):.1f} %"
