"""The best of the recipes that were judged: the newest verdict of each, and what speaks against it now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from mens_pipeline.configured import present_of
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import KIND as EVALUATION
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, JudgedAnswer
from mens_pipeline.inference.prepare import adapter_digest
from mens_pipeline.orchestration.evaluations import verdict_called
from mens_pipeline.promotion.benchmark_gate import KIND as GATE
from mens_pipeline.promotion.best import Candidate, Place, ranked
from mens_pipeline.promotion.history import champion_of
from mens_pipeline.promotion.promote import reasons_against
from mens_pipeline.settings import Settings
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore
from mens_pipeline.training.qlora_adapter import KIND as ADAPTER


@dataclass(frozen=True, slots=True)
class Choice:
    """The best of several recipes; why each of the others was passed over stands by its name."""

    places: tuple[Place, ...]
    passed_over: dict[str, str]

    @property
    def best(self) -> Candidate:
        """The adapter that is to be promoted."""
        return self.places[0].candidate

    def metadata(self) -> dict[str, Any]:
        """Return what the page of the adapter in use says of the choice."""
        rows = [{"recipe": place.candidate.name, "pass@1": place.rate, "why": place.behind} for place in self.places]
        rows += [{"recipe": name, "pass@1": "", "why": why} for name, why in self.passed_over.items()]
        return {
            "best_recipe": f"{self.best.name}, pass@1 {self.places[0].rate}",
            "recipes": dg.MetadataValue.table([dg.TableRecord(row) for row in rows]),
        }


def best_judged(names: Sequence[str], instance: dg.DagsterInstance, store: ArtifactStore, settings: Settings) -> Choice:
    """Return the best of recipes, or of runs by their ids, whose newest verdict lets them be promoted, here and now.

    Raises:
        RefusedError: None may be promoted, with every reason, or they were asked no prompt in common.
    """
    able: dict[str, Candidate] = {}
    passed_over: dict[str, str] = {}
    for name in names:
        label = name
        try:
            recipe, ref = verdict_called(name, instance)
            label = recipe if recipe not in {*able, *passed_over} else f"{recipe}, run {name[:8]}"
            able[label] = _candidate(label, ref, store, settings)
        except RefusedError as refusal:
            passed_over[label] = str(refusal)
    if not able:
        told = " ".join(f"{name}: {why}" for name, why in passed_over.items())
        raise RefusedError(f"no recipe of {len(names)} may be promoted. {told}")
    champion = champion_of(store)
    in_use = champion.manifest["inputs"]["adapter_sha256"] if champion is not None else None
    return Choice(ranked([*able.values()], in_use), passed_over)


def _candidate(name: str, ref: ArtifactRef, store: ArtifactStore, settings: Settings) -> Candidate:
    """Return an adapter with its answers, unless something speaks against it."""
    gate, evaluation, adapter, split = (_sound(ref.of(kind), store) for kind in (GATE, EVALUATION, ADAPTER, SPLIT))
    present = present_of(settings, evaluation, split.path / HELDOUT)
    reasons = [*reasons_against(gate, adapter.path, store, present)]
    if reasons:
        raise RefusedError(" ".join(reasons))
    answers = tuple(read_models(evaluation.path / JUDGED_ANSWERS, JudgedAnswer))
    return Candidate(name, adapter_digest(adapter.path), ref, answers)


def _sound(ref: ArtifactRef, store: ArtifactStore) -> Artifact:
    found = store.get(ref.kind, ref.key)
    if found is None or found.is_damaged():
        raise RefusedError(f"its {ref.kind} {ref.key[:12]} is gone or changed; run the recipe again.")
    return found
