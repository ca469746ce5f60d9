"""Evaluation of base and adapter on held-out prompts and the benchmark, and a table of all recipes."""

import time
from typing import Any, Final

import dagster as dg
from pydantic import Field, ValidationError

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.schema.account import share_text
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.eval_results import STAGE
from mens_pipeline.evaluation.results import RESULTS, SCORED_COMPLETIONS, EvalResults, figures_of_infill, results_in
from mens_pipeline.evaluation.rounds import evaluate_in_rounds
from mens_pipeline.evaluation.statistics import p_text
from mens_pipeline.evaluation.suite import build_suite
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.orchestration.asset import declare_asset, version_with_config
from mens_pipeline.orchestration.choices import settings_of
from mens_pipeline.orchestration.defs.train_set import heldout_split
from mens_pipeline.orchestration.forecast import SuiteSize
from mens_pipeline.orchestration.launchers import JobLauncher
from mens_pipeline.orchestration.metadata import fold_paths, identify, table
from mens_pipeline.orchestration.recipes import trial_of
from mens_pipeline.orchestration.resources import ArtifactStoreResource, Compute, hand_over, linked_page
from mens_pipeline.promotion.receipt import PAGE, receipt_in
from mens_pipeline.promotion.referee import StoreReferee
from mens_pipeline.promotion.report.side_by_side import build_table, list_columns, points
from mens_pipeline.settings import EVALUATION, FEW_SHOT, GATE_POLICY, RECIPES, read_thresholds
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline.storage.validation import errors_in
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.presets import load_recipes


class EvalConfig(dg.Config):
    """Run configuration of the evaluation."""

    suite: dict[str, int] | None = Field(
        default=None, description="Part of the eval suite, as fields of SuiteSize; by default the whole suite."
    )

    def size(self, trial: dict[str, int] | None) -> SuiteSize | None:
        """Return the requested part, or None for all; `RefusedError` if fields are missing or unknown."""
        suite = self.suite or trial
        try:
            return SuiteSize.model_validate(suite) if suite else None
        except ValidationError as error:
            advice = "Write all fields, as `mens plan --minutes M --json` prints them."
            raise RefusedError(f"eval_results: suite: {errors_in(error)}. {advice}") from error


@declare_asset(
    "evaluation",
    "huggingface",
    "json",
    version=version_with_config(STAGE, EVALUATION, FEW_SHOT, GATE_POLICY),
    gpus="devices",
    deps=[heldout_split],
)
def eval_results(  # noqa: PLR0913, PLR0917 - injected by Dagster
    context: dg.AssetExecutionContext,
    config: EvalConfig,
    qlora_adapter: ArtifactRef,
    compute: Compute,
    generator: JobLauncher,
    store: ArtifactStoreResource,
) -> dg.MaterializeResult[Any]:
    """Complete held-out prompts and the benchmark with base and adapter, and score each completion.

    The prompts were held out of the training of this adapter. While gates are undecided, prompts of more files follow,
    as config/gates.yaml says. Completions are kept, so the base does not repeat them every night.
    """
    settings = settings_of(context.run)
    benchmark = load_benchmark(settings.benchmark_dir) if settings.benchmark else None
    adapter, device = Adapter.open(store.artifact(qlora_adapter).path), compute.resolve()
    opened, asked, manifest = store.open(), load_model(EVALUATION, EvaluationConfig), adapter.manifest
    size = config.size(trial_of(context.run))
    if size is not None:
        asked = asked.model_copy(update=size.model_dump(exclude={"heldout_tasks", "benchmark_tasks"}))
    thresholds = read_thresholds(settings)
    suite = build_suite(
        manifest,
        store.artifact(qlora_adapter.of(Kind.HELDOUT_SPLIT)).file(HELDOUT),
        opened.locate(manifest.train_file),  # perhaps trained on another machine
        benchmark,
        asked,
        first_heldout_tasks=thresholds.first_heldout_tasks,
        max_rounds=thresholds.max_rounds,
        few_shot=FEW_SHOT,
        part=None if size is None else (size.heldout_tasks, size.benchmark_tasks),
    )
    conditions = Conditions(asked.decoding, device, device.lock_in(settings.cache_root))
    evaluation, reused = evaluate_in_rounds(
        adapter,
        suite,
        conditions,
        opened,
        StoreReferee(opened, thresholds, settings.benchmark, int(time.time()), context.log.info),
        launch=lambda job: generator.run(context, job.path, job.devices),
        log_line=context.log.info,
    )
    results = results_in(evaluation.path)
    metadata: dict[str, Any] = {
        **identify(context, adapter),
        "reused": reused,
        "scores": table(list_rows(results)),
        **list_figures(results),
        "results": dg.MetadataValue.path(evaluation.file(RESULTS)),
        "completions": dg.MetadataValue.path(evaluation.file(SCORED_COMPLETIONS)),
    }
    return hand_over(evaluation, qlora_adapter, metadata=metadata)


