"""Merge an adapter, of a run or the champion, into its base; the merged model is an artifact that is made once."""

import re
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.extract.forgotten import SourcePolicy
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.delivery.agreement import (
    COMPARISONS,
    MODEL,
    NAME,
    ROUNDED,
    STRICT,
    Agreement,
    Demand,
    Dtype,
    MergeJob,
    read_agreement,
    reasons_against,
    spread,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults, read_results
from mens_pipeline.evaluation.tasks import Suite, Task, heldout_tasks
from mens_pipeline.inference.prepare import Conditions, list_inputs, prepare_generation
from mens_pipeline.jobs.protocol import refuse_failure, write_job
from mens_pipeline.models.adapter import MANIFEST, Adapter, read_adapter_config
from mens_pipeline.models.base import Shape, find_recorded_base, read_object, shapes_in, template_in
from mens_pipeline.models.card import CardScore, Form, Standing, base_name, data_sources, mark_card, model_card
from mens_pipeline.models.chat import format_of
from mens_pipeline.promotion.bill import copy_bill, format_refused_files
from mens_pipeline.promotion.history import find_champion, find_withdrawn, read_history
from mens_pipeline.promotion.receipt import RECEIPT, Receipt, receipt_in
from mens_pipeline.storage.files import copy_folder
from mens_pipeline.storage.kinds import Kind, MergedFile
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Stage
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.storage.validation import Document, Versioned, read_document
from mens_pipeline.training.preflight import library_versions

_MATRIX: Final = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<half>[AB])\.weight")
_SHOWN: Final = 3
_NAME_RUN: Final = "Name the run that it was trained in."


def refuse_misfit(adapter: Adapter) -> None:
    """Raise RefusedError if the base is missing or different, or the adapter is not a LoRA adapter that fits it."""
    base = adapter.manifest.base_model
    path = find_recorded_base(base, in_full=True)
    config = read_adapter_config(adapter.folder)
    shapes = {name: shape for file in sorted(path.glob("*.safetensors")) for name, shape in shapes_in(file).items()}
    reasons = list(_find_misfits(shapes_in(adapter.weights), shapes, config.r))
    if reasons:
        shown = "; ".join(reasons[:_SHOWN])
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise RefusedError(f"{adapter.weights}: does not fit {base.name}: {shown}{more}. {_NAME_RUN}")


def _find_misfits(adapter: dict[str, Shape], base: dict[str, Shape], rank: int) -> Iterator[str]:
    halves: dict[str, dict[str, Shape]] = {}
    for name, shape in adapter.items():
        found = _MATRIX.fullmatch(name)
        if found is None:
            yield f"{name} is not a LoRA matrix"
        else:
            halves.setdefault(found["layer"], {})[found["half"]] = shape
    if not halves:
        yield "it contains no LoRA matrix"
    for layer, pair in halves.items():
        targets = [base[weight] for weight in find_weights(layer, base)]
        if not targets:
            yield f"the base has no {layer}"
        elif set(pair) != {"A", "B"}:
            yield f"{layer} has only one of its two matrices"
        elif not any(pair == {"A": (rank, target[1]), "B": (target[0], rank)} for target in targets):
            yield f"{layer} is {targets[0]}, the adapter has {pair['B']} by {pair['A']}, at rank {rank}"


def find_weights(layer: str, names: Collection[str]) -> list[str]:
    """Return the tensors that may be the weight of a layer; some families have other prefixes before `layers.`."""
    if f"{layer}.weight" in names:
        return [f"{layer}.weight"]
    tail = layer[layer.find("layers.") :] if "layers." in layer else layer
    return [name for name in names if name.endswith(f".{tail}.weight")]


SCRATCH: Final = "scratch"
_LONGEST_MANIFEST: Final = 10_000_000  # bytes


@dataclass(frozen=True, slots=True)
class MergeSource:
    """An adapter that can be merged, with the verdict on it.

    `promoted` is None if it was not promoted, or was rolled back since. `verdict_sha256` is the hash of the receipt,
    hexadecimal. `notice` names its source files that may no longer train; empty without any.
    """

    adapter: Adapter
    promoted: Artifact | None
    receipt: Receipt | None
    verdict_sha256: str | None
    notice: str = ""


