"""JSON Schemas of the documents of an evaluation; the files in `config/schemas` are these and those of delivery."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from mens_pipeline.evaluation.manifest import Manifest
from mens_pipeline.evaluation.override import Override
from mens_pipeline.evaluation.receipt import GateFailed, Receipt
from mens_pipeline.evaluation.results import EvalResults, JudgedAnswer, LocalReport, PassAtK

DOCUMENTS: Final[dict[str, type[BaseModel]]] = {
    "eval_results": EvalResults,
    "eval_local_report": LocalReport,
    "benchmark_passatk": PassAtK,
    "judged_answers": JudgedAnswer,
    "gate_receipt": Receipt,
    "eval_gate_failed": GateFailed,
    "gate_override": Override,
    "heldout_bench_manifest": Manifest,
}
"""Name of a document -> what it is."""


def schema_of(name: str, documents: Mapping[str, type[BaseModel]] = DOCUMENTS) -> str:
    """Return the JSON Schema of a document.

    Args:
        name: Of the document.
        documents: Name -> what it is.
    """
    schema = documents[name].model_json_schema(by_alias=True)
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def write_schemas(folder: Path, documents: Mapping[str, type[BaseModel]] = DOCUMENTS) -> None:
    """Write schemas.

    Args:
        folder: `config/schemas`.
        documents: Name -> what it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in documents:
        (folder / f"{name}.schema.json").write_text(schema_of(name, documents), encoding="utf-8")
