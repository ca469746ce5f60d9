"""A merged model as a GGUF file, as an artifact: written and compared once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.delivery.agreement import Agreement, Demand, agreement_of, reasons_against, spread
from mens_pipeline.delivery.chat_form import refuse_unquotable
from mens_pipeline.delivery.gguf_support import refuse_unsupported
from mens_pipeline.delivery.merge_job import COMPARISONS, FIGURES, GGUF_NAME, MODEL, Comparison, GgufJob, GgufType
from mens_pipeline.delivery.merged_model import PreparedMerge, manifest_in
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Request
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.storage.validation import Document
from mens_pipeline.training.contract import library_versions
from mens_pipeline.training.job import JOB
from mens_pipeline.training.launch import refuse_failure

KIND: Final = "gguf_model"
STAGE: Final = Stage(KIND, (__name__, "mens_pipeline.delivery.gguf_file"))
GGUF_REPORT: Final = "gguf_report.json"
NUM_PROMPTS: Final = 4

DEMANDS: Final[dict[GgufType, Demand]] = {
    "f32": Demand(min_token_agreement=0.999, min_led_agreement=0.999, max_parse_difference=0.002),
    # Rounding turns close calls, and an answer that turns once is another one from there on; teacher-forced, it is not.
    "f16": Demand(min_token_agreement=0.0, min_led_agreement=0.99, max_parse_difference=1.0),
    "q8_0": Demand(min_token_agreement=0.0, min_led_agreement=0.95, max_parse_difference=1.0),
}
"""Type -> how far the file may be from the merged model; what is rounded is coarser than what is not."""


class GgufReport(Document):
    """Whether a GGUF file answers as the merged model does."""

    schema_: Literal["mens_gguf_report_v1"] = Field(default="mens_gguf_report_v1", alias="schema")
    file_name: str = Field(pattern=GGUF_NAME)
    file_type: GgufType
    num_tokens_changed: int = Field(ge=0, description="Of the vocabulary, as another reader reads it back.")
    demand: Demand
    agreement: Agreement
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it does not pass, a sentence each.")


def build_gguf_model(
    merged: Artifact,
    prepared: PreparedMerge,
    file_type: GgufType,
    store: ArtifactStore,
    launch: Callable[[Path], int],
) -> tuple[Artifact, bool]:
    """Write a merged model as GGUF, unless the very same was written before.

    Returns:
        The file with `gguf_report.json`, and whether it was reused.

    Raises:
        RefusedError: The architecture, the tokenizer or the system prompt is not supported, the process did not come
            to its end, or what was read back is another model.
        ConfigurationError: The store cannot be written.
    """
    refuse_unsupported(merged.path)
    refuse_unquotable(manifest_in(merged.path).system_prompt)
    job = _job(merged, prepared, file_type, store)
    tasks = {task.id: task for task in prepared.prompts.tasks}
    params = {
        "file_type": file_type,
        "requests": [request.model_dump() for request in job.reference.requests],
        "computed_on": job.reference.device,
        "libraries": library_versions(),
    }

    def write(folder: Path) -> dict[str, Any]:
        job_path = _written(job)
        refuse_failure(job.run_dir, launch(job_path), "GGUF")
        figures = json.loads((job.run_dir / FIGURES).read_text(encoding="utf-8"))
        comparisons = read_models(job.run_dir / COMPARISONS, Comparison)
        found = agreement_of(comparisons, tasks, figures["largest_logit_difference"])
        reasons = [*reasons_against(found, DEMANDS[file_type])]
        if figures["num_tokens_changed"]:
            reasons.append(f"{figures['num_tokens_changed']} tokens of the vocabulary are not read back as they were.")
        if reasons:
            raise RefusedError(f"{job.file_name}: not the merged model. {' '.join(reasons)} Report this.")
        shutil.move(job.run_dir / MODEL / job.file_name, folder / job.file_name)
        report = GgufReport(
            file_name=job.file_name,
            file_type=file_type,
            num_tokens_changed=figures["num_tokens_changed"],
            demand=DEMANDS[file_type],
            agreement=found,
            passed=not reasons,
            reasons=tuple(reasons),
        )
        (folder / GGUF_REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return {"name": manifest_in(merged.path).name}

    gguf, reused = STAGE.build(store, [merged], params, write)
    shutil.rmtree(job.run_dir, ignore_errors=True)
    return gguf, reused


def gguf_report_in(folder: Path) -> GgufReport:
    """Read the report on a GGUF file."""
    return GgufReport.model_validate_json((folder / GGUF_REPORT).read_text(encoding="utf-8"))


def _job(merged: Artifact, prepared: PreparedMerge, file_type: GgufType, store: ArtifactStore) -> GgufJob:
    tasks = spread(prepared.prompts.tasks, NUM_PROMPTS)
    manifest = manifest_in(merged.path)
    run_dir = store.root / KIND / f"{prepared.job.run_dir.name}-{file_type}"
    requests = tuple(Request(task=task.id, prompt=task.prompt) for task in tasks)
    return GgufJob(
        reference=prepared.job.reference.model_copy(update={"requests": requests, "run_dir": run_dir.resolve()}),
        merged_path=merged.path,
        file_type=file_type,
        file_name=f"{manifest.name}-{file_type}.gguf",
        model_name=manifest.name,
        licence=manifest.base_licence,
    )


def _written(job: GgufJob) -> Path:
    """Write the job to a file in an empty folder, and return its path."""
    shutil.rmtree(job.run_dir, ignore_errors=True)
    job.run_dir.mkdir(parents=True)
    job_path = job.run_dir / JOB
    job_path.write_text(job.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return job_path
