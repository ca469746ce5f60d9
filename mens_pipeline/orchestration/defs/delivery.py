"""The delivered model: the champion merged into its base, and its hand-off to a serving system."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from mens_pipeline.corpus.curate.pipeline_config import load_source_policy
from mens_pipeline.delivery.agreement import NUM_PROMPTS
from mens_pipeline.delivery.gguf import build_gguf_model
from mens_pipeline.delivery.hub import MAIN, PushPlan, Target, plan_push, push
from mens_pipeline.delivery.merge import STAGE as MERGING
from mens_pipeline.delivery.merge import (
    MergeReport,
    MergeSource,
    build_merged_model,
    choose_prompts,
    manifest_in,
    merge_source,
    prepare_merge,
    report_in,
)
from mens_pipeline.delivery.serving_handoff import HANDOFF, STAGE, Delivery, build_serving_handoff, changed_files
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import Conditions, completion_fits
from mens_pipeline.models.adapter import CARD
from mens_pipeline.orchestration.asset import blocking_check, declare_asset
from mens_pipeline.orchestration.defs.promotion import promoted_adapter
from mens_pipeline.orchestration.launchers import JobLauncher
from mens_pipeline.orchestration.metadata import fold_paths, table
from mens_pipeline.orchestration.recipes import config_of
from mens_pipeline.orchestration.resources import ArtifactStoreResource, Compute, hand_over
from mens_pipeline.settings import EVALUATION, PIPELINE_CONFIG, Settings, load_settings
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline.storage.yaml_file import load_model


class MergeConfig(dg.Config):
    """Run configuration of `merged_model`."""

    dtype: Literal["as_judged", "float32", "bfloat16"] = Field(
        default="as_judged",
        description="Type of the weights; `as_judged`, the type of the evaluation, keeps every token.",
    )
    gguf: Literal["none", "f32", "f16", "q8_0"] = Field(
        default="none", description="Also write a GGUF file, for llama.cpp and Ollama."
    )
    num_prompts: int = Field(default=NUM_PROMPTS, ge=1, description="Number of held-out prompts to compare.")


class HandoffConfig(dg.Config):
    """Run configuration of `serving_handoff`."""

    publish: bool | None = Field(
        default=None, description="Send the adapter to the Hub; by default if MENS_HUB_REPO is set."
    )
    revision: str = Field(default=MAIN, description="Branch on the Hub.")


@declare_asset("delivery", "huggingface", version=MERGING.code_version, deps=[promoted_adapter], gpus="one")
def merged_model(
    context: dg.AssetExecutionContext,
    config: MergeConfig,
    compute: Compute,
    merger: JobLauncher,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Merge the champion into its base, dequantized from the four bits it was evaluated in; write GGUF on request.

    The result is loaded like any model and compared with the evaluated model on held-out prompts.
    """
    settings, opened = load_settings(), store.open()
    source = merge_source(None, opened, load_source_policy(PIPELINE_CONFIG))
    _refuse_what_cannot_be_sent(context, settings, source)
    decoding, device = load_model(EVALUATION, EvaluationConfig).decoding, compute.resolve()
    prompts = choose_prompts(
        source, None, opened, completion_fits(source.adapter.manifest.base_model, decoding), config.num_prompts
    )
    conditions = Conditions(decoding, device, device.lock_in(settings.cache_root))
    work = opened.root / Kind.MERGED_MODEL / f".work-{context.run.run_id}"
    prepared = prepare_merge(source, prompts, conditions, None if config.dtype == "as_judged" else config.dtype, work)
    merged, reused = build_merged_model(prepared, opened, lambda job: merger.run(context, job))
    passed = report_in(merged.path).passed
    gguf = None
    if config.gguf != "none" and passed:
        gguf, _ = build_gguf_model(merged, prepared, config.gguf, opened, lambda job: merger.run(context, job))
    refs = () if source.promoted is None else (source.promoted.ref(),)
    return dg.MaterializeResult(
        value=gguf.ref(merged.ref(*refs)) if gguf is not None else merged.ref(*refs),
        data_version=dg.DataVersion(merged.data_version),
        metadata=fold_paths(
            {
                "reused": reused,
                "folder": dg.MetadataValue.path(merged.path),
                "gguf": dg.MetadataValue.path(gguf.path) if gguf is not None else "none",
                "adapter": source.adapter.digest[:12],
                "merged_into": manifest_in(merged.path).merged_into.why,
                "report": table(_rows(report_in(merged.path))),
                "merge/token_agreement": report_in(merged.path).agreement.token_agreement,
            }
        ),
    )


