"""The model to serve: the champion, a candidate, the adapter of a run, or a merged model; checked before loading."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, read_results
from mens_pipeline.evaluation.scores import Scores
from mens_pipeline.inference.generation import EvaluatedModel
from mens_pipeline.inference.prepare import computed_in, evaluated_model, is_in_eight_bits
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import CONFIGURATION, Adapter, read_adapter_config
from mens_pipeline.models.base import (
    FileTokenizer,
    configuration_of,
    describe_base,
    digest_of_folder,
    num_parameters_in,
    refuse_missing,
    template_in,
)
from mens_pipeline.models.chat import find_system_prompt, format_of
from mens_pipeline.models.infill import Order
from mens_pipeline.promotion.history import adapter_sha256_of, find_champion
from mens_pipeline.promotion.policy import GateStatus
from mens_pipeline.promotion.receipt import receipt_in
from mens_pipeline.scratch.run import is_scratch_model
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import PRIVATE, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.preflight import check_tokenizer, fits_dense

ALIAS: Final = "mens"
"""A name of every served model, so that clients need not change when another adapter is promoted."""

_SHOWN: Final = 12
_SAID: Final = {
    GateStatus.PASSED: "passed its gate",
    GateStatus.FAILED: "refused by its gate",
    GateStatus.UNDECIDED: "not promoted: its gate is undecided",
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that passed all checks.

    `sha256` is the digest of the adapter, or of all files of a merged model. `max_context` is the limit of prompt and
    completion together, in tokens. `candidate` is the verdict on a candidate; every response has it. At a cursor,
    prompts have `infill_window` tokens, the side `infill_order` first (None if it was not trained for that). Pieces
    with a mean log-probability per token below `infill_threshold` are withheld. `base` is empty for a merged model;
    `figures` are results of its evaluation, for people.
    """

    name: str
    sha256: str
    created_unix: int
    evaluated: EvaluatedModel
    system_prompt: str
    max_context: int
    architecture: str
    num_parameters: int
    candidate: str | None = None
    infill_window: int | None = None
    infill_order: Order | None = None
    infill_threshold: float | None = None
    base: str = ""
    figures: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that requests may use."""
        return tuple(dict.fromkeys((self.name, ALIAS)))

    @property
    def fingerprint(self) -> str:
        """Short digest of the weights."""
        return f"fp_{self.sha256[:_SHOWN]}"


def champion_model(store: ArtifactStore, device: Device) -> ServedModel:
    """Find the adapter in use.

    `RefusedError` if there is none, it changed since its promotion, it is not signed, or its base is gone.
    """
    champion = find_champion(store)
    if champion is None:
        advice = (
            "Promote one with `mens promote`, serve the last evaluated one with --candidate, or name a run "
            "with --run-dir or a merged model with --model."
        )
        raise RefusedError(f"{store.root}: no adapter is promoted. {advice}")
    adapter = Adapter.open(champion.path)
    if adapter.digest != adapter_sha256_of(champion) or RESULTS in champion.find_changed():
        advice = "Restore it, or promote another one."
        raise RefusedError(f"{champion.path}: changed since it was promoted. {advice}")
    _refuse_unsigned(champion, store)
    return adapter_model(adapter, device)


def candidate_model(store: ArtifactStore, device: Device) -> ServedModel:
    """Find the adapter that was evaluated last, promoted or not.

    `RefusedError` if there is none, it changed since, its verdict is not signed, or its base is gone.
    """
    gate = store.latest(Kind.BENCHMARK_GATE)
    refs = [parent for parent in gate.parents if parent.kind == Kind.QLORA_ADAPTER] if gate is not None else []
    trained = store.get(refs[0].kind, refs[0].key) if refs else None
    if gate is None or trained is None:
        raise RefusedError(f"{store.root}: no evaluated adapter. Run `mens run`, or name a run with --run-dir.")
    _refuse_unsigned(gate, store)
    receipt, adapter = receipt_in(gate.path), Adapter.open(trained.path)
    if receipt.subject is None or adapter.digest != receipt.subject.adapter_sha256:
        raise RefusedError(f"{adapter.folder}: differs from the evaluated adapter. Run `mens run` again.")
    verdict = f"{_SAID[receipt.status]}, policy {ascii(receipt.policy)[1:-1]}"
    return replace(adapter_model(adapter, device, gate.path), candidate=verdict)


def adapter_model(adapter: Adapter, device: Device, evaluation: Path | None = None) -> ServedModel:
    """Check an adapter and its base; `RefusedError` if training did not write it, or its base is not there.

    The results of its evaluation, in its folder unless another is given, hold its threshold at a cursor.
    """
    manifest, base = adapter.manifest, adapter.manifest.base_model
    evaluated = evaluated_model("adapter", adapter, device)
    read_adapter_config(adapter.folder)
    check_tokenizer(FileTokenizer(evaluated.base_path), evaluated.base_path)
    results = read_results((evaluation or adapter.path) / RESULTS)
    if results is not None and results.subject.adapter_sha256 != adapter.digest:
        results = None
    abstention = results.infill.abstention if results is not None and results.infill is not None else None
    return ServedModel(
        name=manifest.name,
        sha256=adapter.digest,
        created_unix=int(adapter.weights.stat().st_mtime),
        evaluated=evaluated,
        system_prompt=manifest.system_prompt,
        max_context=_max_context(evaluated.base_path),
        architecture=base.architecture,
        num_parameters=base.num_parameters,
        infill_window=manifest.recipe.infill_window if manifest.is_taught else None,
        infill_order=manifest.infill_order if manifest.is_taught else None,
        infill_threshold=None if abstention is None else abstention.threshold,
        base=Path(base.name).name,
        figures="" if results is None else _format_figures(results.adapter.overall),
    )


def _format_figures(scores: Scores) -> str:
    return f"{scores.parse_rate.short} of its programs parse, {scores.test_rate.short} pass their hidden tests"


def _refuse_unsigned(artifact: Artifact, store: ArtifactStore) -> None:
    if problem := explain_unsigned(artifact, store):
        advice = f"Evaluate and promote it again with {PRIVATE}, or serve without the key."
        raise RefusedError(f"{artifact.path}: {problem}. {advice}")


def merged_model(folder: Path, device: Device) -> ServedModel:
    """Check a plain Hugging Face folder with safetensors.

    Its chat template is compared with ours and never rendered: prompts are built here, as in training. `RefusedError`
    if the folder lacks a file, would run its own code, or was trained with another chat template.
    """
    path = folder.resolve()
    architecture, sha256, num_parameters = _describe(path)
    check_tokenizer(FileTokenizer(path), path)
    template = template_in(path)
    dtype = computed_in(device) if fits_dense(device, num_parameters, computed_in(device)) else "bfloat16"
    is_plain = template == format_of(template).template()
    system_prompt = SYSTEM_PROMPT if is_plain else find_system_prompt(template or "")
    if system_prompt is None:
        advice = "Serve a model that `mens merge` wrote: this server builds prompts as in training."
        raise RefusedError(f"{path}: its chat template differs from the one used in training. {advice}")
    return ServedModel(
        name=path.name,
        sha256=sha256,
        created_unix=int(max(file.stat().st_mtime for file in path.glob("*.safetensors"))),
        evaluated=EvaluatedModel(
            base_path=path,
            adapter_path=None,
            quantization="none",
            double_quant=False,
            trained_in=dtype,
            device=device.kind,
            compute_dtype=dtype,
            in_eight_bits=is_in_eight_bits(device),
        ),
        system_prompt=system_prompt,
        max_context=_max_context(path),
        architecture=architecture,
        num_parameters=num_parameters,
    )


def _describe(path: Path) -> tuple[str, str, int]:
    """Return architecture, digest and number of parameters.

    `describe_base` refuses scratch models as bases. With an adapter in the folder, transformers loads another model.
    """
    if is_scratch_model(path) and not (path / CONFIGURATION).exists():
        refuse_missing(path)
        num_parameters = sum(map(num_parameters_in, path.glob("*.safetensors")))
        return str(configuration_of(path)["architectures"][0]), digest_of_folder(path), num_parameters
    base = describe_base(path.name, None, path, "folder", None)
    return base.architecture, base.sha256, base.num_parameters


def _max_context(path: Path) -> int:
    config = configuration_of(path)
    text = config.get("text_config", config)
    length = text.get("max_position_embeddings", text.get("n_positions"))  # of GPT-2
    if type(length) is not int or length < 1:
        advice = "Choose a model of another family."
        raise RefusedError(f"{path}: config.json does not give a context length. {advice}")
    return int(length)
