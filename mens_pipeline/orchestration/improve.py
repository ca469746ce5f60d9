"""Rounds of learning from scored completions, each a run of the graph; a round that is done is kept."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import dagster as dg

from mens_pipeline.configured import open_store, thresholds_of
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import KIND as EVALUATION
from mens_pipeline.evaluation.tasks import heldout_tasks
from mens_pipeline.feedback.config import FeedbackConfig, Method
from mens_pipeline.feedback.learning import KIND as PAIRS
from mens_pipeline.feedback.rounds import Arm, Round, RoundParams, arm_of, figures_of, kept_round
from mens_pipeline.feedback.samples import KIND as SAMPLES
from mens_pipeline.models.adapter import KIND as ADAPTER
from mens_pipeline.orchestration.headless import GraphOutcome, run_graph
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import artifact_of
from mens_pipeline.settings import FEEDBACK, Settings
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore
from mens_pipeline.storage.yaml_file import load_model

_EVALUATIONS: Final = 100
"""The newest ones, among which that of an adapter is looked for."""


class InterruptedRoundError(Exception):
    """Somebody stopped the run of a round."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Number and options of the rounds.

    Attributes:
        minutes: Of generating and training of each round; None for those of config/feedback.yaml.
        has_control: Whether a control stands beside each round.
        seed: Decides prompts, draws and the order of rows; None for that of config/feedback.yaml.
    """

    num_rounds: int
    minutes: float | None
    has_control: bool
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class _Standing:
    """Adapter that generates and its evaluation, with the source file of each held-out prompt."""

    adapter: str
    evaluation: Path
    files: Mapping[str, str]


def improve(definitions: dg.Definitions, settings: Settings, plan: Plan) -> Iterator[tuple[Round, bool]]:
    """Run rounds, and yield each with whether it was run before; each begins with what the last one taken made.

    What was interrupted goes on where it was when the same is called again.

    Raises:
        RefusedError: There is no adapter with an evaluation yet, or a round could not be run to its end.
        InterruptedRoundError: Somebody stopped it.
    """
    store = open_store(settings)
    standing = _standing(settings, store)
    config = load_model(FEEDBACK, FeedbackConfig)
    thresholds = thresholds_of(settings)
    for number in range(1, plan.num_rounds + 1):
        params = RoundParams(
            number=number,
            start=standing.adapter,
            config=config,
            minutes=plan.minutes,
            seed=plan.seed,
            has_control=plan.has_control,
            max_regression_p=thresholds.max_regression_p,
            run=partial(_round, definitions, settings, store, plan, number, standing, thresholds.max_regression_p),
        )
        found = kept_round(store, params)
        yield found
        done, arm = found[0], found[0].arms[0]
        if done.worse is None:
            evaluation = store.get(EVALUATION, arm.evaluation)
            if evaluation is None:
                raise RefusedError(f"{store.root}: the evaluation {arm.evaluation[:12]} of round {number} is gone.")
            standing = _Standing(arm.adapter, evaluation.path, standing.files)


def _round(  # noqa: PLR0913, PLR0917 - all that a round rests on
    definitions: dg.Definitions,
    settings: Settings,
    store: ArtifactStore,
    plan: Plan,
    number: int,
    standing: _Standing,
    p_value: float,
) -> Round:
    chosen = {"minutes": plan.minutes, "seed": plan.seed}
    both: dict[str, Any] = {"number": number, **{name: value for name, value in chosen.items() if value is not None}}
    asked = {"feedback_samples": {**both, "start": standing.adapter}, "feedback_adapter": both}
    outcome = run_graph(definitions, settings, "improve", asked)
    own = _arm(Method.RAFT, outcome, standing)
    completions = _account(outcome, store)
    arms = [own]
    if plan.has_control:
        beside = run_graph(
            definitions, settings, "improve_control", {"feedback_adapter": {**both, "method": str(Method.CONTROL)}}
        )
        arms.append(_arm(Method.CONTROL, beside, standing))
    return Round(
        number=number,
        start=standing.adapter,
        completions=completions,
        before=figures_of(standing.evaluation),
        arms=tuple(arms),
        worse=own.worse(p_value),
    )


def _arm(method: Method, outcome: GraphOutcome, standing: _Standing) -> Arm:
    """Read the result of a run; a run whose gate failed is complete as well."""
    if outcome.is_interrupted:
        raise InterruptedRoundError
    figures = outcome.figures
    missing = [name for name in ("feedback_adapter", "eval_results", "benchmark_gate") if name not in figures]
    if missing:
        advice = "See above why; mend it, and run the same again: what is done is reused."
        raise RefusedError(f"run {outcome.run_id}: {missing[0]} was not made. {advice}")
    seconds = figures["feedback_adapter"]["train/seconds"] + figures.get("feedback_samples", {}).get("seconds", 0.0)
    return arm_of(
        method,
        Path(figures["feedback_adapter"]["adapter"]).parent.name,
        Path(figures["eval_results"]["results"]).parent,
        standing.evaluation,
        minutes=seconds / 60,
        verdict=figures["benchmark_gate"]["status"],
        files=standing.files,
    )


def _account(outcome: GraphOutcome, store: ArtifactStore) -> dict[str, Any]:
    """Return what the manifests of samples and pairs count."""
    places = {
        SAMPLES: outcome.figures["feedback_samples"]["samples"],
        PAIRS: outcome.figures["feedback_pairs"]["pairs"],
    }
    details: dict[str, Any] = {}
    for kind, place in places.items():
        artifact = store.get(kind, Path(place).name)
        assert artifact is not None, "it was made a moment ago"  # noqa: S101 - our own impossibility
        details |= {name: value for name, value in artifact.manifest.items() if name.startswith(("num_", "mean_"))}
        details |= {
            name: artifact.manifest[name] for name in ("tiers", "stop_rate", "seconds") if name in artifact.manifest
        }
    return details


def _standing(settings: Settings, store: ArtifactStore) -> _Standing:
    """Return the newest adapter of `qlora_adapter`, and its newest evaluation."""
    advice = "Run `mens run` first: it trains an adapter and evaluates it."
    with open_instance(settings.dagster_home, is_headless=True) as instance:
        newest = next(_newest_artifacts(instance, "qlora_adapter", 1), None)
        if newest is None:
            raise RefusedError(f"{settings.dagster_home}: no adapter was trained yet. {advice}")
        evaluated = (
            ref
            for ref in _newest_artifacts(instance, "eval_results", _EVALUATIONS)
            if ref.of(ADAPTER).key == newest.key
        )
        evaluation = next((store.get(EVALUATION, ref.key) for ref in evaluated), None)
    split = store.get(SPLIT, newest.of(SPLIT).key)
    if store.get(ADAPTER, newest.key) is None or evaluation is None or split is None:
        raise RefusedError(f"{store.root}: adapter {newest.key[:12]} or its evaluation is not there. {advice}")
    files = {task.id: task.file for task in heldout_tasks(read_pairs(split.path / HELDOUT))}
    return _Standing(newest.key, evaluation.path, files)


def _newest_artifacts(instance: dg.DagsterInstance, asset: str, limit: int) -> Iterator[ArtifactRef]:
    """Yield the artifacts of the newest materialisations of an asset, the newest first."""
    for record in instance.fetch_materializations(dg.AssetKey(asset), limit=limit).records:
        if record.asset_materialization is not None:
            yield artifact_of(record.asset_materialization)
