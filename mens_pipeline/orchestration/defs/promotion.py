"""The verdict, the checks that enforce it, and the adapter that is in use."""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg
from dagster._utils.interrupts import capture_interrupts  # holds SIGINT back; nothing public does
from pydantic import Field

from mens_pipeline.corpus.schema.records import HELDOUT
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.card import plain
from mens_pipeline.orchestration.asset import (
    OWNERS,
    add_advice,
    build_freshness,
    declare_asset,
    load_nightly,
    plainly,
    stop_if_canceled,
    version_with_config,
)
from mens_pipeline.orchestration.choices import required_thresholds, settings_of
from mens_pipeline.orchestration.metadata import RECIPE_TAG, identify, table
from mens_pipeline.orchestration.recipes import Choice, best_evaluated, trial_of
from mens_pipeline.orchestration.resources import ArtifactStoreResource, champion_metadata, hand_over, linked_page
from mens_pipeline.promotion.benchmark_gate import STAGE, GateParams, build_benchmark_gate
from mens_pipeline.promotion.gate import summarize_gate
from mens_pipeline.promotion.history import describe_champion, find_baseline, find_withdrawn
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus
from mens_pipeline.promotion.promote import promote
from mens_pipeline.promotion.receipt import PAGE, RECEIPT, find_cause, find_gate, receipt_in
from mens_pipeline.promotion.report.page import gate_rows
from mens_pipeline.promotion.verdict_basis import Verdict
from mens_pipeline.settings import GATE_POLICY, Settings, load_settings, pipeline_commit, policy_label, read_terms
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore

_GATE: Final = dg.AssetKey("benchmark_gate")

NOT_REFUSED: Final = "not_refused"
"""The check that says why the adapter in use was not replaced."""


class GateConfig(dg.Config):
    """Run configuration of the gate: the severity of a failure, and a threshold that can only be raised."""

    strict_quality_gate: bool | None = Field(
        default=None, description="Whether a failing gate fails the run; by default VOX_EVAL_STRICT decides."
    )
    benchmark_min_pass_rate: float | None = Field(
        default=None, description="Minimum share of the benchmark that passes; by default policy or environment decide."
    )


class PromotionConfig(dg.Config):
    """Run configuration of the promotion."""

    promote: bool = Field(default=True, description="If false, only evaluate, and keep the adapter in use.")
    best_of: list[str] | None = Field(
        default=None,
        description="Evaluated recipes or run ids: the best one that passed is promoted. By default the adapter of "
        "the upstream verdict.",
    )


