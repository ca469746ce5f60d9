"""A model from scratch as an artifact: trained once for one contract, with manifest and card."""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mens_pipeline.language.vox_tokenizer import VOCABULARY
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.job import ExitCode, as_document
from mens_pipeline.training.launch import result_after
from mens_pipeline.training.manifest import CARD, MANIFEST
from mens_pipeline.training.qlora_adapter import kept_of
from mens_pipeline.training.scratch.job import MODEL
from mens_pipeline.training.scratch.prepare import STAGE, PreparedScratch

KIND: Final = STAGE.kind
LANE: Final = "scratch"
SCHEMA_VERSION: Final = 1


def build_scratch_model(
    run: PreparedScratch,
    store: ArtifactStore,
    launch: Callable[[PreparedScratch], int],
    vcs_sha: str | None,
    *,
    anew: bool = False,
) -> tuple[Artifact, bool]:
    """Train a model from scratch, unless the very same was trained before.

    With `anew` it is trained all the same; what is there stays until the new one is.

    Returns:
        The model, and whether it was reused. The folder holds `model/` as Hugging Face reads it, `telemetry.jsonl`,
        contract, preflight and manifest.

    Raises:
        RefusedError: Training did not come to its end; what it has reached stays in the work folder.
        ConfigurationError: The store cannot be written.
    """

    def finished() -> dict[str, Any]:
        return finish_scratch(run, vcs_sha, ExitCode.DONE if run.is_done else launch(run))

    parents, made = store.holding(run.job.train_path), partial(kept_of, run.job.run_dir, MODEL, finished)
    model, reused = STAGE.build(store, parents, {"contract": run.contract}, made, force=anew)
    shutil.rmtree(run.job.run_dir, ignore_errors=True)
    return model, reused


def finish_scratch(run: PreparedScratch, vcs_sha: str | None, code: int) -> dict[str, Any]:
    """Write the manifest of a complete run beside its model, and return it.

    Raises:
        RefusedError: It did not come to its end; the message says why.
    """
    run_dir = run.job.run_dir
    manifest = scratch_manifest(run, result_after(run_dir, code), vcs_sha)
    (run_dir / MANIFEST).write_text(as_document(manifest), encoding="utf-8")
    (run_dir / MODEL / CARD).write_text(card_of(manifest), encoding="utf-8")
    return manifest


def scratch_manifest(run: PreparedScratch, result: dict[str, Any], vcs_sha: str | None) -> dict[str, Any]:
    """Build the manifest of a model that was made from scratch."""
    recipe = run.job.recipe
    return {
        "manifest_schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "lane": LANE,
        "name": f"scratch-model-{vcs_sha}" if vcs_sha else "scratch-model",
        "vcs_sha": vcs_sha,
        "vox_backend": run.backend,
        "config": str(recipe.config),
        "shape": recipe.shape.as_json(),
        "num_parameters": result["num_parameters"],
        "tokenizer": {"name": "VoxTokenizer", "vocab_size": len(VOCABULARY), "rules": run.contract["tokenizer"]},
        "recipe": {**recipe.model_dump(mode="json"), "learning_rate": recipe.rate},
        "seed": recipe.seed,
        "contract_digest": run.job.contract_digest,
        "train_file": str(run.job.train_path),
        "train_sha256": run.contract["train_sha256"],
        "model_sha256": result["model_sha256"],
        "system_prompt": run.job.system_prompt,
        "libraries": run.contract["libraries"],
        "result": result,
    }


def card_of(manifest: dict[str, Any]) -> str:
    """Write the card of a model, for people and for the Hub."""
    shape, result, validation = manifest["shape"], manifest["result"], manifest["result"]["validation_loss"]
    blocks = f"{shape['num_hidden_layers']} layers, {shape['num_attention_heads']} heads, {shape['hidden_size']} wide"
    rows = [
        ("shape", f"{manifest['config']}: {blocks}, {manifest['num_parameters']:,} values"),
        ("tokenizer", f"VoxTokenizer, {manifest['tokenizer']['vocab_size']} ids"),
        ("rows", f"{result['num_train']} of {result['num_rows']}, longest {result['longest']} tokens"),
        ("steps", f"{result['num_steps']}, {result['trained_tokens']} tokens in {result['seconds']:.0f} s"),
        ("loss", f"{result['train_loss']:.4f} on average while training"),
        ("loss on other files", f"{validation:.4f}" if validation is not None else "not measured"),
        ("train set", f"SHA-256 `{manifest['train_sha256'][:12]}`"),
        ("contract", f"`{manifest['contract_digest'][:12]}`"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    head = "---\nlibrary_name: transformers\ntags: [vox, scratch]\n---\n"
    use = "Load it with `mens_pipeline.training.scratch.auto.load_scratch_model`; it was trained from random weights."
    title = f"# {manifest['name']}\n\nA small model of Vox, made from scratch."
    return f"{head}\n{title}\n\n| what | |\n|---|---|\n{table}\n\n{use}\n"
