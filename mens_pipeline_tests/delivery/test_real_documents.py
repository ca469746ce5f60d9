"""Documents match their schemas."""

import json
from pathlib import Path

import jsonschema
import pytest

from mens_pipeline.evaluation.results import RESULTS, SCORED_COMPLETIONS
from mens_pipeline.promotion.receipt import FAILED, RECEIPT, Override, sign_override
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, evaluated, scored, trained
from mens_pipeline_tests.schemas import schema_of


@pytest.mark.seed_row(39)
def test_real_documents_match_their_schemas(tmp_path: Path) -> None:
    store, run = ArtifactStore(tmp_path / "store"), trained(tmp_path / "run")
    evaluation = evaluated(run, store, num_good=20)
    gate = scored(run, store, evaluation)
    override = sign_override(
        Override(
            adapter_sha256="a" * 64, receipt_sha256="b" * 64, by="me", reason="A good reason.", timestamp_unix=NOW
        ),
        "a secret of maintainers",
    )
    documents = {
        "eval_results": (evaluation.path / RESULTS).read_text(),
        "scored_completions": (evaluation.path / SCORED_COMPLETIONS).read_text().splitlines()[0],
        "gate_receipt": (gate.path / RECEIPT).read_text(),
        "eval_gate_failed": (gate.path / FAILED).read_text(),
        "gate_override": override.model_dump_json(),
        "heldout_bench_manifest": (PROJECT_ROOT / "data" / "heldout_bench" / "manifest.json").read_text(),
    }

    for name, text in documents.items():
        jsonschema.validate(json.loads(text), json.loads(schema_of(name)))


def test_a_document_with_an_extra_field_does_not_match(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    path = evaluated(run, ArtifactStore(tmp_path / "store")).path / RESULTS

    with pytest.raises(jsonschema.ValidationError, match="Additional properties are not allowed"):
        jsonschema.validate({**json.loads(path.read_text()), "more": 1}, json.loads(schema_of("eval_results")))
