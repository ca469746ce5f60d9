"""The referee of an evaluation: former champions, counts of tries, and the gates that more prompts may decide."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.evaluate import EarlierChampion
from mens_pipeline.evaluation.results import RESULTS, SCORED_COMPLETIONS, EvalResults, ScoredCompletion, read_results
from mens_pipeline.evaluation.rounds import CountedTry
from mens_pipeline.evaluation.scores import Score
from mens_pipeline.evaluation.suite import EvalSuite
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Decoding, Generation
from mens_pipeline.promotion.gate import GateInputs, measure_all
from mens_pipeline.promotion.history import HistoryEvent, adapter_sha256_of, find_baseline, find_withdrawn, read_history
from mens_pipeline.promotion.ledger import EvaluationTry, hash_texts, record_try
from mens_pipeline.promotion.policy import GateName, GateStatus, Reserve, Thresholds
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of


@dataclass(frozen=True, slots=True)
class StoreReferee:
    """A referee that uses the history and ledger of a store, and the gates of a policy.

    `now` is in seconds since 1970.
    """

    store: ArtifactStore
    thresholds: Thresholds
    is_benchmark_asked: bool
    now: int
    log_line: Callable[[str], None]

    def find_baseline(self, adapter_sha256: str) -> Artifact | None:
        """Return the promoted adapter that a candidate is compared with."""
        return find_baseline(self.store, adapter_sha256)

    def find_earlier(self, adapter_sha256: str, decoding: Decoding) -> Iterator[EarlierChampion]:
        """Yield the newest champions before the baseline, with the scores of their evaluations.

        Skip champions that a rollback withdrew, and those evaluated with another decoding.
        """
        store, baseline = self.store, find_baseline(self.store, adapter_sha256)
        passed_over = {adapter_sha256, *find_withdrawn(store)}
        if baseline is not None:
            passed_over.add(adapter_sha256_of(baseline))
        newest: dict[str, HistoryEvent] = {}
        for event in reversed(read_history(store)):
            if event.action != "rollback" and event.adapter_sha256 not in passed_over:
                newest.setdefault(event.adapter_sha256, event)
        for event in [*newest.values()][: self.thresholds.decline_promotions]:
            evaluation, why = _find_evaluation(store, event.key), f"champion {event.key[:12]} is left out: "
            if evaluation is None or evaluation.find_changed() or explain_unsigned(evaluation, store):
                self.log_line(f"{why}its evaluation is gone or was changed")
                continue
            results = read_results(evaluation.file(RESULTS))
            # On a GPU the batch size changes single tokens, but no rate that is compared here.
            same_batch = {"batch_tokens": decoding.batch_tokens}
            if results is not None and results.decoding.model_copy(update=same_batch) != decoding:
                continue
            scores = _read_scores(evaluation.file(SCORED_COMPLETIONS)) if results is not None else None
            if scores is None:
                self.log_line(f"{why}its evaluation was written by another version")
                continue
            yield EarlierChampion(event.key, event.adapter_sha256, event.timestamp_unix, scores)

    def count_try(self, asked: Generation, suite: EvalSuite) -> CountedTry:
        """Count a try of an adapter on an eval suite in the ledger; errors as in `record_try`."""
        computed_in = "int8" if asked.in_eight_bits else asked.compute_dtype
        device = f"{asked.device} {computed_in} {asked.held}"
        counted = record_try(self.store, try_of(asked.adapter_digest, asked.decoding, device, suite), now=self.now)
        return CountedTry(counted.attempt, counted.sha256, counted.store_id)

    def find_undecided(self, results: EvalResults, reserve: Sequence[Task]) -> tuple[GateName, ...]:
        """Return the gates that completions of a reserve of held-out prompts may decide."""
        return find_undecided(results, self.thresholds, reserve, is_benchmark_asked=self.is_benchmark_asked)


def try_of(adapter_sha256: str, decoding: Decoding, device: str, suite: EvalSuite) -> EvaluationTry:
    """Return the try of an adapter on an eval suite, identified by its prompts and references."""
    heldout = [task for task in suite.tasks if task.suite is Suite.HELDOUT]
    return EvaluationTry(
        adapter_sha256=adapter_sha256,
        decoding=decoding,
        first_heldout_tasks=suite.first_heldout_tasks,
        max_rounds=suite.max_rounds,
        files=tuple(sorted({task.file for task in heldout})),
        rows_sha256=key_of({"rows": sorted([task.prompt, task.reference, task.tests or ""] for task in heldout)}),
        rows=hash_texts(text for task in heldout for text in (task.prompt, task.reference)),
        benchmark_sha256=suite.benchmark.digest if suite.benchmark is not None else None,
        device=device,
    )


def find_undecided(
    results: EvalResults, thresholds: Thresholds, reserve: Sequence[Task], *, is_benchmark_asked: bool
) -> tuple[GateName, ...]:
    """Return the gates that completions of a reserve of held-out prompts may decide.

    Returns:
        The blocking gates that do not pass yet; empty if one of them fails for good, or would not pass even with the
        best result on the reserve that the interval of its rate allows.
    """
    if not reserve:
        return ()
    progress = results.progress
    champion = results.champion.key if results.champion is not None else None
    later = progress.model_copy(update={"round": min(progress.round + 1, progress.num_rounds)})
    left = Reserve(
        num_tasks=len(reserve),
        num_tested=sum(task.tests is not None for task in reserve),
        required=1 - thresholds.allowed_chance(later),
    )
    inputs = GateInputs(results, "", None, "", champion, is_benchmark_asked)
    names = []
    for outcome, found in measure_all(inputs, thresholds):
        if outcome.block and not outcome.passed and outcome.source == RESULTS:
            may_be_decided = outcome.status is GateStatus.UNDECIDED and found.may_pass(left)
            if not (found.grows or may_be_decided):
                return ()
            names.append(outcome.name)
    return tuple(names)


def _read_scores(path: Path) -> dict[tuple[str, str], Score] | None:
    """Read scores for `EarlierChampion`; None if another version wrote the file."""
    try:
        return {
            (one.prompt, one.reference): one.score
            for one in read_models(path, ScoredCompletion)
            if one.model == "adapter" and one.score.sample == 0
        }
    except RefusedError:
        return None


def _find_evaluation(store: ArtifactStore, key: str) -> Artifact | None:
    found = store.get(Kind.PROMOTED_ADAPTER, key)
    for kind in (Kind.BENCHMARK_GATE, Kind.EVAL_RESULTS):
        refs = [parent for parent in found.parents if parent.kind == kind] if found is not None else []
        found = store.get(kind, refs[0].key) if refs else None
    return found