@dg.asset_check(asset=eval_results)
def beats_the_base(eval_results: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn unless the adapter has a significantly higher parse rate than its base."""
    results = results_in(store.artifact(eval_results).path)
    difference = results.parse_difference
    return dg.AssetCheckResult(
        passed=difference.difference > 0 and difference.p_value < 0.05,  # noqa: PLR2004 - the usual level
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "adapter": str(results.adapter.overall.parse_rate),
            "base": str(results.base.overall.parse_rate),
            "measured": f"{points(difference.difference)} ({p_text(difference.p_value)})",
            "required": "above the base, p < 0.05",
        },
    )


@dg.asset_check(asset=eval_results)
def completes_lines(eval_results: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Warn unless the adapter completes significantly more lines exactly than its base and an n-gram baseline.

    An adapter that was not trained on holes passes; the gate `infill_gain` measures the same.
    """
    infill = results_in(store.artifact(eval_results).path).infill
    if infill is None:
        return dg.AssetCheckResult(
            passed=True, metadata={"infill": "the adapter was not trained to complete at a cursor"}
        )
    gains = {name: infill.exact_difference[name] for name in ("base", "ngram") if name in infill.exact_difference}
    return dg.AssetCheckResult(
        passed=bool(gains) and all(gain.p_better < 0.05 for gain in gains.values()),  # noqa: PLR2004 - the usual level
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "required": "more than each baseline, p < 0.05",
            "exact_lines": str(infill.models["adapter"]["line"].exact)
            if "line" in infill.models["adapter"]
            else "none",
            **{f"p/{name}": round(gain.p_better, 4) for name, gain in gains.items()},
            **{f"gain/{name}": f"{gain.only_second} more, {gain.only_first} fewer" for name, gain in gains.items()},
        },
    )


def list_figures(results: EvalResults) -> dict[str, Any]:
    """Return figures as metadata: numbers to plot over time, and texts to read at a glance."""
    adapter, base = results.adapter, results.base
    shown, missing = adapter.overall.coverage.present, adapter.overall.coverage.missing
    figures: dict[str, Any] = {
        "eval/parse_rate": results.vox_parse_rate,
        "eval/coverage": adapter.overall.coverage.share,
        "coverage": f"{share_text(len(shown), len(shown) + len(missing))} of the constructs",
        "eval/stop_rate": adapter.overall.stop_rate.value,
        "num_too_long": str(results.num_too_long),
        "attempt": str(results.progress.attempt),
        "round": f"{results.progress.round} of {results.progress.num_rounds}",
        "missing_constructs": ", ".join(missing) or "none",
    }
    labels = {"parse_rate": "parse rate", "resolve_rate": "resolve rate", "test_rate": "hidden tests"}
    for suite, scores in adapter.suites.items():
        figures[f"eval/{suite}/pass_at_1"] = scores.pass_at_1.value
        for name, label in labels.items():
            ours, theirs = getattr(scores, name), getattr(base.suites[suite], name)
            if ours.value is not None:
                figures[f"eval/{suite}/{name}"] = ours.value
                figures[f"{suite}: {label}"] = f"{ours}, base {theirs}"
    if results.few_shot is not None:
        rate, gain = results.few_shot.scores.overall.parse_rate, results.few_shot.parse_difference
        found = f"{points(gain.difference)} ({p_text(gain.p_value)})"
        figures["few_shot: parse rate"] = f"{rate} by the base with examples, adapter {found} on the same prompts"
    if results.fallback is not None:
        again, passes = results.fallback, results.fallback.pass_difference
        found = f"pass@1 {points(passes.difference)} ({p_text(passes.p_value)})"
        written = f"{again.num_constrained} completions repeated with the constraint; {found}"
        figures["fallback: parse rate"] = f"{again.scores.overall.parse_rate.short}, {written}"
        figures["fallback: resolve rate"] = str(again.scores.overall.resolve_rate)
    if results.infill is not None:
        pieces = results.infill.models["adapter"]
        figures |= {f"eval/infill/{kind}_exact": rates.exact.value for kind, rates in pieces.items()}
        figures |= {f"infill: {name}": text for name, text in figures_of_infill(results.infill).items()}
    for suite, scores in results.families.items():
        figures[f"eval/{suite}/test_rate"] = scores.test_rate.value
        figures[f"{suite}: hidden tests"] = str(scores.test_rate)
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}


