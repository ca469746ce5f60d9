"""The verdict on an evaluation as an artifact."""

import shutil
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import EvaluationDetails
from mens_pipeline.evaluation.results import JUDGED_ANSWERS, RESULTS, JudgedAnswer
from mens_pipeline.jobs.progress import FILE
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.promotion.receipt import (
    RECEIPT,
    Judged,
    Receipt,
    digest_of_thresholds,
    read_results,
    results_in,
    verdict_on,
    write_receipt,
)
from mens_pipeline.promotion.report import report_page
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.signing import PRIVATE, signed, unsigned
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.storage.validation import problem_in
from mens_pipeline.training.telemetry_log import losses_of

KIND: Final = "benchmark_gate"
STAGE: Final = Stage(KIND, (__name__,), by_content=True)
PAGE: Final = "report.html"


def build_benchmark_gate(  # noqa: PLR0913 - all that a verdict rests on
    evaluation: Artifact,
    adapter: Path,
    store: ArtifactStore,
    *,
    policy: str,
    thresholds: Thresholds,
    champion_key: str | None,
    is_benchmark_asked: bool,
    strict: bool,
    now: int,
) -> tuple[Artifact, bool]:
    """Judge an evaluation, unless the very same was judged before.

    Returns:
        The verdict, and whether it was reused. The folder holds `gate_receipt.json`, the documents that it rests on,
        `report.html`, and exactly when the gate fails `eval_gate_failed.json`.

    Raises:
        RefusedError: The evaluation is not as it was written, or not signed.
        ConfigurationError: The store cannot be written, or there is no key to sign with although one checks.
    """
    changed = evaluation.changed()
    if changed:
        advice = "Evaluate again; a changed evaluation is not used a second time."
        raise RefusedError(f"{evaluation.path}: changed since it was written: {', '.join(changed)}. {advice}")
    if problem := unsigned(evaluation, store):
        raise RefusedError(
            f"{evaluation.path}: {problem}. Evaluate again with {PRIVATE}; a verdict on it counts nothing."
        )
    judged = Judged(evaluation.path / RESULTS, adapter / MANIFEST)
    params = {
        "eval_results": digest_of(judged.results_path),
        "training_manifest": digest_of(judged.manifest_path),
        "policy": policy,
        "thresholds": digest_of_thresholds(thresholds),
        "champion": champion_key,
        "benchmark": is_benchmark_asked,
        "strict": strict,
    }

    baseline = store.get(PROMOTED, champion_key) if champion_key is not None else None
    parents = [evaluation, *store.holding(adapter), *((baseline,) if baseline is not None else ())]

    def write(folder: Path) -> dict[str, Any]:
        receipt = verdict_on(
            judged,
            policy,
            thresholds,
            champion_key,
            is_benchmark_asked=is_benchmark_asked,
            strict=strict,
            now=now,
            run_dir=adapter,
        )
        results = read_results(judged.results_path)
        write_receipt(folder, receipt, results)
        for path in (judged.results_path, judged.manifest_path):
            shutil.copy2(path, folder / path.name)
        write_page(folder / PAGE, evaluation.path, adapter, receipt)
        return {"passed": receipt.overall_passed, "name": EvaluationDetails.of(evaluation).name}

    return STAGE.build(store, parents, *signed(store, KIND, params, write))


def write_page(path: Path, evaluation: Path, adapter: Path, receipt: Receipt | None) -> None:
    """Write the report page of an evaluation."""
    losses = losses_of(adapter / FILE)
    answers = list(read_models(evaluation / JUDGED_ANSWERS, JudgedAnswer))
    path.write_text(report_page(results_in(evaluation), answers, losses, receipt), encoding="utf-8")


def receipt_in(folder: Path) -> Receipt:
    """Read the verdict in a folder.

    Raises:
        RefusedError: It is none.
    """
    path = folder / RECEIPT
    try:
        return Receipt.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}. Run `mens gate` again.") from error
    except ValidationError as error:
        raise RefusedError(f"{path}: {problem_in(error, 'receipt', 'Run `mens gate` again.')}") from error
