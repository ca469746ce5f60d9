"""JSON Schemas of all documents that other tools read; the files in `config/schemas` are these."""

from typing import Final

from pydantic import BaseModel

from mens_pipeline.delivery.gguf_model import GgufReport
from mens_pipeline.delivery.handoff import ServingHandoff
from mens_pipeline.delivery.merge_documents import MergeManifest, MergeReport
from mens_pipeline.evaluation import schemas

DOCUMENTS: Final[dict[str, type[BaseModel]]] = {
    **schemas.DOCUMENTS,
    "merge_manifest": MergeManifest,
    "merge_report": MergeReport,
    "gguf_report": GgufReport,
    "external_serving_handoff_v1": ServingHandoff,
}
"""Name of a document -> what it is."""
