"""Evaluations and verdicts of recipes and runs, read from the event log of Dagster and the store."""

from collections.abc import Iterator
from typing import Final

import dagster as dg

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, JudgedAnswer
from mens_pipeline.orchestration.experiment import RECIPE_TAG
from mens_pipeline.orchestration.handover import artifact_of
from mens_pipeline.promotion.receipt import results_in
from mens_pipeline.promotion.report.compare import Side
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore

_VERDICT: Final = "mens/verdict"


def side_called(name: str, instance: dg.DagsterInstance, store: ArtifactStore) -> Side:
    """Return the newest evaluation of a recipe, or that of a run by its id.

    Raises:
        RefusedError: There is none, or it is no longer in the store.
    """
    for run, ref in _made(name, "eval_results", instance):
        evaluation = store.get(ref.kind, ref.key)
        if evaluation is None or evaluation.is_damaged():
            raise RefusedError(f"{name}: its evaluation {ref.key[:12]} is gone or changed. Run the recipe again.")
        answers = tuple(read_models(evaluation.path / JUDGED_ANSWERS, JudgedAnswer))
        return Side(name, results_in(evaluation.path), answers, run.tags.get(_VERDICT, "not judged"))
    raise _unknown(name, instance)


def verdict_called(name: str, instance: dg.DagsterInstance) -> tuple[str, ArtifactRef]:
    """Return the newest verdict on a recipe, or that of a run, with what its run calls the recipe.

    Raises:
        RefusedError: There is none.
    """
    for run, ref in _made(name, "benchmark_gate", instance):
        return run.tags[RECIPE_TAG], ref
    raise _unknown(name, instance)


def _made(name: str, asset: str, instance: dg.DagsterInstance) -> Iterator[tuple[dg.DagsterRun, ArtifactRef]]:
    """Yield what runs of a recipe made of an asset, with the run, the newest first; or what one run made."""
    own = instance.get_run_by_id(name)
    for run in [own] if own is not None else instance.get_runs(dg.RunsFilter(tags={RECIPE_TAG: name})):
        made = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        events = (entry.asset_materialization for entry in made)
        for event in reversed([event for event in events if event is not None]):
            if event.asset_key == dg.AssetKey(asset):
                yield run, artifact_of(event)


def _unknown(name: str, instance: dg.DagsterInstance) -> RefusedError:
    """Return the refusal of a name under which nothing was judged, with those that there are."""
    begun = {run.tags[RECIPE_TAG] for run in instance.get_runs() if RECIPE_TAG in run.tags}
    known = [recipe for recipe in sorted(begun) if any(_made(recipe, "eval_results", instance))]
    tried = f"So far there are: {'; '.join(known)}" if known else "So far there is none"
    advice = f"{tried}. Train it: mens run --recipe {name} --no-promote"
    return RefusedError(f"{name}: no run of this recipe, and none with this id, has evaluated an adapter. {advice}")