def list_rows(results: EvalResults) -> list[dict[str, str]]:
    """Return the figures of adapter and base over all prompts."""
    figures = build_table(list_columns(results))
    adapter, base = (figures.models.index(name) for name in ("adapter", "base"))
    cells = ((r.label, r.cells[adapter], r.cells[base]) for r in figures.rows if r.suite == figures.rows[0].suite)
    return [
        {"metric": label, "adapter": ours.text, "interval": ours.interval, "base": theirs.text}
        for label, ours, theirs in cells
    ]


_NAME: Final = "recipe_scores"
_SHOWN: Final = ("heldout: parse rate", "heldout: hidden tests", "benchmark: hidden tests")
_NAMES: Final = tuple(load_recipes(RECIPES))


@declare_asset(
    "evaluation",
    "json",
    version=code_version("mens_pipeline.evaluation.results:results_in"),
    name=_NAME,
    partitions_def=dg.StaticPartitionsDefinition(_NAMES),
)
def recipe_scores(
    context: dg.AssetExecutionContext, benchmark_gate: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Record the results of each recipe in its own partition, with a table of all recipes."""
    adapter = Adapter.open(store.artifact(benchmark_gate.of(Kind.QLORA_ADAPTER)).path)
    evaluation, gate = store.artifact(benchmark_gate.of(Kind.EVAL_RESULTS)), store.artifact(benchmark_gate)
    results, receipt = results_in(evaluation.path), receipt_in(gate.path)
    figures = {
        **identify(context, adapter, verdict=str(receipt.status)),
        "verdict": str(receipt.status),
        **list_figures(results),
    }
    others = {name: _latest(context, name) for name in _NAMES if name != context.partition_key}
    rows = [_row(name, found) for name, found in {context.partition_key: figures, **others}.items() if found]
    return dg.MaterializeResult(
        value=benchmark_gate,
        data_version=dg.DataVersion(gate.data_version),
        metadata=fold_paths({"recipes": table(rows), **figures, **linked_page(store.open(), gate, PAGE)}),
    )


def _latest(context: dg.AssetExecutionContext, recipe: str) -> dict[str, Any]:
    of_recipe = dg.AssetRecordsFilter(asset_key=dg.AssetKey(_NAME), asset_partitions=[recipe])
    records = context.instance.fetch_materializations(of_recipe, limit=1).records
    made = records[0].asset_materialization if records else None
    return {name: value.value for name, value in made.metadata.items()} if made is not None else {}


def _row(recipe: str, figures: dict[str, Any]) -> dict[str, Any]:
    shown = {name: str(figures.get(name, "not evaluated")) for name in _SHOWN}
    facts = {name: str(figures[name]) for name in ("verdict", "base_model", "adapter_sha256")}
    return {"recipe": recipe, **shown, **facts}
