"""The history that came after the train set of the champion, replayed; and whether it falls with time."""

from typing import Any

import dagster as dg
from pydantic import Field

from mens_pipeline.evaluation.replay import SHOWN_MODELS
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.orchestration.launchers import Generator
from mens_pipeline.orchestration.metadata import declare_asset, identify, line_chart, table, version_with_config
from mens_pipeline.orchestration.resources import (
    ArtifactStoreResource,
    Compute,
    VoxWorkspace,
    hand_over,
    linked_page,
)
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.promotion.replay import STAGE, replay_history, replay_in
from mens_pipeline.settings import EVALUATION, load_settings
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline.storage.yaml_file import load_model


class ReplayConfig(dg.Config):
    """Run configuration of the replay."""

    since: str | None = Field(
        default=None, description="A commit or date; left out, the commit that the adapter is named after."
    )
    limit: int = Field(default=500, ge=1, le=20_000, description="Holes at most.")


@declare_asset("replay", "json", version=version_with_config(STAGE, EVALUATION), on_gpu=True)
def history_replay(  # noqa: PLR0913, PLR0917 - what Dagster injects
    context: dg.AssetExecutionContext,
    config: ReplayConfig,
    promoted_adapter: ArtifactRef,
    workspace: VoxWorkspace,
    compute: Compute,
    generator: Generator,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Pieces that the champion writes for lines that came to the workspace after its train set.

    Each place where a commit adds one to eight lines to a program is a hole. The adapter before it, base and n-gram are
    asked as well. Completions are kept: what was asked before costs nothing.
    """
    settings, device = load_settings(), compute.resolve()
    adapter, evaluation = Adapter.open(store.artifact(promoted_adapter).path), load_model(EVALUATION, EvaluationConfig)
    made, reused = replay_history(
        adapter,
        workspace.folder(),
        store.open(),
        since=config.since,
        number=config.limit,
        config=evaluation,
        conditions=Conditions(evaluation.decoding, device, device.lock_in(settings.cache_root)),
        launch=lambda prepared: generator.run(context, prepared.job_path, prepared.job.devices),
        work=context.run.run_id,
    )
    results = replay_in(made.path)
    weeks, lines = results.kept_by_week, results.parts.get("lines", {})
    chart = line_chart("Characters kept by week, per cent", weeks) if weeks else "no holes"
    metadata: dict[str, Any] = {
        **identify(context, adapter.manifest, adapter.digest),
        "reused": reused,
        "num_holes": len(results.times),
        "num_commits": results.drift.num_commits,
        "left_out": table({"reason": reason, "changes": number} for reason, number in results.dropped.items()),
        "kept_by_week": dg.MetadataValue.md(chart),
        "single_lines": table(
            {
                "model": SHOWN_MODELS.get(model, model),
                "exact": rates.exact.short,
                "95 % interval": rates.exact.interval,
                "parses": rates.parses.short,
            }
            for model, rates in lines.items()
        ),
        **linked_page(store.open(), made, PAGE),
        **{f"replay/{model}_exact": round(rates.exact.value or 0.0, 4) for model, rates in lines.items()},
    }
    return hand_over(made, promoted_adapter, metadata=metadata)


@dg.asset_check(asset=history_replay)
def keeps_up_with_the_history(history_replay: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn where the champion keeps fewer characters of later commits than of earlier ones, beyond chance."""
    drift = replay_in(store.artifact(history_replay).path).drift
    return dg.AssetCheckResult(
        passed=drift.verdict != "falls",
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"drift": str(drift), "hint": drift.hint or "none", "num_commits": drift.num_commits},
    )
