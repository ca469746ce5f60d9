"""JSON Schemas of documents that other tools read, and of recipes, which people write, for `config/schemas`.

`python -m mens_pipeline_tests.reference` writes them.
"""

import json
from typing import Final

from pydantic import BaseModel

from mens_pipeline.corpus.curate.figures import DataEvaluationDocument
from mens_pipeline.delivery.gguf import GgufReport
from mens_pipeline.delivery.merge import MergeManifest, MergeReport
from mens_pipeline.delivery.serving_handoff import HandedModel, ServingHandoff
from mens_pipeline.evaluation.benchmark import Manifest
from mens_pipeline.evaluation.results import EvalResults, LocalReport, PassAtK, ScoredCompletion
from mens_pipeline.promotion.receipt import GateFailed, Override, Receipt
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.training.presets import NamedRecipes

SCHEMAS: Final = PROJECT_ROOT / "config" / "schemas"

DOCUMENTS: Final[dict[str, type[BaseModel]]] = {
    "data_evaluation": DataEvaluationDocument,
    "eval_results": EvalResults,
    "eval_local_report": LocalReport,
    "benchmark_passatk": PassAtK,
    "scored_completions": ScoredCompletion,
    "gate_receipt": Receipt,
    "eval_gate_failed": GateFailed,
    "gate_override": Override,
    "heldout_bench_manifest": Manifest,
    "merge_manifest": MergeManifest,
    "merge_report": MergeReport,
    "gguf_report": GgufReport,
    "external_serving_handoff_v1": ServingHandoff,
    "mens_handoff_v1": HandedModel,
    "recipes": NamedRecipes,
}
"""Name of a document -> its model."""


def schema_of(name: str) -> str:
    schema = DOCUMENTS[name].model_json_schema(by_alias=True)
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
