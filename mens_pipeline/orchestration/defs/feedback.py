"""Learning from scored completions: what an adapter writes to its training prompts, and what is learnt of that."""

from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from mens_pipeline.configured import artifact_commit
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.feedback.config import FeedbackConfig, Method
from mens_pipeline.feedback.learning import STAGE as PAIRS_STAGE
from mens_pipeline.feedback.learning import Learning, build_feedback_pairs, prepare_feedback
from mens_pipeline.feedback.samples import KIND as SAMPLES
from mens_pipeline.feedback.samples import STAGE as SAMPLES_STAGE
from mens_pipeline.feedback.samples import SamplesDetails, SamplesParams, build_feedback_samples
from mens_pipeline.inference.prepare import KIND as GENERATIONS
from mens_pipeline.inference.prepare import Conditions, LocalGenerator, completion_fits
from mens_pipeline.models.adapter import KIND as ADAPTER
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.orchestration.defs.training import changes_of, fall_of, metadata_of
from mens_pipeline.orchestration.launchers import Generator, Trainer
from mens_pipeline.orchestration.metadata import declare_asset, table, version_with_config
from mens_pipeline.orchestration.resources import ArtifactStoreResource, Compute, hand_over
from mens_pipeline.settings import FEEDBACK, has_side_branch, load_settings
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.qlora_adapter import STAGE as TRAINING_STAGE
from mens_pipeline.training.qlora_adapter import build_qlora_adapter

_GROUP: Final = "feedback"


class RoundConfig(dg.Config):
    """Run configuration of a round."""

    minutes: float | None = Field(
        default=None, gt=0, description="Of sampling and training together; else as config/feedback.yaml says."
    )
    number: int = Field(default=1, ge=1, description="Another round asks other prompts.")
    seed: int | None = Field(default=None, ge=0, lt=2**31, description="Else as config/feedback.yaml says.")


class SamplesConfig(RoundConfig):
    """Run configuration of the sampling."""

    start: str = Field(default="", description="The key of an adapter of the store; empty for `qlora_adapter`.")


class LearningConfig(RoundConfig):
    """Run configuration of the training on scored completions."""

    method: Literal["raft", "control"] = Field(default="raft", description="raft, or control to compare with.")


