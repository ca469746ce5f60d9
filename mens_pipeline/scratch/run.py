"""A run of the scratch lane: its job, its artifact, and the mean of several models."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import RefusedError, require_folder
from mens_pipeline.jobs.device import Device
from mens_pipeline.jobs.local import result_after
from mens_pipeline.jobs.protocol import CHECKPOINTS, COMPLETE, as_document
from mens_pipeline.models.adapter import ADAPTER, CARD, MANIFEST, refuse_links
from mens_pipeline.models.base import Digest, Recorded, configuration_of, read_object, shapes_in
from mens_pipeline.scratch.data import JsonlDataLoader, count_shown, plan_order
from mens_pipeline.scratch.recipe import ScratchConfig, ScratchRecipe
from mens_pipeline.scratch.tokenizer import VOCABULARY
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.documents import draft_folder
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details, digest_of, key_of
from mens_pipeline.training.prepare import Prepared, claim_folder, lay_out
from mens_pipeline.training.qlora_adapter import build_trained_model, write_trained_model
from mens_pipeline.training.recipe import CommonJob

STAGE: Final = Stage(Kind.SCRATCH_MODEL, ("mens_pipeline.scratch.train",), write_trained_model)
LANE: Final = "scratch"
SCHEMA_VERSION: Final = 2
MODEL: Final = "model"
WEIGHTS_FILE: Final = "model.safetensors"
WEIGHTS: Final = f"{MODEL}/{WEIGHTS_FILE}"
LIBRARIES: Final = ("torch", "transformers", "accelerate")
"""Libraries whose versions decide the result of a run."""

_NOT_OF_THE_RUN: Final = frozenset(("save_steps", "save_total_limit"))
"""Fields that do not change the model."""

_CHECKPOINT_BYTES: Final = 12
"""Bytes of a parameter in a checkpoint: value and two moments, in float32."""

MERGE_MANIFEST: Final = "merge_manifest.json"
_CONFIG: Final = "config.json"
_COPIED: Final = (
    *(_CONFIG, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
)
"""Files of a model besides its weights; a folder may hold others."""

_ADVICE: Final = "Name a run of `mens scratch train`."
_LONGEST: Final = 1_048_576  # limit of the bytes of a configuration or a manifest


class ScratchResult(Recorded):
    """Fields of `result.json` that the program reads; others are kept."""

    num_rows: int
    num_train: int
    longest: int
    skipped: dict[str, int]
    num_steps: int
    trained_tokens: int
    seconds: float
    train_loss: float
    validation_loss: float | None
    num_parameters: int
    model_sha256: Digest


class ScratchManifest(Recorded):
    """Fields of `training_manifest.json` of the scratch lane that the program reads; others are kept."""

    lane: str
    name: str
    config: ScratchConfig = Field(strict=False)
    num_parameters: int
    recipe: dict[str, Any]
    contract_digest: Digest
    train_sha256: Digest
    base_sha256: Digest | None
    model_sha256: Digest
    result: ScratchResult


class ScratchDetails(Details):
    """Fields of the manifest of the artifact."""

    training: ScratchManifest


class ScratchJob(CommonJob):
    """The job of one run; weights are float32."""

    kind: Literal["scratch"] = "scratch"
    recipe: ScratchRecipe
    base_path: Path | None = Field(default=None, description="The model to adapt; null: random weights.")
    strict: bool = Field(default=False, description="Whether a line that is not a pair ends the run.")


@dataclass(frozen=True, slots=True)
class PreparedScratch(Prepared[ScratchJob]):
    """A checked run; `backend` is the value of VOX_BACKEND."""

    backend: str | None


def prepare_scratch(  # noqa: PLR0913 - all inputs of a run
    recipe: ScratchRecipe,
    train_path: Path,
    folder: Path | Callable[[str], Path],
    device: Device,
    *,
    cache: Path,
    min_rows: int,
    base: Path | None = None,
    backend: str | None = None,
    strict: bool = False,
    is_new: bool = False,
    is_trial: bool = False,
) -> PreparedScratch:
    """Prepare a run as `training.prepare.prepare_run` does; `strict` refuses lines that are not pairs.

    With a `base`, the folder of a model of this lane, the run trains an adapter for it and merges it at the end.
    """
    if base is not None:
        _refuse_other_shape(base, recipe)
        if isinstance(folder, Path) and base.resolve().is_relative_to(folder.resolve()):
            raise RefusedError(f"{folder}: holds the model to adapt, {base}. Name another --output-dir.")
    limits = {"max_length": recipe.max_length, "min_rating": recipe.min_rating}
    loader = JsonlDataLoader(train_path, system_prompt=SYSTEM_PROMPT, strict=strict, **limits)
    order = plan_order(loader, recipe.plan())
    if len(order.train) < min_rows:
        others = [*loader.counts.dropped.items(), ("for measuring", len(order.validation))]
        left_out = ", ".join(f"{count} {reason}" for reason, count in others if count) or "none"
        found = f"{len(order.train)} rows train, {min_rows} are needed (left out: {left_out})"
        raise RefusedError(f"{found}. Extract more data.")
    dtype = "bfloat16" if device.has_bfloat16 else "float32"
    contract: dict[str, Any] = {
        "lane": LANE,
        "recipe": recipe.model_dump(mode="json", exclude=set(_NOT_OF_THE_RUN)) | {"learning_rate": recipe.rate},
        "shape": asdict(recipe.shape),
        "train_sha256": digest_of(train_path),
        "device": device.kind,
        "compute_dtype": dtype,
        "system_prompt": SYSTEM_PROMPT,
        "tokenizer": code_version("mens_pipeline.scratch.tokenizer:encode"),
        "trainer": STAGE.code_version,
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    if base is None:
        del contract["recipe"]["lora_r"]  # does not affect the result
    else:
        contract |= {"base_sha256": digest_of(base / WEIGHTS_FILE), "peft": version("peft")}
    digest = key_of(contract)
    num_parameters = recipe.shape.num_parameters
    needed_mb = num_parameters * _CHECKPOINT_BYTES * (recipe.save_total_limit + 1) / 2**20
    run_dir = claim_folder(folder, digest, needed_mb, is_new=is_new)
    preflight = {
        "schema_version": "mens.scratch.preflight.v1",
        "contract_digest": digest,
        "device": {"kind": device.kind, "name": device.name, "memory_gb": device.memory_gb},
        "num_parameters": num_parameters,
        "data": count_shown(loader, order),
        "num_steps": order.num_steps,
        "num_micro_batches": len(order.batches),
    }
    job = ScratchJob(
        recipe=recipe,
        train_path=train_path.resolve(),
        base_path=base.resolve() if base is not None else None,
        device=device.kind,
        compute_dtype=dtype,
        run_dir=run_dir.resolve(),
        system_prompt=SYSTEM_PROMPT,
        strict=strict,
        contract_digest=digest,
        lock_path=device.lock_in(cache).resolve(),
    )
    is_done = not is_trial and lay_out(job, contract, preflight, is_new=is_new)
    return PreparedScratch(job, preflight, contract, is_done, backend)


def _refuse_other_shape(base: Path, recipe: ScratchRecipe) -> None:
    config, shape = configuration_of(base), recipe.shape
    found = {key: config.get(key) for key in ("n_layer", "n_head", "n_embd")}
    expected = (shape.num_hidden_layers, shape.num_attention_heads, shape.hidden_size)
    if tuple(found.values()) != expected:
        advice = "Name the --config that it was trained with."
        raise RefusedError(f"{base}: has {found}, which is not the shape of `{recipe.config}`. {advice}")


def build_scratch_model(
    run: PreparedScratch,
    store: ArtifactStore,
    launch: Callable[[PreparedScratch], int],
    vcs_sha: str | None,
    *,
    again: bool = False,
) -> tuple[Artifact, bool]:
    """Train a model as `build_qlora_adapter` trains an adapter; its folder holds `model/`."""
    finish = partial(finish_scratch, run, vcs_sha)
    parents = (run.job.train_path,)
    return build_trained_model(STAGE, run, store, launch, finish, model=MODEL, rests_on=parents, again=again)


def finish_scratch(run: PreparedScratch, vcs_sha: str | None, code: int) -> ScratchManifest:
    """Write manifest and card of a run; raise RefusedError for an incomplete one."""
    job, recipe = run.job, run.job.recipe
    result = result_after(job.run_dir, code)
    document = {
        "manifest_schema_version": SCHEMA_VERSION,
        "kind": Kind.SCRATCH_MODEL,
        "lane": LANE,
        "name": f"scratch-model-{vcs_sha}" if vcs_sha else "scratch-model",
        "vcs_sha": vcs_sha,
        "vox_backend": run.backend,
        "config": recipe.config,
        "shape": asdict(recipe.shape),
        "num_parameters": result["num_parameters"],
        "tokenizer": {"name": "VoxTokenizer", "vocab_size": len(VOCABULARY), "rules": run.contract["tokenizer"]},
        "recipe": {**recipe.model_dump(mode="json"), "learning_rate": recipe.rate},
        "seed": recipe.seed,
        "contract_digest": job.contract_digest,
        "train_file": str(job.train_path),
        "train_sha256": run.contract["train_sha256"],
        "base_sha256": run.contract.get("base_sha256"),
        "model_sha256": result["model_sha256"],
        "system_prompt": job.system_prompt,
        "libraries": run.contract["libraries"],
        "result": result,
    }
    manifest = ScratchManifest.model_validate(document)
    (job.run_dir / MANIFEST).write_text(as_document(manifest.as_json()), encoding="utf-8")
    (job.run_dir / MODEL / CARD).write_text(format_card(manifest), encoding="utf-8")
    return manifest


def format_card(manifest: ScratchManifest) -> str:
    """Format the card of a model in Markdown."""
    result = manifest.result
    begin = "random weights" if manifest.base_sha256 is None else f"the model `{manifest.base_sha256[:12]}` by LoRA"
    rows = [
        (
            "shape",
            f"{manifest.config}, {manifest.num_parameters:,} parameters, VoxTokenizer with {len(VOCABULARY)} ids",
        ),
        ("steps", f"{result.num_steps}, {result.trained_tokens} tokens of {result.num_train} rows"),
        ("loss", f"{result.train_loss:.4f} on average while training"),
        ("contract", f"`{manifest.contract_digest[:12]}`"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    head = "---\nlibrary_name: transformers\ntags: [vox, scratch]\n---\n"
    use = f"A GPT-2 with a head of its own, trained from {begin}; `transformers` loads it with its Auto classes."
    return f"{head}\n# {manifest.name}\n\n{use}\n\n| what | |\n|---|---|\n{table}\n"


def scratch_sources(folders: Sequence[Path], last: int) -> tuple[Path, ...]:
    """Find the models in folders, which are models, checkpoints, or runs with the `last` newest models of each.

    `RefusedError` if a folder has no model of this lane, is a QLoRA run, or holds a link or unreadable files.
    """
    return tuple(source for folder in folders for source in _find_sources(folder, last))


class MeanManifest(Recorded):
    """`merge_manifest.json` of the mean of several models."""

    kind: str
    lane: str
    method: str
    sources: tuple[dict[str, str], ...]
    model_sha256: Digest


def merge_scratch(sources: Sequence[Path], output: Path) -> MeanManifest:
    """Average the weights of some models into a model of the same shape, and return its manifest.

    `RefusedError` if the shapes differ, or the folder is not empty.

    Source:
        The last checkpoints of a run: Vaswani et al. 2017 (Attention Is All You Need), section 6.1; several runs:
        Wortsman et al. 2022 (Model soups).
    """
    import torch
    from safetensors.torch import save_file  # noqa: PLC0415 - comes with the deep learning stack

    shapes = [shapes_in(source / WEIGHTS_FILE) for source in sources]
    for source, shape in zip(sources, shapes, strict=True):
        if shape != shapes[0]:
            advice = "Only models of one --config have a mean."
            raise RefusedError(f"{source}: not of the shape of {sources[0]}. {advice}")
    _make_empty(output)
    weights: dict[str, Any] = {}
    for source in sources:
        for name, tensor in _load_weights(source).items():
            share = tensor.to(torch.float64) / len(sources)
            weights[name] = weights[name] + share if name in weights else share
    mean = {name: tensor.to(torch.float32).contiguous() for name, tensor in weights.items()}
    with draft_folder(output.resolve()) as draft:
        for name in _COPIED:
            if (sources[-1] / name).is_file():
                shutil.copyfile(sources[-1] / name, draft / name)
        save_file(mean, draft / WEIGHTS_FILE, metadata={"format": "pt"})
        manifest = MeanManifest(
            kind=Kind.SCRATCH_MODEL,
            lane=LANE,
            method="mean of weights",
            sources=tuple({"path": str(source), "sha256": digest_of(source / WEIGHTS_FILE)} for source in sources),
            model_sha256=digest_of(draft / WEIGHTS_FILE),
        )
        (draft / MERGE_MANIFEST).write_text(as_document(manifest.as_json()), encoding="utf-8")
        for path in draft.iterdir():
            path.replace(output / path.name)
    return manifest


def _make_empty(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
        is_empty = not any(output.iterdir())
    except OSError as error:
        raise RefusedError(f"{output}: {error.strerror}. Name a folder that is not there yet.") from error
    if not is_empty:
        raise RefusedError(f"{output}: not empty. Name a folder that is not there yet.")


def _load_weights(source: Path) -> dict[str, Any]:
    from safetensors import SafetensorError  # noqa: PLC0415 - comes with the deep learning stack
    from safetensors.torch import load_file  # noqa: PLC0415 - likewise

    try:
        weights: dict[str, Any] = load_file(source / WEIGHTS_FILE)
    except (SafetensorError, OSError) as error:
        raise RefusedError(f"{source / WEIGHTS_FILE}: cannot be read ({error}). Train the model again.") from error
    return weights


def _find_sources(folder: Path, last: int) -> list[Path]:
    require_folder(folder, "Name a run of `mens scratch train`, or a model of one.")
    refuse_links(folder)
    _refuse_qlora(folder)
    if is_scratch_model(folder):
        return [folder]
    complete = [path.parent for path in (folder / CHECKPOINTS).glob(f"checkpoint-*/{COMPLETE}")]
    steps = {path: path.name.rsplit("-", 1)[1] for path in complete}  # a user may have added `checkpoint-best`
    numbered = sorted((int(step), path) for path, step in steps.items() if step.isdecimal())
    models = [path for _, path in numbered if is_scratch_model(path)]
    final = folder / MODEL
    if is_scratch_model(final) and not (
        models and digest_of(models[-1] / WEIGHTS_FILE) == digest_of(final / WEIGHTS_FILE)
    ):
        models.append(final)
    if not models:
        advice = "Name a run of `mens scratch train`, one of its checkpoints, or its model folder."
        raise RefusedError(f"{folder}: no checkpoint of the scratch lane. {advice}")
    return models[-last:]


def _refuse_qlora(folder: Path) -> None:
    manifest = folder / MANIFEST
    lane = read_object(manifest, _LONGEST, _ADVICE).get("lane") if manifest.is_file() else None
    is_adapter = (folder / ADAPTER).is_dir() or (folder / "adapter_config.json").is_file()
    if is_adapter and lane != LANE:
        advice = f"Run: mens merge --run-dir {folder}"
        raise RefusedError(f"{folder}: a QLoRA run; its adapter is merged into its base. {advice}")


def is_scratch_model(folder: Path) -> bool:
    """Return whether a folder holds a GPT-2 with the ids of VoxTokenizer."""
    if not (folder / _CONFIG).is_file() or not (folder / WEIGHTS_FILE).is_file():
        return False
    config = read_object(folder / _CONFIG, _LONGEST, _ADVICE)
    return (config.get("model_type"), config.get("vocab_size")) == ("gpt2", len(VOCABULARY))