@declare_asset("evaluation", "json", version=version_with_config(STAGE, GATE_POLICY))
def benchmark_gate(
    context: dg.AssetExecutionContext, config: GateConfig, eval_results: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Decide whether the adapter is good enough, by its figures and the thresholds of config/gates.yaml.

    The verdict names both by hash. The page `report.html` shows the verdict and every failure.
    """
    settings, opened = settings_of(context.run), store.open()
    adapter = Adapter.open(store.artifact(eval_results.of(Kind.QLORA_ADAPTER)).path)
    baseline = find_baseline(opened, adapter.digest)
    params = GateParams(
        evaluation=store.artifact(eval_results),
        adapter=adapter.path,
        policy=_policy(config, settings),
        thresholds=required_thresholds(settings, config.benchmark_min_pass_rate),
        champion_key=baseline.key if baseline is not None else None,
        is_benchmark_asked=settings.benchmark,
        strict=settings.eval_strict if config.strict_quality_gate is None else config.strict_quality_gate,
        now=int(time.time()),
        commit=pipeline_commit(),
    )
    gate, reused = build_benchmark_gate(params, opened)
    receipt = receipt_in(gate.path)
    cause = find_cause(receipt.gates, adapter.manifest)
    metadata: dict[str, Any] = {
        "gates": _gates_table(receipt.gates),
        **linked_page(opened, gate, PAGE),
        "reasons": _bullets(receipt.reasons),
        "warnings": _bullets(receipt.warnings),
        **({} if cause is None else {"likely_cause": cause.text, "remedy": str(cause.remedy)}),
        **identify(context, adapter, verdict=str(receipt.status)),
        "status": str(receipt.status),
        "passed": receipt.overall_passed,
        "attempt": receipt.tried or "unknown",
        "policy": receipt.policy,
        "strict": receipt.strict,
        "reused": reused,
        "receipt": dg.MetadataValue.path(gate.file(RECEIPT)),
    }
    return hand_over(gate, eval_results, metadata=metadata)


def _gates_table(gates: Iterable[GateOutcome]) -> dg.TableMetadataValue:
    return table(
        {"gate": row.title, "measured": row.measured, "required": row.required, "verdict": row.word}
        for row in gate_rows(gates)
    )


@dg.multi_asset_check(
    specs=[
        dg.AssetCheckSpec(
            "gate_passed",
            asset=benchmark_gate,
            blocking=True,
            description="No blocking gate failed or was undecided. Otherwise nothing is promoted, and with "
            "VOX_EVAL_STRICT=1 or strict_quality_gate the run fails instead of warning.",
        ),
        dg.AssetCheckSpec(
            "model_parse_rate",
            asset=benchmark_gate,
            blocking=True,
            description="The front end accepts enough of the adapter's own completions of held-out prompts.",
        ),
        dg.AssetCheckSpec(
            "model_coverage",
            asset=benchmark_gate,
            blocking=True,
            description="The adapter's accepted completions use enough constructs of the language.",
        ),
    ],
    can_subset=True,
)
def gate_checks(
    context: dg.AssetCheckExecutionContext, benchmark_gate: ArtifactRef, store: ArtifactStoreResource
) -> Iterator[dg.AssetCheckResult]:
    """Report the verdict as asset checks, read from the receipt."""
    receipt = receipt_in(store.artifact(benchmark_gate).path)
    severity = dg.AssetCheckSeverity.ERROR if receipt.strict else dg.AssetCheckSeverity.WARN
    gates = {"model_parse_rate": GateName.PARSE_RATE, "model_coverage": GateName.COVERAGE}
    for key in context.selected_asset_check_keys:
        if key.name == "gate_passed":
            passed, summary = receipt.overall_passed, receipt.summary
            metadata: dict[str, Any] = {
                "status": str(receipt.status),
                "gates": _gates_table(receipt.gates),
                "reasons": "; ".join(receipt.reasons) or "none",
                "gates_closed": len(receipt.reasons),
            }
        else:
            gate = find_gate(receipt, gates[key.name])
            figures = {"measured": gate.measured, "required": gate.required}
            numbers = {name: round(value, 4) for name, value in figures.items() if value is not None}
            passed, summary = gate.passed, summarize_gate(gate)
            metadata = {"status": str(gate.status), "details": gate.message, **numbers}
        result = dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=passed,
            severity=severity,
            description=summary or None,
            metadata=metadata,
        )
        yield add_advice(result) if receipt.strict else result


@dg.asset(
    group_name="delivery",
    kinds={"huggingface"},
    owners=OWNERS,
    code_version=code_version("mens_pipeline.promotion.promote:promote"),
    output_required=False,
    freshness_policy=build_freshness(load_nightly(), datetime.now(UTC)),
    check_specs=[
        dg.AssetCheckSpec(
            NOT_REFUSED,
            asset="promoted_adapter",
            description="The run may promote its adapter: the gate passed, and no rollback withdrew it. Otherwise "
            "the champion stays in use.",
        )
    ],
)
def promoted_adapter(
    context: dg.AssetExecutionContext,
    config: PromotionConfig,
    benchmark_gate: ArtifactRef,
    store: ArtifactStoreResource,
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Promote the adapter: write an atomic pointer to it, its verdict, and the history of all changes.

    It refuses an adapter without its own passing verdict, even when it is materialised alone. An adapter that a
    rollback withdrew is not promoted again. Of several evaluated recipes it promotes the best.
    """
    yield from _promote(context, config, benchmark_gate, store)


@plainly
def _promote(
    context: dg.AssetExecutionContext,
    config: PromotionConfig,
    benchmark_gate: ArtifactRef,
    store: ArtifactStoreResource,
) -> list[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    settings, opened = load_settings(), store.open()
    chosen: dict[str, Any] = {}
    if config.best_of and config.promote:
        choice = _choose(context, config.best_of, opened, settings)
        benchmark_gate, chosen = choice.best.gate, choice.metadata()
    verdict = Verdict.open(store.artifact(benchmark_gate), opened)
    receipt, may_be_skipped = verdict.receipt, _is_evaluated_here(context) and not verdict.receipt.strict
    if may_be_skipped and not receipt.overall_passed:
        return [_refuse(context, receipt.summary, opened, receipt.reasons)]
    adapter = Adapter.open(store.artifact(benchmark_gate.of(Kind.QLORA_ADAPTER)).path)
    if may_be_skipped and adapter.digest in find_withdrawn(opened):
        advice = "Change data or recipe, or sign an override."
        return [_refuse(context, "withdrawn by a rollback", opened, (advice,))]
    is_trial = trial_of(context.run) is not None
    if is_trial or not config.promote:
        why = "its recipe is a trial" if is_trial else "the run sets promote: false"
        line = f"evaluated but not promoted: {why}; {describe_champion(opened)}"
        context.log.info(line)
        return [dg.AssetCheckResult(passed=True, description=line)]
    if config.best_of:
        identify(context, adapter, verdict=str(GateStatus.PASSED))
    heldout = store.artifact(benchmark_gate.of(Kind.HELDOUT_SPLIT)).file(HELDOUT)
    terms = read_terms(settings, store.artifact(benchmark_gate.of(Kind.EVAL_RESULTS)), heldout)
    with ExitStack() as uninterrupted:

        def confirm() -> None:
            # From here on history and pointer change together; an earlier signal shows in the status of the run.
            uninterrupted.enter_context(capture_interrupts())
            stop_if_canceled(context)

        promotion = promote(verdict, adapter, opened, terms, now=int(time.time()), confirm=confirm)
    promoted = dg.MaterializeResult(
        value=promotion.champion.ref(benchmark_gate),
        data_version=dg.DataVersion(promotion.champion.key),
        metadata={**champion_metadata(promotion, opened), **chosen},
    )
    word = "promoted" if promotion.changed else "the adapter in use is confirmed"
    return [promoted, dg.AssetCheckResult(passed=True, description=f"{word}: {adapter.digest[:12]}")]


def _choose(context: dg.AssetExecutionContext, names: list[str], store: ArtifactStore, settings: Settings) -> Choice:
    choice = best_evaluated(names, context.instance, store, settings)
    for name, why in choice.passed_over.items():
        context.log.warning("skipped %s: %s", name, why)
    best = choice.best
    context.log.info("best of %d: %s", len(names), best.name)
    context.instance.add_run_tags(context.run.run_id, {RECIPE_TAG: best.name})
    return choice


def _refuse(
    context: dg.AssetExecutionContext, summary: str, store: ArtifactStore, details: Iterable[str]
) -> dg.AssetCheckResult:
    line = f"{summary}: not promoted; {describe_champion(store)}"
    context.log.warning(line)
    return dg.AssetCheckResult(passed=False, description=line, metadata={"reasons": "; ".join(details)})


def _bullets(lines: Iterable[str]) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md("\n".join(f"- {plain(line)}" for line in lines) or "none")


def _policy(config: GateConfig, settings: Settings) -> str:
    label = policy_label(settings)
    higher = config.benchmark_min_pass_rate
    return label if higher is None else f"{label}, min_benchmark {higher:g} by benchmark_min_pass_rate"


def _is_evaluated_here(context: dg.AssetExecutionContext) -> bool:
    """Return whether a check of this run has reported the verdict.

    Read the events: the selection of a run may be empty although all its assets run.
    """
    details = context.instance.all_logs(context.run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    evaluations = (event.asset_check_evaluation_data for entry in details if (event := entry.dagster_event) is not None)
    return any(evaluation.asset_key == _GATE for evaluation in evaluations)