def merge_source(run: Path | None, store: ArtifactStore, policy: SourcePolicy | None = None) -> MergeSource:
    """Find the adapter of a run, or the champion if no run is named; `policy` says which files may train now.

    `RefusedError` if there is no champion; the run is incomplete, or of the scratch lane; the adapter is not a LoRA
    adapter, or does not fit its base; or the base is gone.
    """
    champion = find_champion(store) if run is None else None
    if run is None and champion is None:
        raise RefusedError(
            f"{store.root / Kind.PROMOTED_ADAPTER}: no champion. Promote an adapter, or name one with --run-dir DIR."
        )
    folder = champion.path if champion is not None else run
    assert folder is not None, "one of the two is there"  # noqa: S101 - an internal invariant
    if read_lane(folder) == SCRATCH:
        mean = f"To average its checkpoints: mens merge-weights {folder} --output-dir DIR"
        advice = f"It needs no merge: use {folder / 'model'}. {mean}"
        raise RefusedError(f"{folder}: a model of the scratch lane. {advice}")
    adapter = Adapter.open(folder)
    refuse_misfit(adapter)
    promoted = _find_promoted(store, adapter.digest)
    where = promoted.path if promoted is not None else folder
    receipt = _read_verdict(adapter.digest, where)
    verdict_sha256 = digest_of(where / RECEIPT) if receipt is not None else None
    notice = format_refused_files(promoted, policy or SourcePolicy())
    return MergeSource(adapter, promoted, receipt, verdict_sha256, notice)


def read_lane(folder: Path) -> str | None:
    """Read the lane of a run or an artifact, if its manifest has one; raise RefusedError if that is damaged."""
    for path in (folder / MANIFEST, folder / STORE_MANIFEST):
        if path.is_file():
            manifest = read_object(path, _LONGEST_MANIFEST, _NAME_RUN)
            if manifest.get("kind") == Kind.SCRATCH_MODEL:
                return SCRATCH
            if "lane" in manifest:
                return str(manifest["lane"])
    return None


def _find_promoted(store: ArtifactStore, adapter_sha256: str) -> Artifact | None:
    if adapter_sha256 in find_withdrawn(store):
        return None
    events = (event for event in reversed(read_history(store)) if event.adapter_sha256 == adapter_sha256)
    return next((found for event in events if (found := store.get(Kind.PROMOTED_ADAPTER, event.key)) is not None), None)


def _read_verdict(adapter_sha256: str, folder: Path) -> Receipt | None:
    if not (folder / RECEIPT).is_file():
        return None
    receipt = receipt_in(folder)
    is_about_it = receipt.subject is not None and receipt.subject.adapter_sha256 == adapter_sha256
    return receipt if is_about_it else None


@dataclass(frozen=True, slots=True)
class HeldoutPrompts:
    """Held-out prompts that two models complete, and the digest of their file."""

    tasks: tuple[Task, ...]
    heldout_sha256: str


def choose_prompts(
    source: MergeSource, named: Path | None, store: ArtifactStore, fits: Callable[[str], bool], number: int
) -> HeldoutPrompts:
    """Choose `number` held-out prompts whose completions fit, evenly spaced, from a named file or the run's own.

    `RefusedError` if there are none.
    """
    path = named if named is not None else _find_heldout(source, store)
    tasks = tuple(task for task in heldout_tasks(read_pairs(path)) if fits(task.reference))
    if not tasks:
        raise RefusedError(f"{path}: no held-out code fits the token limit. Name another file with --heldout FILE.")
    return HeldoutPrompts(spread(tasks, number), digest_of(path))


def _find_heldout(source: MergeSource, store: ArtifactStore) -> Path:
    beside = store.locate(source.adapter.manifest.train_file).with_name(HELDOUT)
    subject = source.receipt.subject if source.receipt is not None else None
    if subject is None:
        if beside.is_file():
            return beside
        raise RefusedError(f"{beside}: no held-out pairs next to the train set. Name them with --heldout FILE.")
    splits = sorted((store.root / Kind.HELDOUT_SPLIT).glob(f"*/{HELDOUT}"))
    for path in (beside, *splits):
        if path.is_file() and digest_of(path) == subject.heldout_sha256:
            return path
    found = f"no {HELDOUT} with SHA-256 {subject.heldout_sha256[:12]}, on which it was evaluated"
    raise RefusedError(
        f"{beside.parent}, {store.root / Kind.HELDOUT_SPLIT}: {found}. Name the file with --heldout FILE."
    )


_SUITES: Final = {Suite.HELDOUT: "held-out prompts of the workspace", Suite.BENCHMARK: "benchmark"}
_METRICS: Final = (("parse_rate", "parse rate"), ("pass_at_1", "pass@1"))


def card_of_source(source: MergeSource, form: Form, data_licence: str | None) -> str:
    """Format the model card of an adapter, or of its merged model."""
    card = model_card(
        source.adapter.manifest,
        form,
        sources=data_sources(source.adapter.manifest),
        standing=_find_standing(source),
        data_licence=data_licence,
        tokenizer_in=source.adapter.folder,
    )
    return mark_card(card, source.notice)


