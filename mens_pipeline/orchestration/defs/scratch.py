"""The side branch: a small model trained from scratch, and the checks that it learned."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import CARD, TELEMETRY
from mens_pipeline.orchestration.asset import blocking_check, declare_asset
from mens_pipeline.orchestration.choices import fields_in, overrides_of
from mens_pipeline.orchestration.defs.training import check_loss_fell, losses_metadata
from mens_pipeline.orchestration.launchers import Trainer
from mens_pipeline.orchestration.metadata import table
from mens_pipeline.orchestration.resources import ArtifactStoreResource, Compute, hand_over
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.scratch.recipe import SHAPES, ScratchConfig, ScratchRecipe
from mens_pipeline.scratch.run import (
    MODEL,
    STAGE,
    ScratchDetails,
    ScratchManifest,
    build_scratch_model,
    prepare_scratch,
)
from mens_pipeline.settings import GATE_POLICY, artifact_commit, load_settings
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactRef, key_of
from mens_pipeline.training.prepare import work_folder
from mens_pipeline.training.telemetry_log import losses_of

_Overrides = overrides_of(ScratchRecipe, "config")


class ScratchTrainConfig(dg.Config):
    """Run configuration of the scratch lane."""

    config: Literal["auto", "default", "small"] = Field(
        default="auto", description="Size of the model; auto: full on a GPU, otherwise small."
    )
    overrides: _Overrides = Field(default=_Overrides(), description="Recipe fields to set.")  # type: ignore[valid-type]
    force_train: bool = Field(default=False, description="Train even if nothing has changed.")


@declare_asset("scratch", "pytorch", "huggingface", version=STAGE.code_version, gpus="one")
def scratch_model(  # noqa: PLR0913, PLR0917 - injected by Dagster
    context: dg.AssetExecutionContext,
    config: ScratchTrainConfig,
    mixed_train_set: ArtifactRef,
    compute: Compute,
    trainer: Trainer,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Train a VoxTransformer with VoxTokenizer from random weights; it is never promoted.

    An unchanged contract (recipe, train set, device, versions) is not trained again; an interrupted run continues.
    """
    settings = load_settings()
    device = compute.resolve()
    run = prepare_scratch(
        _recipe(config, device),
        store.artifact(mixed_train_set).file(TRAIN),
        partial(work_folder, store.open(), Kind.SCRATCH_MODEL),
        device,
        cache=settings.cache_root,
        min_rows=load_gate_policy(GATE_POLICY).min_pairs,
        backend=settings.backend,
        strict=settings.strict_jsonl,
    )
    model, reused = build_scratch_model(
        run,
        store.open(),
        lambda prepared: trainer.run(context, prepared),
        artifact_commit(settings),
        again=config.force_train,
    )
    return hand_over(
        model,
        mixed_train_set,
        version=_version(model),
        metadata={"reused": reused, **_metadata(ScratchDetails.of(model).training, model.path)},
    )


@dg.asset_check(asset=scratch_model)
def scratch_loss_fell(scratch_model: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn if the mean loss did not fall from the first quarter of steps to the last."""
    return check_loss_fell(store.artifact(scratch_model).path)


@blocking_check(scratch_model)
def scratch_parameters_as_declared(scratch_model: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that the model has the number of parameters that its configuration declares."""
    manifest = ScratchDetails.of(store.artifact(scratch_model)).training
    declared, found = SHAPES[manifest.config].num_parameters, manifest.num_parameters
    return dg.AssetCheckResult(passed=declared == found, metadata={"declared": declared, "found": found})


def _recipe(config: ScratchTrainConfig, device: Device) -> ScratchRecipe:
    auto = ScratchConfig.DEFAULT if device.kind == "cuda" else ScratchConfig.SMALL
    chosen = auto if config.config == "auto" else config.config
    return ScratchRecipe.from_values({**fields_in(config.overrides), "config": chosen})


def _version(model: Artifact) -> str:
    """Hash the folder of a model without its card, which contains times."""
    outputs = model.outputs
    return key_of({name: outputs[name] for name in outputs if name.startswith(f"{MODEL}/") and not name.endswith(CARD)})


def _metadata(manifest: ScratchManifest, path: Path) -> dict[str, Any]:
    result = manifest.result
    return {
        "model": dg.MetadataValue.path(path / MODEL),
        "config": str(manifest.config),
        "num_parameters": f"{manifest.num_parameters:,}",
        **losses_metadata(result, losses_of(path / TELEMETRY), None),
        **({} if result.validation_loss is None else {"validation_loss": round(result.validation_loss, 4)}),
        "num_rows": result.num_train,
        "skipped": table({"reason": reason, "rows": rows} for reason, rows in result.skipped.items()),
        "contract": manifest.contract_digest[:12],
        "recipe": dg.MetadataValue.json(manifest.recipe),
    }


@dg.definitions
def scratch() -> dg.Definitions:
    """Define the model from scratch and its job if MENS_SIDE_BRANCHES names it."""
    if load_settings().side_branches != "scratch":
        return dg.Definitions()
    job = dg.define_asset_job(
        "scratch",
        selection=dg.AssetSelection.groups("scratch"),
        description="The side branch: trains a small model from scratch on the latest train set; never promoted.",
    )
    return dg.Definitions(
        assets=[scratch_model], asset_checks=[scratch_loss_fell, scratch_parameters_as_declared], jobs=[job]
    )
