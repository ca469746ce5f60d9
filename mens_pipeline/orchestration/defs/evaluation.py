"""Evaluation of base and adapter on held-out prompts and the benchmark."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from mens_pipeline.configured import engine_of, thresholds_of
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.eval_results import STAGE, eval_suite
from mens_pipeline.evaluation.few_shot import few_shot_of
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, RESULTS, EvalResults
from mens_pipeline.evaluation.scores import Scores
from mens_pipeline.evaluation.statistics import p_text
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import Conditions, answer_fits, manifest_of
from mens_pipeline.orchestration.choices import GPU_TAGS, OWNERS, configured
from mens_pipeline.orchestration.defs.split import heldout_split
from mens_pipeline.orchestration.experiment import identify
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.handover import made_in_run
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.orchestration.resources.compute import Compute
from mens_pipeline.orchestration.resources.generator import Generator
from mens_pipeline.promotion.receipt import results_in
from mens_pipeline.promotion.rounds import Demands, evaluate_in_rounds, rounds_of
from mens_pipeline.settings import EVALUATION, FEW_SHOT, GATE_POLICY, load_settings
from mens_pipeline.storage.store import ArtifactRef, digest_of
from mens_pipeline.storage.yaml_file import load_model

_SHOWN = (
    *("parse_rate", "resolve_rate", "pass_at_1", "pass_at_k", "test_rate", "construct_rate", "name_rate", "stop_rate"),
    *("stub_rate", "empty_rate", "refusal_rate", "duplicate_rate"),
)


@dg.asset(
    group_name="evaluation",
    deps=[heldout_split, "feedback_adapter"],
    kinds={"huggingface", "json"},
    owners=OWNERS,
    code_version=configured(STAGE, EVALUATION, FEW_SHOT, GATE_POLICY),
    pool="gpu",
    op_tags=GPU_TAGS,
    tags=GPU_TAGS,
)
@plainly
def eval_results(
    context: dg.AssetExecutionContext,
    qlora_adapter: ArtifactRef,
    compute: Compute,
    generator: Generator,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Completions of base and adapter to held-out prompts and the benchmark, each judged by the front end.

    The prompts are those that were held out of its own training. Where the gates cannot tell yet, more files are
    asked, as config/gates.yaml says. Completions are kept: the base is asked the same prompts once, not every night.
    In a run that makes a `feedback_adapter` that is judged, in all others `qlora_adapter`.
    """
    settings, candidate = load_settings(), made_in_run(context, "feedback_adapter") or qlora_adapter
    benchmark = load_benchmark(settings.benchmark_dir) if settings.benchmark else None
    run, device, config = (
        store.artifact(candidate).path,
        compute.resolve(),
        load_model(EVALUATION, EvaluationConfig),
    )
    opened, decoding = store.open(), config.decoding
    manifest = manifest_of(run)
    manifest["train_file"] = str(opened.located(Path(manifest["train_file"])))  # perhaps trained on another machine
    heldout, fits = store.artifact(candidate.of(SPLIT)).path / HELDOUT, answer_fits(manifest, decoding)
    exam = eval_suite(heldout, Path(manifest["train_file"]), benchmark, fits, config.family_tasks)
    demands = Demands(thresholds_of(settings), is_benchmark_asked=settings.benchmark)
    # The base is shown the examples that it was shown before, whatever an adapter learnt besides.
    examples = manifest if candidate is qlora_adapter else _train_set(store.artifact(candidate.of(MIXED)).path / TRAIN)
    first = rounds_of(exam.tasks, demands.thresholds)[0]
    exam = replace(
        exam,
        num_base_tasks=config.base_tasks,
        few_shot=few_shot_of(first, config.few_shot_tasks, FEW_SHOT, examples),
    )
    conditions = Conditions(decoding, device, settings.cache_root / f"{device.kind}.lock", engine_of(settings))
    evaluation, reused = evaluate_in_rounds(
        run,
        exam,
        conditions,
        opened,
        manifest,
        demands=demands,
        launch=lambda prepared: generator.run(context, prepared),
        tell=context.log.info,
        work=context.run.run_id,
        now=int(time.time()),
    )
    results = results_in(evaluation.path)
    return dg.MaterializeResult(
        value=evaluation.ref(candidate),
        data_version=dg.DataVersion(evaluation.data_version),
        metadata={
            **identify(context, manifest, results.subject.adapter_sha256),
            "reused": reused,
            "scores": dg.MetadataValue.table(rows_of(results.base.overall, results.adapter.overall)),
            **{
                name: round(value, 4) if isinstance(value, float) else value
                for name, value in figures_of(results).items()
            },
            "results": dg.MetadataValue.path(evaluation.path / RESULTS),
            "answers": dg.MetadataValue.path(evaluation.path / JUDGED_ANSWERS),
        },
    )