def _find_standing(source: MergeSource) -> Standing | None:
    folder = source.promoted.path if source.promoted is not None else source.adapter.path
    results = read_results(folder / RESULTS)
    if results is None or results.subject.adapter_sha256 != source.adapter.digest:
        return None
    receipt, decoding = source.receipt, results.decoding
    at_random = f"at temperature {decoding.temperature:g}, {decoding.num_samples} times"
    return Standing(
        scores=tuple(_list_scores(results)),
        how="greedily" if decoding.temperature == 0 else at_random,
        missing=results.adapter.overall.coverage.missing,
        policy=receipt.policy if receipt is not None else None,
        passed=receipt.overall_passed if receipt is not None else None,
        verdict_sha256=source.verdict_sha256,
    )


def _list_scores(results: EvalResults) -> Iterator[CardScore]:
    for suite, name in _SUITES.items():
        if suite in results.adapter.suites:
            base, adapter = results.base.suites[suite], results.adapter.suites[suite]
            for field, metric in _METRICS:
                of_base, of_adapter = getattr(base, field), getattr(adapter, field)
                yield CardScore(name, metric, str(of_base), str(of_adapter), of_adapter.value)


MERGE_MANIFEST: Final = MergedFile.MANIFEST
MERGE_REPORT: Final = MergedFile.REPORT
_SHA256: Final = "^[0-9a-f]{64}$"


class MergedInto(Document):
    """The weights that the adapter was added to."""

    weights: Literal["restored", "own"] = Field(
        default="restored",
        description="`own` weights of the base, or `restored` from four bits, as in training and evaluation.",
    )
    quantization: str = Field(description="`nf4`, or `none` for the base's own weights.")
    double_quant: bool
    rounded_to: str = Field(description="Dtype of the base before quantisation.")
    why: str = Field(
        default="The adapter was evaluated on these weights. On those that the base came with, the merged model "
        "would differ from the evaluated one by the error of quantisation.",
    )


class MergeManifest(Document, Versioned):
    """Base, adapter and data types of a merged model."""

    newest_format: ClassVar[int] = 2
    oldest_format: ClassVar[int] = 2

    schema_: Literal["mens_merge_manifest_v1"] = Field(default="mens_merge_manifest_v1", alias="schema")
    name: str = Field(pattern=NAME)
    base_model: str
    base_revision: str | None
    base_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the folder of the base.")
    base_licence: str | None
    adapter_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the adapter's weights.")
    merged_into: MergedInto
    dtype: Dtype = Field(description="Dtype of the stored weights.")
    num_parameters: int = Field(ge=1, description="Number of parameters of the merged model.")
    contract_digest: str = Field(pattern=_SHA256, description="Hash of everything that determines the training run.")
    system_prompt: str
    libraries: dict[str, str] = Field(description="Versions of the libraries that made it.")


class MergeReport(Document, Versioned):
    """Comparison of a merged model with the evaluated model."""

    schema_: Literal["mens_merge_report_v1"] = Field(default="mens_merge_report_v1", alias="schema")
    reference: str = Field(description="The evaluated model.")
    candidate: str = Field(description="The merged model.")
    adapter_sha256: str = Field(pattern=_SHA256)
    heldout_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the held-out pairs.")
    computed_on: tuple[str, str] = Field(description="Device, and compute dtype of the reference.")
    max_new_tokens: int = Field(ge=1)
    demand: Demand
    agreement: Agreement
    passed: bool
    reasons: tuple[str, ...] = Field(description="Reasons why it does not pass, a sentence each.")

    @property
    def summary(self) -> str:
        """The agreement on one line, for people."""
        found = self.agreement
        tokens = f"{found.num_same_tokens}/{found.num_tokens} tokens ({100 * found.token_agreement:.2f} %)"
        completions = f"{found.num_same_completions}/{found.num_prompts} completions"
        rates = f"{found.candidate_parse_rate.short}, before {found.reference_parse_rate.short}"
        return f"{tokens} and {completions} the same, parse rate {rates}"


_MERGE_AGAIN: Final = "Delete this folder, and merge again."
_HOW: Final = {"nf4": "in nf4 restored", "none": "as it came"}
_OWN: Final[dict[str, Any]] = {"weights": "own", "why": "The adapter was trained and evaluated on these weights."}


@dataclass(frozen=True, slots=True)
class PreparedMerge:
    """A merge that is ready to run; `inputs` holds everything that determines the result, in JSON types."""

    job: MergeJob
    source: MergeSource
    prompts: HeldoutPrompts
    inputs: dict[str, Any]


