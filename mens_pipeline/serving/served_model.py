"""The model to serve: the champion, the adapter of a run, or a merged model; checked before anything is loaded."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, read_results
from mens_pipeline.inference.generation import EvaluatedModel
from mens_pipeline.inference.prepare import computed_in, evaluated_model
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import ADAPTER, CONFIGURATION, Adapter, read_adapter_config
from mens_pipeline.models.adapter import KIND as TRAINED
from mens_pipeline.models.base import (
    FileTokenizer,
    configuration_of,
    describe_base,
    digest_of_folder,
    num_parameters_in,
    refuse_missing,
    template_in,
)
from mens_pipeline.models.chat import format_of, system_of
from mens_pipeline.models.infill import Order
from mens_pipeline.promotion.history import adapter_sha256_of, find_champion
from mens_pipeline.promotion.policy import GateStatus
from mens_pipeline.promotion.receipt import KIND as GATE
from mens_pipeline.promotion.receipt import receipt_in
from mens_pipeline.scratch.merge import is_scratch_model
from mens_pipeline.storage.signing import PRIVATE, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.preflight import check_tokenizer, fits_dense

ALIAS: Final = "mens"
"""A name of every model that is served, so that clients need not change when another adapter is promoted."""

_SHOWN: Final = 12
_SAID: Final = {
    GateStatus.PASSED: "passed its gate",
    GateStatus.FAILED: "refused by its gate",
    GateStatus.UNDECIDED: "not promoted: its gate cannot tell yet",
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that may be loaded.

    Attributes:
        sha256: Of what was trained: the adapter, or all of a merged model, hexadecimal.
        system_prompt: What it is told when a request says nothing else.
        max_context: Tokens that it can hold, prompt and completion together.
        candidate: What its gate said, of an adapter that was not promoted; every response says it.
        infill_threshold: Mean log-probability of a token below which a piece at a cursor is withheld; None where no
            evaluation says one.
        infill_window: Tokens around a cursor that it is shown; None for a model that was not taught to complete there.
        infill_order: Which side of a cursor it is shown first, as in its training; None with the window.
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

    @property
    def names(self) -> tuple[str, ...]:
        """Names that requests may call it by."""
        return tuple(dict.fromkeys((self.name, ALIAS)))

    @property
    def fingerprint(self) -> str:
        """Short digest of everything that decides the completions."""
        return f"fp_{self.sha256[:_SHOWN]}"


def champion_model(store: ArtifactStore, device: Device) -> ServedModel:
    """Return the adapter that is in use, as a model to serve.

    Raises:
        RefusedError: There is none, it has changed since its promotion or is not signed, or its base is gone.
    """
    champion = find_champion(store)
    if champion is None:
        advice = (
            "Promote one with `mens promote`, serve the one that was evaluated last with --candidate, or name a run "
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
    """Return the adapter that was evaluated last, promoted or not, as a model to serve.

    Raises:
        RefusedError: None was evaluated, it has changed since, its verdict is not signed, or its base is gone.
    """
    gate = store.latest(GATE)
    refs = [parent for parent in gate.parents if parent.kind == TRAINED] if gate is not None else []
    trained = store.get(refs[0].kind, refs[0].key) if refs else None
    if gate is None or trained is None:
        raise RefusedError(f"{store.root}: no adapter was evaluated. Run `mens run`, or name a run with --run-dir.")
    _refuse_unsigned(gate, store)
    receipt, adapter = receipt_in(gate.path), Adapter.open(trained.path)
    if receipt.subject is None or adapter.digest != receipt.subject.adapter_sha256:
        raise RefusedError(f"{adapter.path / ADAPTER}: is not what was evaluated. Run `mens run` again.")
    verdict = f"{_SAID[receipt.status]}, policy {ascii(receipt.policy)[1:-1]}"
    return replace(adapter_model(adapter, device, gate.path), candidate=verdict)


def adapter_model(adapter: Adapter, device: Device, evaluation: Path | None = None) -> ServedModel:
    """Return an adapter on its base, as a model to serve.

    The results of its evaluation, beside it unless another folder is named, say when it is to be silent at a cursor.

    Raises:
        RefusedError: The adapter is not what training writes, or its base is gone or is another one.
    """
    manifest, base = adapter.manifest, adapter.manifest.base_model
    evaluated = evaluated_model("adapter", adapter, device)
    read_adapter_config(adapter.folder)
    check_tokenizer(FileTokenizer(evaluated.base_path), evaluated.base_path)
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
        infill_threshold=_threshold_in(evaluation or adapter.path, adapter.digest),
    )


def _threshold_in(folder: Path, adapter_sha256: str) -> float | None:
    """Return the threshold that an evaluation calibrated for an adapter; None where there is none of this adapter."""
    results = read_results(folder / RESULTS)
    if results is None or results.subject.adapter_sha256 != adapter_sha256 or results.infill is None:
        return None
    return None if results.infill.abstention is None else results.infill.abstention.threshold


def _refuse_unsigned(artifact: Artifact, store: ArtifactStore) -> None:
    if problem := explain_unsigned(artifact, store):
        advice = f"Evaluate and promote it again with {PRIVATE}, or serve without the key."
        raise RefusedError(f"{artifact.path}: {problem}. {advice}")


def merged_model(folder: Path, device: Device) -> ServedModel:
    """Return a plain folder of Hugging Face, with weights as safetensors, as a model to serve.

    Its chat template is compared with ours, and never rendered: prompts are made here, as in training.

    Raises:
        RefusedError: It lacks a file, would run code of its own, or was trained on another form of conversations.
    """
    path = folder.resolve()
    architecture, sha256, num_parameters = _describe(path)
    check_tokenizer(FileTokenizer(path), path)
    template = template_in(path)
    dtype = computed_in(device) if fits_dense(device, num_parameters, computed_in(device)) else "bfloat16"
    is_plain = template == format_of(template).template()
    system_prompt = SYSTEM_PROMPT if is_plain else system_of(template or "")
    if system_prompt is None:
        advice = "Serve a model that `mens merge` wrote; this server shows every model the form that ours learn."
        raise RefusedError(f"{path}: its chat template is not the one that this project trains with. {advice}")
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
        ),
        system_prompt=system_prompt,
        max_context=_max_context(path),
        architecture=architecture,
        num_parameters=num_parameters,
    )


def _describe(path: Path) -> tuple[str, str, int]:
    """Return architecture, digest and number of parameters of a model.

    One that was made from scratch is no base to train on. With an adapter in its folder, another would be loaded.
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
    length = text.get("max_position_embeddings", text.get("n_positions"))  # a GPT-2 says the latter
    if type(length) is not int or length < 1:
        advice = "Choose a model of another family."
        raise RefusedError(f"{path}: config.json does not say how long its context is. {advice}")
    return int(length)
