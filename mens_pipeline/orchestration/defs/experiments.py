"""Named recipes side by side: a partition each, trained and judged by one backfill, and never promoted by it."""

from typing import Any, Final

import dagster as dg

from mens_pipeline.evaluation.eval_results import KIND as EVALUATION
from mens_pipeline.inference.prepare import adapter_digest, manifest_of
from mens_pipeline.orchestration.choices import OWNERS
from mens_pipeline.orchestration.defs.evaluation import figures_of
from mens_pipeline.orchestration.experiment import identify
from mens_pipeline.orchestration.failures import plainly
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.promotion.benchmark_gate import PAGE, receipt_in
from mens_pipeline.promotion.receipt import results_in
from mens_pipeline.settings import RECIPES
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline.training.named_recipes import load_recipes
from mens_pipeline.training.qlora_adapter import KIND as ADAPTER

_NAME: Final = "recipe_scores"
_SHOWN: Final = ("heldout: parse rate", "heldout: hidden tests", "benchmark: hidden tests")
_NAMES: Final = tuple(load_recipes(RECIPES))


@dg.asset(
    name=_NAME,
    group_name="experiments",
    partitions_def=dg.StaticPartitionsDefinition(_NAMES),
    kinds={"json"},
    owners=OWNERS,
    code_version=code_version("mens_pipeline.promotion.receipt:results_in"),
)
@plainly
def recipe_scores(
    context: dg.AssetExecutionContext, benchmark_gate: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """Keep what the adapter of each recipe came to, a partition each, with all of them in one table."""
    run = store.artifact(benchmark_gate.of(ADAPTER)).path
    evaluation, gate = store.artifact(benchmark_gate.of(EVALUATION)), store.artifact(benchmark_gate)
    results, receipt = results_in(evaluation.path), receipt_in(gate.path)
    figures = {
        **identify(context, manifest_of(run), adapter_digest(run), verdict=str(receipt.status)),
        "verdict": str(receipt.status),
        **{name: round(value, 4) if isinstance(value, float) else value for name, value in figures_of(results).items()},
    }
    others = {name: _latest(context, name) for name in _NAMES if name != context.partition_key}
    rows = [_row(name, found) for name, found in {context.partition_key: figures, **others}.items() if found]
    return dg.MaterializeResult(
        value=benchmark_gate,
        data_version=dg.DataVersion(gate.data_version),
        metadata={
            "recipes": dg.MetadataValue.table(rows),
            **figures,
            **store.page(gate, PAGE),
        },
    )


def _latest(context: dg.AssetExecutionContext, recipe: str) -> dict[str, Any]:
    """Return what a recipe came to last; empty where it was never tried."""
    of_recipe = dg.AssetRecordsFilter(asset_key=dg.AssetKey(_NAME), asset_partitions=[recipe])
    records = context.instance.fetch_materializations(of_recipe, limit=1).records
    made = records[0].asset_materialization if records else None
    return {name: value.value for name, value in made.metadata.items()} if made is not None else {}


def _row(recipe: str, figures: dict[str, Any]) -> dg.TableRecord:
    shown = {name: str(figures.get(name, "not asked")) for name in _SHOWN}
    facts = {name: str(figures[name]) for name in ("verdict", "base_model", "adapter_sha256")}
    return dg.TableRecord({"recipe": recipe, **shown, **facts})
