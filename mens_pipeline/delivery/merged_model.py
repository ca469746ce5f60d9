"""A merged model as an artifact: merged and compared once for one adapter."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final

from mens_pipeline.delivery.agreement import (
    MERGE_MANIFEST,
    MERGE_REPORT,
    ROUNDED,
    STRICT,
    Agreement,
    MergedInto,
    MergeManifest,
    MergeReport,
    compare_written,
    reasons_against,
)
from mens_pipeline.delivery.merge_job import COMPARISONS, MODEL, Dtype, MergeJob
from mens_pipeline.delivery.merge_source import MergeSource, Prompts
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.prepare import Conditions, list_inputs, prepare_generation
from mens_pipeline.jobs.local import refuse_failure
from mens_pipeline.jobs.protocol import write_job
from mens_pipeline.models.base import template_in
from mens_pipeline.models.card import base_name
from mens_pipeline.models.chat import format_of
from mens_pipeline.promotion.bill import copy_bill
from mens_pipeline.storage.files import copy_folder
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.storage.validation import read_document
from mens_pipeline.training.prepare import library_versions

_ADVICE: Final = "Delete this folder, and merge again."
_HOW: Final = {"nf4": "in nf4 restored", "none": "as it came"}
_OWN: Final[dict[str, Any]] = {"weights": "own", "why": "The adapter was trained and evaluated on these weights."}


@dataclass(frozen=True, slots=True)
class PreparedMerge:
    """A merge that may begin; its inputs are all that decides what comes out, in JSON types."""

    job: MergeJob
    source: MergeSource
    prompts: Prompts
    inputs: dict[str, Any]


def prepare_merge(
    source: MergeSource, prompts: Prompts, conditions: Conditions, dtype: Dtype | None, run_dir: Path
) -> PreparedMerge:
    """Prepare a merge in an emptied folder; without a dtype weights are stored in what the evaluated model computes in.

    Raises:
        RefusedError: The run is not complete, or its base is gone or another one.
    """
    greedy = conditions.decoding.model_copy(update={"temperature": 0.0, "num_samples": 1})
    conditions = Conditions(greedy, conditions.device, conditions.lock_path)
    requests = [task.request for task in prompts.tasks]
    reference = prepare_generation("adapter", source.adapter, requests, conditions)
    inputs: dict[str, Any] = {"reference": list_inputs(reference)}
    if reference.held != "dense":
        # A GPU without room holds four bits, and rounds otherwise: both sides are dense, and the CPU computes them.
        reference = reference.model_copy(update={"held": "dense", "device": "cpu"})
    template = format_of(template_in(reference.base_path)).template(source.adapter.manifest.system_prompt)
    chosen = dtype if dtype is not None else reference.compute_dtype
    job = MergeJob(
        run_dir=run_dir.resolve(),
        lock_path=conditions.lock_path.resolve(),
        reference=reference,
        dtype=chosen,
        chat_template=template,
    )
    write_job(job)
    inputs |= {
        "dtype": chosen,
        "chat_template": template,
        "heldout_sha256": prompts.heldout_sha256,
        "name": source.adapter.manifest.name,
    }
    return PreparedMerge(job, source, prompts, inputs)


class MergeParams(Params):
    """A prepared merge, and the process that does it."""

    prepared: Annotated[PreparedMerge, DecidedBy(attrgetter("inputs"))]
    launch: Helper[Callable[[Path], int]]


def write_merged_model(folder: Path, params: MergeParams) -> dict[str, Any]:
    """Merge an adapter and compare the outcome with what was evaluated.

    The folder gets what `AutoModelForCausalLM.from_pretrained` reads, with `merge_manifest.json` and
    `merge_report.json`, also where the report says that it is not the same model; of a promoted adapter its bill of
    materials besides.
    """
    prepared, run_dir = params.prepared, params.prepared.job.run_dir
    refuse_failure(run_dir, params.launch(prepared.job.path), "merging")
    copy_folder(run_dir / MODEL, folder)
    shutil.copy2(run_dir / COMPARISONS, folder / COMPARISONS)
    if prepared.source.promoted is not None:
        copy_bill(prepared.source.promoted, folder)
    found, figures = compare_written(run_dir, prepared.prompts.tasks)
    report = _report(prepared, found)
    for name, document in ((MERGE_MANIFEST, _manifest(prepared, figures["num_parameters"])), (MERGE_REPORT, report)):
        (folder / name).write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {"name": prepared.source.adapter.manifest.name, "passed": report.passed}


STAGE: Final = Stage(Kind.MERGED_MODEL, (__name__, "mens_pipeline.delivery.merge"), write_merged_model)


def build_merged_model(
    prepared: PreparedMerge, store: ArtifactStore, launch: Callable[[Path], int]
) -> tuple[Artifact, bool]:
    """Merge an adapter and compare the outcome with what was evaluated; return it, and whether it was merged before.

    Raises:
        RefusedError: The process did not come to its end; the message says why.
        ConfigurationError: The store cannot be written.
    """
    # Beside the adapter a run holds its times: trained again to the same bits, it is not merged again.
    origins = store.holding(prepared.source.adapter.path)
    merged, reused = STAGE.build(store, MergeParams(prepared=prepared, launch=launch, origins=origins))
    shutil.rmtree(prepared.job.run_dir, ignore_errors=True)
    return merged, reused


def report_in(merged: Path) -> MergeReport:
    """Read the report on a merged model.

    Raises:
        RefusedError: It is none, or written by a newer version.
    """
    return read_document(merged / MERGE_REPORT, MergeReport, "merge report", _ADVICE)


def manifest_in(merged: Path) -> MergeManifest:
    """Read the manifest of a merged model, which says what it is made of.

    Raises:
        RefusedError: It is none, or written by a newer version.
    """
    return read_document(merged / MERGE_MANIFEST, MergeManifest, "merge manifest", _ADVICE)


def refuse_difference(merged: Path) -> MergeReport:
    """Raise RefusedError unless a merged model is what was evaluated, and return the report on it.

    Raises:
        RefusedError: It is another model.
    """
    report = report_in(merged)
    if not report.passed:
        advice = "Merge again without --dtype; if that was it, report this with merge_report.json."
        raise RefusedError(f"{merged}: not handed on. {' '.join(report.reasons)} {advice}")
    return report


def _report(prepared: PreparedMerge, found: Agreement) -> MergeReport:
    job, reference = prepared.job, prepared.job.reference
    is_finer = (reference.compute_dtype, job.dtype) == ("bfloat16", "float32")
    demand = ROUNDED if is_finer else STRICT
    reasons = reasons_against(found, demand)
    return MergeReport(
        reference=f"base {_HOW[reference.quantization]}, adapter merged, {reference.compute_dtype}, as evaluated",
        candidate=f"merged folder as transformers loads it, {prepared.job.dtype}",
        adapter_sha256=prepared.source.adapter.digest,
        heldout_sha256=prepared.prompts.heldout_sha256,
        computed_on=(reference.device, reference.compute_dtype),
        max_new_tokens=reference.decoding.max_new_tokens,
        demand=demand,
        agreement=found,
        passed=not reasons,
        reasons=reasons,
    )


def _manifest(prepared: PreparedMerge, num_parameters: int) -> MergeManifest:
    manifest, reference = prepared.source.adapter.manifest, prepared.job.reference
    base = manifest.base_model
    return MergeManifest(
        name=manifest.name,
        base_model=base_name(base),
        base_revision=base.revision,
        base_sha256=base.sha256,
        base_licence=base.licence,
        adapter_sha256=prepared.source.adapter.digest,
        merged_into=MergedInto(
            quantization=reference.quantization,
            double_quant=reference.double_quant,
            rounded_to=reference.trained_in,
            **(_OWN if reference.quantization == "none" else {}),
        ),
        dtype=prepared.job.dtype,
        num_parameters=num_parameters,
        contract_digest=manifest.contract_digest,
        system_prompt=manifest.system_prompt,
        libraries=library_versions(),
    )
