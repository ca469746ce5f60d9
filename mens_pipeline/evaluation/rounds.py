"""Evaluate in rounds: ask more held-out prompts only while the gates are undecided."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import Generations, build_eval_results, prepare_generations
from mens_pipeline.evaluation.evaluate import EarlierChampion
from mens_pipeline.evaluation.results import EvalResults, Progress, results_in
from mens_pipeline.evaluation.suite import EvalSuite
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Decoding, Generation, GenerationJob
from mens_pipeline.inference.prepare import Conditions, generate_all
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.store import Artifact, ArtifactStore


class CountedTry(NamedTuple):
    """A try in the ledger: its number on the eval suite, its hash, and the id of the store."""

    attempt: int
    sha256: str
    store_id: str


class Referee(Protocol):
    """Decisions of promotion that an evaluation needs."""

    def find_baseline(self, adapter_sha256: str) -> Artifact | None:
        """Return the promoted adapter that a candidate is compared with."""

    def find_earlier(self, adapter_sha256: str, decoding: Decoding) -> Iterable[EarlierChampion]:
        """Return the champions before the baseline whose evaluations can be compared."""

    def count_try(self, asked: Generation, suite: EvalSuite) -> CountedTry:
        """Count a try of an adapter on an eval suite."""

    def find_undecided(self, results: EvalResults, reserve: Sequence[Task]) -> Sequence[str]:
        """Return the names of gates that completions of a reserve of held-out prompts may decide."""


def evaluate_in_rounds(  # noqa: PLR0913 - the inputs of an evaluation
    adapter: Adapter,
    suite: EvalSuite,
    conditions: Conditions,
    store: ArtifactStore,
    referee: Referee,
    *,
    launch: Callable[[GenerationJob], int],
    log_line: Callable[[str], None],
) -> tuple[Artifact, bool]:
    """Run all models on an eval suite, round by round until the gates can decide, and score the completions.

    Count the try in the ledger. Return the evaluation of all rounds that ran, and whether it was reused.

    `RefusedError` if a generation failed, another champion was promoted between two rounds, or the ledger is malformed.
    """
    rounds = suite.rounds
    asked: list[Generations] = []
    champions: set[str | None] = set()
    earlier = tuple(referee.find_earlier(adapter.digest, conditions.decoding))
    while True:
        number = len(asked) + 1
        part = replace(suite, tasks=rounds[number - 1])
        if asked:
            part = replace(part, few_shot=None, families=(), holes=None)
        baseline = referee.find_baseline(adapter.digest)
        asked.append(prepare_generations(adapter, part, conditions, baseline))
        champion = baseline.key if baseline is not None else None
        champions.add(champion)
        if len(champions) > 1:
            raise RefusedError(f"{adapter.path}: another adapter was promoted during the evaluation. Evaluate again.")
        own = {name: one for name, one in asked[-1].items() if one.adapter_path and "champion" not in name}
        generate_all(own, store, launch, conditions.lock_path)
        tried = referee.count_try(asked[0]["adapter"], suite)
        reserve = [task for later in rounds[number:] for task in later]
        progress = Progress(
            attempt=tried.attempt,
            round=number,
            num_rounds=len(rounds),
            num_reserve=len(reserve),
            try_sha256=tried.sha256,
            store_id=tried.store_id,
        )
        so_far = replace(suite, tasks=tuple(task for earlier in rounds[:number] for task in earlier))
        evaluation, reused = build_eval_results(
            so_far,
            asked,
            adapter.manifest,
            store,
            launch,
            lock_path=conditions.lock_path,
            champion=champion,
            earlier=earlier,
            progress=progress,
        )
        gates = referee.find_undecided(results_in(evaluation.path), reserve)
        if not gates:
            return evaluation, reused
        files = len({task.file for task in rounds[number]})
        log_line(
            f"{', '.join(gates)} undecided: round {number + 1} of {len(rounds)} evaluates {len(rounds[number])} more "
            f"prompts from {files} files"
        )