@declare_asset(_GROUP, "huggingface", "json", version=version_with_config(SAMPLES_STAGE, FEEDBACK), on_gpu=True)
def feedback_samples(  # noqa: PLR0913, PLR0917 - what Dagster injects
    context: dg.AssetExecutionContext,
    config: SamplesConfig,
    qlora_adapter: ArtifactRef,
    compute: Compute,
    generator: Generator,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Ask an adapter prompts of its train set that can be run, each several times, and reward the completions.

    Interrupted, it goes on where it was. Nothing that is held out is asked.
    """
    settings, opened, device = load_settings(), store.open(), compute.resolve()
    mixed = qlora_adapter.of(MIXED)
    start = ArtifactRef(ADAPTER, config.start, (mixed,)) if config.start else qlora_adapter
    made, train = store.artifact(start), store.artifact(mixed)
    chosen, adapter = _config_for(config), Adapter.open(made.path)
    one_each = chosen.decoding.model_copy(update={"num_samples": 1})
    asked = LocalGenerator(
        adapter,
        Conditions(one_each, device, device.lock_in(settings.cache_root)),
        opened.root / GENERATIONS / f".work-{context.run.run_id}-feedback",
        lambda prepared: generator.run(context, prepared.job_path, prepared.job.devices),
    )
    params = SamplesParams(
        generator=asked,
        system=adapter.manifest.system_prompt,
        train=train.path / TRAIN,
        config=chosen,
        fits=completion_fits(adapter.manifest.base_model, one_each),
        store=opened,
        log_line=context.log.info,
        # By the digest of its weights: trained again to the same bits, it is not asked again.
        origins=(made,),
    )
    samples, reused = build_feedback_samples(params)
    details = samples.manifest
    metadata: dict[str, Any] = {
        "reused": reused,
        "samples": dg.MetadataValue.path(samples.path),
        "num_prompts": details["num_prompts"],
        "num_samples": details["num_samples"],
        "num_solved": details["num_solved"],
        "feedback/mean_reward": round(details["mean_reward"], 4),
        "feedback/stop_rate": round(details["stop_rate"], 4),
        "seconds": round(details["seconds"], 1),
        "tiers": table([{"tier": name, "completions": count} for name, count in details["tiers"].items()]),
    }
    return hand_over(samples, start, metadata=metadata)


@declare_asset(_GROUP, "json", version=version_with_config(PAIRS_STAGE, FEEDBACK))
def feedback_pairs(feedback_samples: ArtifactRef, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """Choose what is learnt: accepted completions, no two of a prompt alike."""
    pairs, reused = build_feedback_pairs(
        store.artifact(feedback_samples),
        store.artifact(feedback_samples.of(MIXED)).path / TRAIN,
        store.artifact(feedback_samples.of(SPLIT)).path / HELDOUT,
        load_model(FEEDBACK, FeedbackConfig),
        store.open(),
    )
    metadata: dict[str, Any] = {
        "reused": reused,
        "pairs": dg.MetadataValue.path(pairs.path),
        **{name: pairs.manifest[name] for name in ("num_accepted", "num_held_out")},
    }
    return hand_over(pairs, feedback_samples, metadata=metadata)


@declare_asset(_GROUP, "pytorch", "huggingface", version=version_with_config(TRAINING_STAGE, FEEDBACK), on_gpu=True)
def feedback_adapter(  # noqa: PLR0913, PLR0917 - what Dagster injects
    context: dg.AssetExecutionContext,
    config: LearningConfig,
    feedback_pairs: ArtifactRef,
    compute: Compute,
    trainer: Trainer,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Train the adapter that completed them further, on what was learnt; then it is evaluated as any other.

    As a control it trains on rows of the train set alone, for as long as sampling took besides.
    """
    settings, opened = load_settings(), store.open()
    chosen, mixed, method = _config_for(config), feedback_pairs.of(MIXED), Method(config.method)
    if method is Method.CONTROL:
        chosen = chosen.of_control(SamplesDetails.of(store.artifact(feedback_pairs.of(SAMPLES))).seconds)
    learning = Learning(
        method,
        store.artifact(feedback_pairs.of(ADAPTER)).path,
        store.artifact(feedback_pairs),
        store.artifact(mixed).path / TRAIN,
        chosen,
    )
    run = prepare_feedback(learning, opened, compute.resolve(), settings.cache_root, context.log.info)
    adapter, reused = build_qlora_adapter(
        run,
        opened,
        lambda prepared: trainer.run(context, prepared),
        artifact_commit(settings),
        settings.backend,
    )
    made = Adapter.open(adapter.path)
    metadata: dict[str, Any] = {"reused": reused, "method": str(method), **metadata_of(made)}
    return hand_over(adapter, feedback_pairs, metadata=metadata, version=made.digest)


@dg.asset_check(asset=feedback_adapter, blocking=True)
def feedback_changed_the_adapter(feedback_adapter: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that every matrix of the adapter was trained."""
    return changes_of(feedback_adapter, store)


@dg.asset_check(asset=feedback_adapter)
def feedback_loss_fell(feedback_adapter: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn unless the loss of the last quarter of steps is below that of the first quarter."""
    return fall_of(store.artifact(feedback_adapter).path)


def _config_for(config: RoundConfig) -> FeedbackConfig:
    chosen = load_model(FEEDBACK, FeedbackConfig).with_minutes(config.minutes)
    seed = chosen.seed if config.seed is None else config.seed
    return chosen.model_copy(update={"seed": seed + config.number - 1})


@dg.definitions
def feedback() -> dg.Definitions:
    """Define the assets and jobs of a round, where MENS_SIDE_BRANCHES names them."""
    if not has_side_branch(_GROUP):
        return dg.Definitions()
    evaluated = dg.AssetSelection.assets("eval_results", "benchmark_gate")
    improve = dg.define_asset_job(
        "improve",
        selection=dg.AssetSelection.groups(_GROUP) | evaluated | dg.AssetSelection.assets("promoted_adapter"),
        description="Learning from scored completions: the newest adapter is asked and trained, the next one gated.",
    )
    improve_control = dg.define_asset_job(
        "improve_control",
        selection=dg.AssetSelection.assets("feedback_adapter") | evaluated,
        description="Beside a round: the same minutes on rows of the train set alone; evaluated, never promoted.",
    )
    return dg.Definitions(
        assets=[feedback_samples, feedback_pairs, feedback_adapter],
        asset_checks=[feedback_changed_the_adapter, feedback_loss_fell],
        jobs=[improve, improve_control],
    )
