"""The model to serve: the champion, the adapter of a run, or a merged model; checked before anything is loaded."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import JudgedModel
from mens_pipeline.inference.prepare import computed_in, fits_dense, judged_model
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import ADAPTER, Adapter, read_adapter_config
from mens_pipeline.models.base import configuration_of, describe_base
from mens_pipeline.models.chat import (
    IM_END,
    IM_START,
    FileTokenizer,
    opening_of,
    system_of,
    template_behind,
    template_in,
)
from mens_pipeline.promotion.benchmark_gate import KIND as GATE
from mens_pipeline.promotion.benchmark_gate import receipt_in
from mens_pipeline.promotion.gate import GateStatus
from mens_pipeline.promotion.history import adapter_sha256_of, champion_of
from mens_pipeline.storage.signing import PRIVATE, unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.preflight import check_tokenizer
from mens_pipeline.training.qlora_adapter import KIND as TRAINED

ALIAS: Final = "mens"
"""The name that whatever is served answers to, so that clients need not follow the adapter of the night."""

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
        max_context: Tokens that it can hold, prompt and answer together.
        candidate: What its gate said, of an adapter that is served although it was not promoted; every answer says it.
    """

    name: str
    sha256: str
    created_unix: int
    judged: JudgedModel
    system_prompt: str
    max_context: int
    architecture: str
    num_values: int
    candidate: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names that requests may call it by."""
        return tuple(dict.fromkeys((self.name, ALIAS)))

    @property
    def fingerprint(self) -> str:
        """Short digest of everything that decides the answers."""
        return f"fp_{self.sha256[:_SHOWN]}"


def champion_model(store: ArtifactStore, device: Device) -> ServedModel:
    """Return the adapter that is in use, as a model to serve.

    Raises:
        RefusedError: There is none, it is not as it was promoted or not signed, or its base is gone.
    """
    champion = champion_of(store)
    if champion is None:
        advice = (
            "Promote one with `mens promote`, serve the one that was judged last with --candidate, or name a run with "
            "--run-dir or a merged model with --model."
        )
        raise RefusedError(f"{store.root}: no adapter is promoted. {advice}")
    adapter = Adapter.open(champion.path)
    if adapter.digest != adapter_sha256_of(champion):
        advice = "Restore it, or promote another one."
        raise RefusedError(f"{champion.path / ADAPTER}: changed since it was promoted. {advice}")
    _refuse_unsigned(champion, store)
    return adapter_model(adapter, device)


def candidate_model(store: ArtifactStore, device: Device) -> ServedModel:
    """Return the adapter that was judged last, promoted or not, as a model to serve.

    Raises:
        RefusedError: None was judged, it is not as it was judged, its verdict is not signed, or its base is gone.
    """
    gate = store.get(GATE, store.pointed(GATE, "latest") or "")
    refs = [parent for parent in gate.parents if parent.kind == TRAINED] if gate is not None else []
    trained = store.get(refs[0].kind, refs[0].key) if refs else None
    if gate is None or trained is None:
        raise RefusedError(f"{store.root}: no adapter was judged. Run `mens run`, or name a run with --run-dir.")
    _refuse_unsigned(gate, store)
    receipt, adapter = receipt_in(gate.path), Adapter.open(trained.path)
    if receipt.subject is None or adapter.digest != receipt.subject.adapter_sha256:
        raise RefusedError(f"{adapter.path / ADAPTER}: is not what was judged. Run `mens run` again.")
    verdict = f"{_SAID[receipt.status]}, policy {ascii(receipt.policy)[1:-1]}"
    return replace(adapter_model(adapter, device), candidate=verdict)


def adapter_model(adapter: Adapter, device: Device) -> ServedModel:
    """Return an adapter on its base, as a model to serve.

    Raises:
        RefusedError: The adapter is not what training writes, or its base is gone or is another one.
    """
    manifest, base = adapter.manifest, adapter.manifest.base_model
    judged = judged_model("adapter", adapter, device)
    read_adapter_config(adapter.folder)
    _check_control_tokens(judged.base_path)
    return ServedModel(
        name=manifest.name,
        sha256=adapter.digest,
        created_unix=int(adapter.weights.stat().st_mtime),
        judged=judged,
        system_prompt=manifest.system_prompt,
        max_context=_max_context(judged.base_path),
        architecture=base.architecture,
        num_values=base.num_values,
    )


def _refuse_unsigned(artifact: Artifact, store: ArtifactStore) -> None:
    if problem := unsigned(artifact, store):
        advice = f"Judge and promote it again with {PRIVATE}, or serve without the key."
        raise RefusedError(f"{artifact.path}: {problem}. {advice}")


def merged_model(folder: Path, device: Device) -> ServedModel:
    """Return a plain folder of Hugging Face, with weights as safetensors, as a model to serve.

    Its chat template is compared with ours, and never rendered: prompts are made here, as in training.

    Raises:
        RefusedError: It lacks a file, would run code of its own, or was trained on another form of conversations.
    """
    path = folder.resolve()
    base = describe_base(path.name, None, path, "folder", None)
    _check_control_tokens(path)
    template = template_in(path)
    dtype = computed_in(device) if fits_dense(device, base.num_values, computed_in(device)) else "bfloat16"
    is_plain = template == template_behind(opening_of(template))
    system_prompt = SYSTEM_PROMPT if is_plain else system_of(template or "")
    if system_prompt is None:
        advice = "Serve a model that `mens merge` wrote; this server shows every model the form that ours learn."
        raise RefusedError(f"{path}: its chat template is not the one that this project trains with. {advice}")
    return ServedModel(
        name=path.name,
        sha256=base.sha256,
        created_unix=int(max(file.stat().st_mtime for file in path.glob("*.safetensors"))),
        judged=JudgedModel(
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
        architecture=base.architecture,
        num_values=base.num_values,
    )


def _check_control_tokens(path: Path) -> None:
    tokenizer = FileTokenizer(path)
    check_tokenizer([tokenizer.encode(text, add_special_tokens=False) for text in (IM_START, IM_END)], path)


def _max_context(path: Path) -> int:
    config = configuration_of(path)
    text = config.get("text_config", config)
    length = text.get("max_position_embeddings")
    if type(length) is not int or length < 1:
        advice = "Choose a model of another family."
        raise RefusedError(f"{path}: config.json does not say how long its context is. {advice}")
    return int(length)