def prepare_merge(
    source: MergeSource, prompts: HeldoutPrompts, conditions: Conditions, dtype: Dtype | None, run_dir: Path
) -> PreparedMerge:
    """Prepare a merge in `run_dir`, which is emptied; `dtype` defaults to the compute dtype of the evaluation."""
    greedy = conditions.decoding.model_copy(update={"temperature": 0.0, "num_samples": 1})
    conditions = Conditions(greedy, conditions.device, conditions.lock_path)
    requests = [task.request for task in prompts.tasks]
    reference = prepare_generation("adapter", source.adapter, requests, conditions)
    # An evaluation in eight bits rounds what it multiplies; compare the merged weights without that.
    reference = reference.model_copy(update={"in_eight_bits": False})
    inputs: dict[str, Any] = {"reference": list_inputs(reference)}
    if reference.held != "dense":
        # A GPU with too little memory holds four-bit weights and rounds differently: compare dense models on the CPU.
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
    """A prepared merge, and the launcher of its process."""

    prepared: Annotated[PreparedMerge, DecidedBy(attrgetter("inputs"))]
    launch: Helper[Callable[[Path], int]]


def write_merged_model(folder: Path, params: MergeParams) -> dict[str, Any]:
    """Merge an adapter, and compare the merged model with the evaluated one.

    The folder gets the files that `AutoModelForCausalLM.from_pretrained` reads, `merge_manifest.json` and
    `merge_report.json` (also if the models differ), and the bill of materials of a promoted adapter.
    """
    prepared, run_dir = params.prepared, params.prepared.job.run_dir
    refuse_failure(run_dir, params.launch(prepared.job.path), "merging")
    copy_folder(run_dir / MODEL, folder)
    shutil.copy2(run_dir / COMPARISONS, folder / COMPARISONS)
    if prepared.source.promoted is not None:
        copy_bill(prepared.source.promoted, folder)
    found, figures = read_agreement(run_dir, prepared.prompts.tasks)
    report, manifest = _build_report(prepared, found), _build_manifest(prepared, figures["num_parameters"])
    for name, document in ((MERGE_MANIFEST, manifest), (MERGE_REPORT, report)):
        (folder / name).write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {"name": prepared.source.adapter.manifest.name, "passed": report.passed}


_ENTRIES: Final = (f"{__name__}:prepare_merge", f"{__name__}:write_merged_model", "mens_pipeline.delivery.merged_model")
STAGE: Final = Stage(Kind.MERGED_MODEL, _ENTRIES, write_merged_model)


def build_merged_model(
    prepared: PreparedMerge, store: ArtifactStore, launch: Callable[[Path], int]
) -> tuple[Artifact, bool]:
    """Return the merged model with its report, and whether it was reused."""
    # The run is an origin, not part of the key: it also holds times, and the same adapter must not be merged twice.
    origins = store.holding(prepared.source.adapter.path)
    merged, reused = STAGE.build(store, MergeParams(prepared=prepared, launch=launch, origins=origins))
    shutil.rmtree(prepared.job.run_dir, ignore_errors=True)
    return merged, reused


def report_in(merged: Path) -> MergeReport:
    """Read the report on a merged model, or raise RefusedError if it is damaged or newer."""
    return read_document(merged / MERGE_REPORT, MergeReport, "merge report", _MERGE_AGAIN)


def manifest_in(merged: Path) -> MergeManifest:
    """Read the manifest of a merged model, or raise RefusedError if it is damaged or newer."""
    return read_document(merged / MERGE_MANIFEST, MergeManifest, "merge manifest", _MERGE_AGAIN)


def refuse_difference(merged: Path) -> MergeReport:
    """Return the report on a merged model, or raise RefusedError if it differs from the evaluated one."""
    report = report_in(merged)
    if not report.passed:
        advice = "Merge again without --dtype. If that does not help, report this with merge_report.json."
        raise RefusedError(f"{merged}: differs from the evaluated model. {' '.join(report.reasons)} {advice}")
    return report


def _build_report(prepared: PreparedMerge, found: Agreement) -> MergeReport:
    job, reference = prepared.job, prepared.job.reference
    is_finer = (reference.compute_dtype, job.dtype) == ("bfloat16", "float32")
    demand = ROUNDED if is_finer else STRICT
    reasons = reasons_against(found, demand)
    return MergeReport(
        reference=f"base {_HOW[reference.quantization]}, adapter merged, {reference.compute_dtype}",
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


def _build_manifest(prepared: PreparedMerge, num_parameters: int) -> MergeManifest:
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
