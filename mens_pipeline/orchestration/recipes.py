"""Results of recipes and runs, from the event log of Dagster and the store: evaluations, verdicts, the best one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from mens_pipeline.corpus.schema.records import HELDOUT
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import SCORED_COMPLETIONS, ScoredCompletion, results_in
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.orchestration.metadata import RECIPE_TAG, table
from mens_pipeline.orchestration.resources import made_by, read_artifact
from mens_pipeline.promotion.history import find_last_change
from mens_pipeline.promotion.promote import find_reasons_against
from mens_pipeline.promotion.report.side_by_side import PASS_AT_1, ComparedModel, build_table, compare
from mens_pipeline.promotion.verdict_basis import Verdict
from mens_pipeline.settings import RECIPES, Settings, read_terms
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore
from mens_pipeline.training.presets import DEFAULT, load_recipes

TRAINING: Final = "qlora_adapter"
_VERDICT: Final = "mens/verdict"
_EVAL_SUITE: Final = frozenset({Suite.HELDOUT, Suite.BENCHMARK})


def find_entry(name: str, instance: dg.DagsterInstance, store: ArtifactStore) -> ComparedModel:
    """Return the newest evaluation of a recipe or of a run id; `RefusedError` if the store has none."""
    for run, ref in _artifacts_of_runs(name, "eval_results", instance):
        evaluation = store.get(ref.kind, ref.key)
        if evaluation is None or evaluation.is_damaged():
            raise RefusedError(f"{name}: its evaluation {ref.key[:12]} is gone or changed. Run the recipe again.")
        completions = tuple(read_models(evaluation.file(SCORED_COMPLETIONS), ScoredCompletion))
        return ComparedModel(name, completions, results_in(evaluation.path), run.tags.get(_VERDICT, "no verdict"))
    raise _unknown(name, instance)


def verdict_called(name: str, instance: dg.DagsterInstance) -> tuple[str, ArtifactRef]:
    """Return recipe and newest verdict of a recipe or run id; `RefusedError` if there is no verdict."""
    for run, ref in _artifacts_of_runs(name, "benchmark_gate", instance):
        return run.tags[RECIPE_TAG], ref
    raise _unknown(name, instance)


def _artifacts_of_runs(
    name: str, asset: str, instance: dg.DagsterInstance
) -> Iterator[tuple[dg.DagsterRun, ArtifactRef]]:
    own = instance.get_run_by_id(name)
    for run in [own] if own is not None else instance.get_runs(dg.RunsFilter(tags={RECIPE_TAG: name})):
        for event in reversed(made_by(instance, run.run_id, dg.AssetKey(asset))):
            yield run, read_artifact(event)


def _unknown(name: str, instance: dg.DagsterInstance) -> RefusedError:
    begun = {run.tags[RECIPE_TAG] for run in instance.get_runs() if RECIPE_TAG in run.tags}
    known = [recipe for recipe in sorted(begun) if any(_artifacts_of_runs(recipe, "eval_results", instance))]
    tried = f"Evaluated so far: {'; '.join(known)}" if known else "Nothing has been evaluated yet"
    recipes = load_recipes(RECIPES)
    advice = f"Train it: mens run --recipe {name} --no-promote" if name in recipes else f"Recipes: {', '.join(recipes)}"
    advice = f"{tried}. {advice}"
    return RefusedError(f"{name}: no recipe or run with this name has evaluated an adapter. {advice}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An adapter that may be promoted."""

    name: str
    adapter_sha256: str
    gate: ArtifactRef
    completions: Sequence[ScoredCompletion]


@dataclass(frozen=True, slots=True)
class Place:
    """An adapter in a ranking; `behind` is its distance from the best, with the exact paired test."""

    candidate: Candidate
    rate: str
    behind: str