def _train_set(path: Path) -> dict[str, str]:
    """Return what a training manifest says of its train set."""
    return {"train_file": str(path), "train_sha256": digest_of(path)}


@dg.asset_check(asset=eval_results)
def beats_the_base(eval_results: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn unless the parse rate of the adapter is above that of the base, by more than chance alone would give."""
    results = results_in(store.artifact(eval_results).path)
    difference = results.parse_difference
    return dg.AssetCheckResult(
        passed=difference.difference > 0 and difference.p_value < 0.05,  # noqa: PLR2004 - the usual level
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "base": str(results.base.overall.parse_rate),
            "adapter": str(results.adapter.overall.parse_rate),
            "p_value": round(difference.p_value, 4),
        },
    )


def figures_of(results: EvalResults) -> dict[str, Any]:
    """Return the figures that are plotted over time, and read at a glance."""
    adapter, base = results.adapter, results.base
    figures: dict[str, Any] = {
        "eval/parse_rate": results.vox_parse_rate,
        "eval/coverage": adapter.overall.coverage.share,
        "eval/stop_rate": adapter.overall.stop_rate.value,
        "num_too_long": results.num_too_long,
        "attempt": results.progress.attempt,
        "round": f"{results.progress.round} of {results.progress.num_rounds}",
        "missing_constructs": ", ".join(adapter.overall.coverage.missing) or "none",
    }
    for suite, scores in adapter.suites.items():
        figures[f"eval/{suite}/parse_rate"] = scores.parse_rate.value
        figures[f"eval/{suite}/pass_at_1"] = scores.pass_at_1.value
        figures[f"{suite}: parse rate"] = f"{scores.parse_rate}, base {base.suites[suite].parse_rate}"
        figures[f"eval/{suite}/resolve_rate"] = scores.resolve_rate.value
        figures[f"{suite}: resolve rate"] = f"{scores.resolve_rate}, base {base.suites[suite].resolve_rate}"
        if scores.test_rate.value is not None:
            figures[f"eval/{suite}/test_rate"] = scores.test_rate.value
            figures[f"{suite}: hidden tests"] = f"{scores.test_rate}, base {base.suites[suite].test_rate}"
    if results.few_shot is not None:
        rate, gain = results.few_shot.scores.overall.parse_rate, results.few_shot.parse_difference
        found = f"{100 * gain.difference:+.1f} points ({p_text(gain.p_value)})"
        figures["few_shot: parse rate"] = f"{rate} by the base with examples, adapter {found} on the same prompts"
    if results.fallback is not None:
        again, passes = results.fallback, results.fallback.pass_difference
        found = f"pass@1 {100 * passes.difference:+.1f} points ({p_text(passes.p_value)})"
        written = f"{again.num_constrained} answers once more, constrained; {found}"
        figures["fallback: parse rate"] = f"{again.scores.overall.parse_rate.short}, {written}"
        figures["fallback: resolve rate"] = str(again.scores.overall.resolve_rate)
    for suite, scores in results.families.items():
        figures[f"eval/{suite}/test_rate"] = scores.test_rate.value
        figures[f"{suite}: hidden tests"] = str(scores.test_rate)
    return figures


def rows_of(base: Scores, adapter: Scores) -> list[dg.TableRecord]:
    """Return the rows of the table of both models."""
    rates = [(name, getattr(adapter, name), getattr(base, name)) for name in _SHOWN]
    return [
        dg.TableRecord({"what": name, "adapter": ours.short, "95 % interval": ours.interval, "base": theirs.short})
        for name, ours, theirs in rates
    ]
