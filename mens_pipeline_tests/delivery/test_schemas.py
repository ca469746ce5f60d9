"""The schemas of all documents, and no others, are in `config/schemas`."""

import pytest

from mens_pipeline.storage.validation import Versioned
from mens_pipeline_tests.schemas import DOCUMENTS, SCHEMAS, schema_of


def test_the_files_are_the_schemas() -> None:
    """After a change of a document, `python -m mens_pipeline_tests.reference` writes them again."""
    found = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}

    assert found == {f"{name}.schema.json": schema_of(name) for name in DOCUMENTS}


@pytest.mark.parametrize(
    "name",
    [
        *("eval_local_report", "benchmark_passatk", "merge_report", "merge_manifest", "gguf_report", "gate_override"),
        *("eval_gate_failed", "scored_completions"),
    ],
)
def test_stored_documents_have_the_version_of_their_format(name: str) -> None:
    assert schema_of(name).count('"format_version"') == 1
    assert issubclass(DOCUMENTS[name], Versioned)