def rank(candidates: Sequence[Candidate], in_use: str | None) -> tuple[Place, ...]:
    """Rank adapters that may be promoted by pass@1; on a tie the one in use comes first, then the given order.

    A lead over another adapter may be chance, and the test says how likely that is. It is not another hurdle: each
    adapter passed by itself, and was compared with the champion. `RefusedError` if they have no prompt in common.
    """
    models = [ComparedModel(one.name, tuple(filter(_is_of_eval_suite, one.completions))) for one in candidates]
    columns = {column.name: column for column in compare(models).columns}
    rates = {name: column.scores.overall.pass_at_1 for name, column in columns.items()}
    ordered = sorted(candidates, key=lambda one: (-(rates[one.name].value or 0.0), one.adapter_sha256 != in_use))
    cells = build_table([columns[one.name] for one in ordered]).row(PASS_AT_1).cells
    return tuple(
        Place(one, str(rates[one.name]), str(cell.difference or "")) for one, cell in zip(ordered, cells, strict=True)
    )


def _is_of_eval_suite(completion: ScoredCompletion) -> bool:
    """Return whether the gate reads a completion: no second tries, no synthetic tasks."""
    return completion.model == "adapter" and completion.suite in _EVAL_SUITE


@dataclass(frozen=True, slots=True)
class Choice:
    """Ranking of several recipes, and name -> reason for each skipped recipe."""

    places: tuple[Place, ...]
    passed_over: dict[str, str]

    @property
    def best(self) -> Candidate:
        """The adapter to promote."""
        return self.places[0].candidate

    def metadata(self) -> dict[str, Any]:
        """Return metadata about the choice, for the page of the adapter in use."""
        rows = [{"recipe": place.candidate.name, "pass@1": place.rate, "why": place.behind} for place in self.places]
        rows += [{"recipe": name, "pass@1": "", "why": why} for name, why in self.passed_over.items()]
        return {"best_recipe": f"{self.best.name}, pass@1 {self.places[0].rate}", "recipes": table(rows)}


def best_evaluated(
    names: Sequence[str], instance: dg.DagsterInstance, store: ArtifactStore, settings: Settings
) -> Choice:
    """Rank the recipes or run ids whose newest verdict allows promotion now.

    A `RefusedError` lists every reason why none may be promoted, or says that they have no prompt in common.
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
        details = " ".join(f"{name}: {why}" for name, why in passed_over.items())
        raise RefusedError(f"none of {len(names)} recipes may be promoted. {details}")
    champion = find_last_change(store)
    return Choice(rank([*able.values()], champion.adapter_sha256 if champion is not None else None), passed_over)


def _candidate(name: str, ref: ArtifactRef, store: ArtifactStore, settings: Settings) -> Candidate:
    gate, evaluation, adapter, split = (
        _sound(ref.of(kind), store)
        for kind in (Kind.BENCHMARK_GATE, Kind.EVAL_RESULTS, Kind.QLORA_ADAPTER, Kind.HELDOUT_SPLIT)
    )
    opened, terms = Adapter.open(adapter.path), read_terms(settings, evaluation, split.file(HELDOUT))
    reasons = [*find_reasons_against(Verdict.open(gate, store), opened, store, terms)]
    if reasons:
        raise RefusedError(" ".join(reasons))
    completions = tuple(read_models(evaluation.file(SCORED_COMPLETIONS), ScoredCompletion))
    return Candidate(name, opened.digest, ref, completions)


def _sound(ref: ArtifactRef, store: ArtifactStore) -> Artifact:
    found = store.get(ref.kind, ref.key)
    if found is None or found.is_damaged():
        raise RefusedError(f"its {ref.kind} {ref.key[:12]} is gone or changed; run the recipe again.")
    return found


def config_of(run: dg.DagsterRun, op: str) -> dict[str, Any]:
    """Return the configuration that a run gave to one of its steps."""
    ops: Any = run.run_config.get("ops", {})
    config: dict[str, Any] = ops.get(op, {}).get("config", {})
    return config


def trial_of(run: dg.DagsterRun) -> dict[str, int] | None:
    """Return the part of the eval suite that a trial completes; None if the recipe of the run is not a trial."""
    recipe = config_of(run, TRAINING).get("recipe", DEFAULT)
    name = run.tags.get("dagster/partition", recipe) if recipe == DEFAULT else recipe
    named = load_recipes(RECIPES).get(name)
    return None if named is None else named.trial
