"""Checkpoints of the scratch lane as one model: the mean of their weights.

Source:
    Averaging the last checkpoints of a run, Vaswani et al. 2017 (Attention Is All You Need), section 6.1; of several
    runs, Wortsman et al. 2022 (Model soups).
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline.jobs.protocol import CHECKPOINTS, COMPLETE, as_document
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, refuse_links
from mens_pipeline.models.base import Digest, Recorded, read_object, shapes_in
from mens_pipeline.scratch.run import LANE, MODEL
from mens_pipeline.scratch.tokenizer import VOCABULARY
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import digest_of

MERGE_MANIFEST: Final = "merge_manifest.json"
_CONFIG: Final = "config.json"
_FILE: Final = "model.safetensors"
_COPIED: Final = (
    *(_CONFIG, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
)
"""What a model is besides its weights, which are written again; a folder may hold anything else."""

_ADVICE: Final = "Name a run of `mens scratch train`."
_LONGEST: Final = 1_048_576
"""Bytes of a configuration or a manifest."""


def scratch_sources(folders: Sequence[Path], last: int) -> tuple[Path, ...]:
    """Return the models and checkpoints that some folders stand for.

    A run stands for its newest complete checkpoints, by their numbers, and its final model.

    Raises:
        SourceNotFoundError: A folder is not there.
        RefusedError: A folder is none of these, belongs to a QLoRA run, or holds a link or what cannot be read.
    """
    return tuple(source for folder in folders for source in _sources_of(folder, last))


class MergeManifest(Recorded):
    """`merge_manifest.json`: the models whose weights were averaged."""

    kind: str
    lane: str
    method: str
    sources: tuple[dict[str, str], ...]
    model_sha256: Digest


def merge_scratch(sources: Sequence[Path], output: Path) -> MergeManifest:
    """Average the weights of some models into a model of the same shape, and return its manifest.

    Refuse (`RefusedError`) different shapes, and a folder that is not empty.
    """
    import torch
    from safetensors.torch import save_file  # noqa: PLC0415 - comes with the deep learning stack

    shapes = [shapes_in(source / _FILE) for source in sources]
    for source, shape in zip(sources, shapes, strict=True):
        if shape != shapes[0]:
            advice = "Only models of one --config have a mean."
            raise RefusedError(f"{source}: not of the shape of {sources[0]}. {advice}")
    _make_empty(output)
    weights: dict[str, Any] = {}
    for source in sources:
        for name, tensor in _weights_of(source).items():
            share = tensor.to(torch.float64) / len(sources)
            weights[name] = weights[name] + share if name in weights else share
    for name in _COPIED:
        if (sources[-1] / name).is_file():
            shutil.copyfile(sources[-1] / name, output / name)
    save_file(
        {name: tensor.to(torch.float32).contiguous() for name, tensor in weights.items()},
        output / _FILE,
        metadata={"format": "pt"},
    )
    manifest = MergeManifest(
        kind=Kind.SCRATCH_MODEL,
        lane=LANE,
        method="mean of weights",
        sources=tuple({"path": str(source), "sha256": digest_of(source / _FILE)} for source in sources),
        model_sha256=digest_of(output / _FILE),
    )
    (output / MERGE_MANIFEST).write_text(as_document(manifest.as_json()), encoding="utf-8")
    return manifest


def _make_empty(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
        is_empty = not any(output.iterdir())
    except OSError as error:
        raise RefusedError(f"{output}: {error.strerror}. Name a folder that is not there yet.") from error
    if not is_empty:
        raise RefusedError(f"{output}: not empty. Name a folder that is not there yet.")


def _weights_of(source: Path) -> dict[str, Any]:
    from safetensors import SafetensorError  # noqa: PLC0415 - comes with the deep learning stack
    from safetensors.torch import load_file  # noqa: PLC0415 - likewise

    try:
        weights: dict[str, Any] = load_file(source / _FILE)
    except (SafetensorError, OSError) as error:
        raise RefusedError(f"{source / _FILE}: cannot be read ({error}). Train the model again.") from error
    return weights


def _sources_of(folder: Path, last: int) -> list[Path]:
    if not folder.is_dir():
        raise SourceNotFoundError(f"{folder}: no such folder. Name a run of `mens scratch train`, or a model of one.")
    refuse_links(folder)
    _refuse_qlora(folder)
    if is_scratch_model(folder):
        return [folder]
    complete = [path.parent for path in (folder / CHECKPOINTS).glob(f"checkpoint-*/{COMPLETE}")]
    steps = {path: path.name.rsplit("-", 1)[1] for path in complete}  # somebody may have called one `checkpoint-best`
    numbered = sorted((int(step), path) for path, step in steps.items() if step.isdecimal())
    models = [path for _, path in numbered if is_scratch_model(path)]
    final = folder / MODEL
    if is_scratch_model(final) and not (models and digest_of(models[-1] / _FILE) == digest_of(final / _FILE)):
        models.append(final)
    if not models:
        advice = "Name a run of `mens scratch train`, one of its checkpoints, or its model folder."
        raise RefusedError(f"{folder}: no checkpoint of the scratch lane. {advice}")
    return models[-last:]


def _refuse_qlora(folder: Path) -> None:
    """Name the command that merges adapters, if a folder is a QLoRA run or an adapter."""
    manifest = folder / MANIFEST
    lane = read_object(manifest, _LONGEST, _ADVICE).get("lane") if manifest.is_file() else None
    is_adapter = (folder / ADAPTER).is_dir() or (folder / "adapter_config.json").is_file()
    if is_adapter and lane != LANE:
        advice = f"Run: mens merge --run-dir {folder}"
        raise RefusedError(f"{folder}: a QLoRA run; its adapter is merged into its base. {advice}")


def is_scratch_model(folder: Path) -> bool:
    """Return whether a folder holds a GPT-2 whose ids are those of VoxTokenizer."""
    if not (folder / _CONFIG).is_file() or not (folder / _FILE).is_file():
        return False
    config = read_object(folder / _CONFIG, _LONGEST, _ADVICE)
    return (config.get("model_type"), config.get("vocab_size")) == ("gpt2", len(VOCABULARY))