@blocking_check(merged_model)
def writes_what_was_evaluated(merged_model: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that the merged model matches the evaluated one in tokens (99.9 %) and parse rate (0.2 points)."""
    report = report_in(store.artifact(merged_model.of(Kind.MERGED_MODEL)).path)
    return dg.AssetCheckResult(
        passed=report.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={
            "agreement": report.summary,
            "reasons": " ".join(report.reasons) or "none",
            "largest_logit_difference": report.agreement.largest_logit_difference,
        },
    )


@declare_asset("delivery", "json", version=STAGE.code_version)
def serving_handoff(
    config: HandoffConfig, merged_model: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Describe the model for a serving system: files with hashes, template, stop tokens, verdict, card.

    Refuses a merged model that differs from the evaluated one. Publishes the adapter on the Hub on request.
    """
    settings, opened = load_settings(), store.open()
    merged = store.artifact(merged_model.of(Kind.MERGED_MODEL))
    gguf = store.artifact(merged_model) if merged_model.kind == Kind.GGUF_MODEL else None
    source = merge_source(None, opened, load_source_policy(PIPELINE_CONFIG))
    if source.adapter.digest != manifest_in(merged.path).adapter_sha256:
        raise dg.Failure("The champion changed after the merge. Materialise merged_model first.", allow_retries=False)
    delivery = Delivery(source=source, merged=merged, gguf=gguf, data_licence=settings.data_licence)
    handoff, reused = build_serving_handoff(delivery, opened)
    with TemporaryDirectory(prefix="mens-push-") as staging:
        plan = _plan_push(config, settings, source, Path(staging))
        commit = push(plan, settings.hub_token).commit if plan is not None else "not published"
    metadata: dict[str, Any] = {
        "reused": reused,
        "handoff": dg.MetadataValue.path(handoff.file(HANDOFF)),
        "card": dg.MetadataValue.md((handoff.path / CARD).read_text(encoding="utf-8")),
        "commit": commit,
    }
    return hand_over(handoff, merged_model, metadata=metadata)


@dg.asset_check(asset=serving_handoff)
def handed_files_as_written(serving_handoff: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Check that every file of the hand-off exists and has the listed hash."""
    changed = changed_files(store.artifact(serving_handoff).file(HANDOFF))
    return dg.AssetCheckResult(passed=not changed, metadata={"changed": ", ".join(changed) or "none"})


def _refuse_what_cannot_be_sent(context: dg.AssetExecutionContext, settings: Settings, source: MergeSource) -> None:
    """Check target and token of a publication in the same run before the merge, which takes minutes."""
    if not any(node.name == serving_handoff.op.name for node in context.job_def.nodes):
        return
    config = HandoffConfig(**config_of(context.run, serving_handoff.op.name))
    with TemporaryDirectory(prefix="mens-push-") as staging:
        plan = _plan_push(config, settings, source, Path(staging))
    if plan is not None and (settings.hub_token is None or not settings.hub_token.get_secret_value().strip()):
        raise ConfigurationError("HF_TOKEN: not set. Set it to a token with write access to the repository.")


def _plan_push(config: HandoffConfig, settings: Settings, source: MergeSource, staging: Path) -> PushPlan | None:
    wanted = config.publish if config.publish is not None else settings.hub_repo is not None
    if not wanted:
        return None
    if settings.hub_repo is None:
        raise ConfigurationError("publish: set MENS_HUB_REPO to OWNER/NAME first.")
    return plan_push(source, Target(settings.hub_repo, config.revision), settings.data_licence, staging)


def _rows(report: MergeReport) -> list[dict[str, Any]]:
    found = report.agreement
    cells = (
        ("identical tokens", f"{found.num_same_tokens}/{found.num_tokens}"),
        ("identical tokens, teacher-forced", f"{found.num_led_tokens}/{found.num_reference_tokens}"),
        ("identical completions", f"{found.num_same_completions}/{found.num_prompts}"),
        ("identical prompts", f"{found.num_same_prompts}/{found.num_prompts}"),
        ("parse rate, evaluated model", str(found.reference_parse_rate)),
        ("parse rate, merged model", str(found.candidate_parse_rate)),
        ("largest logit difference", f"{found.largest_logit_difference:.1e}"),
    )
    return [{"metric": metric, "figure": figure} for metric, figure in cells]
