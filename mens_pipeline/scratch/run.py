"""A run of the scratch lane: the job that is made of a recipe, and the artifact that comes of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import Device
from mens_pipeline.jobs.local import result_after
from mens_pipeline.jobs.protocol import ExitCode, Job, as_document
from mens_pipeline.models.adapter import CARD, MANIFEST
from mens_pipeline.models.base import Digest, Recorded, configuration_of
from mens_pipeline.scratch.data import JsonlDataLoader, account_of, plan_order
from mens_pipeline.scratch.recipe import ScratchConfig, ScratchRecipe
from mens_pipeline.scratch.tokenizer import VOCABULARY
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details, digest_of, key_of
from mens_pipeline.training.preflight import check_disk
from mens_pipeline.training.prepare import Prepared, claim_folder, lay_out
from mens_pipeline.training.qlora_adapter import build_trained_model, write_trained_model

STAGE: Final = Stage(Kind.SCRATCH_MODEL, ("mens_pipeline.scratch.train",), write_trained_model)
LANE: Final = "scratch"
SCHEMA_VERSION: Final = 2
MODEL: Final = "model"
WEIGHTS_FILE: Final = "model.safetensors"
WEIGHTS: Final = f"{MODEL}/{WEIGHTS_FILE}"
LIBRARIES: Final = ("torch", "transformers", "accelerate")
"""Whose versions are recorded, and decide what a run gives."""

_NOT_OF_THE_RUN: Final = frozenset(("save_steps", "save_total_limit"))
"""Fields that do not change the model."""

_CHECKPOINT_BYTES: Final = 12
"""Bytes of a parameter in a checkpoint: itself and two moments, in float32."""


class ScratchResult(Recorded):
    """What training came to, with the fields that are read later; others are kept."""

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
    """`training_manifest.json` of the scratch lane, with the fields that are read later; others are kept."""

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
    """What the artifact of a model records beside its files."""

    training: ScratchManifest


class ScratchJob(Job):
    """One run, fully decided."""

    kind: Literal["scratch"] = "scratch"
    recipe: ScratchRecipe
    train_path: Path = Field(description="The train set, JSON lines.")
    base_path: Path | None = Field(default=None, description="The model that is adapted; null for random weights.")
    device: str = Field(description="cuda, mps or cpu.")
    compute_dtype: str = Field(description="float32 or bfloat16: what is computed in; weights are float32.")
    system_prompt: str = Field(description="What the model is told before every prompt.")
    strict: bool = Field(default=False, description="Whether a line that is no pair ends the run.")
    contract_digest: str = Field(description="What the run is, as a hash.")


@dataclass(frozen=True, slots=True)
class PreparedScratch(Prepared[ScratchJob]):
    """A run of the scratch lane; its backend is what VOX_BACKEND says."""

    backend: str | None


def prepare_scratch(  # noqa: PLR0913 - all that decides a run
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
    """Prepare a run as `training.prepare.prepare_run` does; `strict` ends it at a line that is no pair.

    With a `base`, the folder of a model of this lane, an adapter of it is trained, and merged into it at the end.
    """
    if base is not None:
        _refuse_other_shape(base, recipe)
    limits = {"max_length": recipe.max_length, "min_rating": recipe.min_rating}
    loader = JsonlDataLoader(train_path, system_prompt=SYSTEM_PROMPT, strict=strict, **limits)
    order = plan_order(loader, recipe.plan())
    if len(order.train) < min_rows:
        others = [*loader.counts.dropped.items(), ("for measuring", len(order.validation))]
        left_out = ", ".join(f"{count} {reason}" for reason, count in others if count) or "none"
        advice = "Extract more data."
        raise RefusedError(f"{len(order.train)} rows train, {min_rows} are needed (left out: {left_out}). {advice}")
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
        del contract["recipe"]["lora_r"]  # decides nothing
    else:
        contract |= {"base_sha256": digest_of(base / WEIGHTS_FILE), "peft": version("peft")}
    digest = key_of(contract)
    run_dir = claim_folder(folder, digest, is_new=is_new)
    num_parameters = recipe.shape.num_parameters
    check_disk(run_dir, num_parameters * _CHECKPOINT_BYTES * (recipe.save_total_limit + 1) / 2**20)
    preflight = {
        "schema_version": "mens.scratch.preflight.v1",
        "contract_digest": digest,
        "device": {"kind": device.kind, "name": device.name, "memory_gb": device.memory_gb},
        "num_parameters": num_parameters,
        "data": account_of(loader, order),
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
    is_done = not is_trial and lay_out(run_dir, job, {"digest": digest, **contract}, preflight, is_new=is_new)
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
    """Train a model from scratch as `build_qlora_adapter` trains an adapter.

    Returns:
        The model, `model/` in its folder, and whether it was reused.
    """

    def finish() -> dict[str, Any]:
        return finish_scratch(run, vcs_sha, ExitCode.DONE if run.is_done else launch(run)).as_json()

    return build_trained_model(STAGE, run, store, finish, model=MODEL, rests_on=(run.job.train_path,), again=again)


def finish_scratch(run: PreparedScratch, vcs_sha: str | None, code: int) -> ScratchManifest:
    """Write manifest and card of a run beside its model; refuse (`RefusedError`) one that is not complete."""
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
    (job.run_dir / MODEL / CARD).write_text(card_of(manifest), encoding="utf-8")
    return manifest


def card_of(manifest: ScratchManifest) -> str:
    """Write the card of a model, for people and for the Hub."""
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
