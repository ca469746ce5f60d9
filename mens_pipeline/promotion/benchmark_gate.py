"""The verdict on an evaluation as an artifact."""

import shutil
from pathlib import Path
from typing import Annotated, Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import EvaluationDetails
from mens_pipeline.evaluation.results import (
    INSERTS,
    RESULTS,
    SCORED_COMPLETIONS,
    InsertScore,
    ScoredCompletion,
    results_in,
)
from mens_pipeline.models.adapter import MANIFEST, TELEMETRY
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.promotion.receipt import (
    PAGE,
    PIPELINE_COMMIT,
    Receipt,
    build_receipt,
    digest_of_thresholds,
    hash_documents,
    read_inputs,
    write_receipt,
)
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import PRIVATE, add_signature, explain_unsigned
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.telemetry_log import losses_of


class GateParams(Params):
    """Inputs of a verdict; `commit` is the commit of the pipeline.

    Evaluation and adapter count by the content of their documents: the same figures and manifest give the same verdict.
    """

    evaluation: Annotated[Artifact, DecidedBy(lambda evaluation: digest_of(evaluation.file(RESULTS)))]
    adapter: Annotated[Path, DecidedBy(lambda run: digest_of(run / MANIFEST))]
    policy: str
    thresholds: Annotated[Thresholds, DecidedBy(digest_of_thresholds)]
    champion_key: str | None
    is_benchmark_asked: bool
    strict: bool
    now: Helper[int]
    commit: Helper[str | None]


def write_benchmark_gate(folder: Path, params: GateParams) -> dict[str, Any]:
    """Decide on an evaluation, and write the verdict into the folder.

    The files are `gate_receipt.json`, the documents that it cites, `report.html`, and, only if the gate fails,
    `eval_gate_failed.json`.
    """
    evaluation, adapter = params.evaluation, params.adapter
    documents = (evaluation.file(RESULTS), adapter / MANIFEST)
    inputs = read_inputs(*documents, params.champion_key, is_benchmark_asked=params.is_benchmark_asked)
    receipt = build_receipt(
        inputs,
        hash_documents(*documents),
        params.thresholds,
        policy=params.policy,
        strict=params.strict,
        now=params.now,
        run_dir=adapter,
    )
    write_receipt(folder, receipt, inputs.results)
    for path in documents:
        shutil.copy2(path, folder / path.name)
    write_page(folder / PAGE, evaluation.path, adapter, receipt)
    return {
        "passed": receipt.overall_passed,
        "name": EvaluationDetails.of(evaluation).name,
        PIPELINE_COMMIT: params.commit,
    }


STAGE: Final = Stage(Kind.BENCHMARK_GATE, (__name__,), write_benchmark_gate, sign=add_signature)


def build_benchmark_gate(params: GateParams, store: ArtifactStore) -> tuple[Artifact, bool]:
    """Return the verdict on an evaluation, and whether it was reused; `RefusedError` for a changed or unsigned one."""
    evaluation, champion = params.evaluation, params.champion_key
    changed = evaluation.find_changed()
    if changed:
        advice = "Evaluate again; a changed evaluation is never reused."
        raise RefusedError(f"{evaluation.path}: changed since it was written: {', '.join(changed)}. {advice}")
    if problem := explain_unsigned(evaluation, store):
        advice = f"Evaluate again with {PRIVATE}; a verdict on it does not count."
        raise RefusedError(f"{evaluation.path}: {problem}. {advice}")
    baseline = store.get(Kind.PROMOTED_ADAPTER, champion) if champion is not None else None
    return STAGE.build(store, params.model_copy(update={"origins": () if baseline is None else (baseline,)}))


def write_page(path: Path, evaluation: Path, adapter: Path, receipt: Receipt | None) -> None:
    """Write the report page of an evaluation."""
    losses = losses_of(adapter / TELEMETRY)
    completions = list(read_models(evaluation / SCORED_COMPLETIONS, ScoredCompletion))
    inserts = list(read_models(evaluation / INSERTS, InsertScore)) if (evaluation / INSERTS).is_file() else []
    path.write_text(report_page(results_in(evaluation), completions, losses, receipt, inserts), encoding="utf-8")
