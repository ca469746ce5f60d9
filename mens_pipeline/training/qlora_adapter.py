"""A trained adapter as an artifact with its manifest and card: trained once for one contract, and perhaps further.

A run that goes on has the same rows and rates, from the adapter it had, up and down once more.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.local import result_after
from mens_pipeline.jobs.progress import FILE
from mens_pipeline.jobs.protocol import ExitCode, as_document
from mens_pipeline.models.adapter import ADAPTER, CARD, MANIFEST, METHOD, SCHEMA_VERSION, TrainingManifest
from mens_pipeline.models.card import data_sources, model_card
from mens_pipeline.models.chat import opening_of, template_behind, template_in
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.job import CONTRACT, PREFLIGHT, Continued
from mens_pipeline.training.prepare import STAGE, PreparedRun, library_versions
from mens_pipeline.training.presets import ResolvedRecipe

KIND: Final = STAGE.kind
WEIGHTS: Final = f"{ADAPTER}/adapter_model.safetensors"
_ORIGIN: Final = "more"


def build_qlora_adapter(  # noqa: PLR0913, PLR0917 - what an adapter is made of and recorded with
    run: PreparedRun,
    resolved: ResolvedRecipe,
    store: ArtifactStore,
    launch: Callable[[PreparedRun], int],
    vcs_sha: str | None,
    backend: str | None = None,
    *,
    anew: bool = False,
) -> tuple[Artifact, bool]:
    """Train an adapter, unless the very same was trained before.

    With `anew` it is trained all the same; what is there stays until the new one is.

    Returns:
        The adapter, and whether it was reused. The folder holds `adapter/` as PEFT reads it, `telemetry.jsonl`,
        contract, preflight and manifest.

    Raises:
        RefusedError: Training did not come to its end; what it has reached stays in the work folder.
        ConfigurationError: The store cannot be written.
    """

    def finished() -> dict[str, Any]:
        return finish_run(run, resolved, vcs_sha, ExitCode.DONE if run.is_done else launch(run), backend).as_json()

    continues = run.job.continues
    parents = store.holding(run.job.train_path, *((continues.adapter,) if continues is not None else ()))
    made = partial(kept_of, run.job.run_dir, ADAPTER, finished)
    adapter, reused = STAGE.build(store, parents, {"contract": run.contract}, made, force=anew)
    shutil.rmtree(run.job.run_dir, ignore_errors=True)
    return adapter, reused


def kept_of(run_dir: Path, model: str, finish: Callable[[], dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Finish a run, copy its model and documents into the folder of an artifact, and return what its manifest says."""
    manifest = finish()
    shutil.copytree(run_dir / model, folder / model)
    for name in (CONTRACT, PREFLIGHT, MANIFEST, FILE):
        shutil.copy2(run_dir / name, folder / name)
    return {"training": manifest}


def finish_run(
    run: PreparedRun, resolved: ResolvedRecipe, vcs_sha: str | None, code: int, backend: str | None = None
) -> TrainingManifest:
    """Write manifest and card of a complete run beside its adapter, and return the manifest.

    Raises:
        RefusedError: It did not come to its end; the message says why.
    """
    run_dir = run.job.run_dir
    manifest = training_manifest(run, resolved, result_after(run_dir, code), vcs_sha, backend)
    (run_dir / MANIFEST).write_text(as_document(manifest.as_json()), encoding="utf-8")
    card = model_card(manifest, sources=data_sources(manifest))
    (run_dir / ADAPTER / CARD).write_text(card, encoding="utf-8")
    return manifest


def training_manifest(
    run: PreparedRun, resolved: ResolvedRecipe, result: dict[str, Any], vcs_sha: str | None, backend: str | None = None
) -> TrainingManifest:
    """Build the manifest of an adapter."""
    base = run.base
    heldout = run.job.train_path.with_name(HELDOUT)
    document = {
        "manifest_schema_version": SCHEMA_VERSION,
        "backend": METHOD,
        "tokenizer": "hf",
        "name": f"lora-adapter-{vcs_sha}" if vcs_sha else "lora-adapter",
        "vcs_sha": vcs_sha,
        "vox_backend": backend,
        "base_model": base.as_json(),
        "recipe": resolved.recipe.model_dump(mode="json"),
        "recipe_origins": resolved.origins,
        "preset": resolved.preset,
        "domain": resolved.domain,
        "continues": run.job.continues.as_json() if run.job.continues is not None else None,
        "contract_digest": run.job.contract_digest,
        "train_file": str(run.job.train_path),
        "train_sha256": run.contract["train_sha256"],
        "heldout_sha256": digest_of(heldout) if heldout.is_file() else None,
        "system_prompt": run.job.system_prompt,
        "chat_template": template_behind(opening_of(template_in(base.path))),
        "n_layers": result["n_layers"],
        "n_heads": result["n_heads"],
        "libraries": library_versions(),
        "result": result,
    }
    return TrainingManifest.model_validate(document)


def continue_from(run: Path) -> Continued:
    """Return where a complete run stands.

    Raises:
        RefusedError: It is not complete, or of a version that did not count what it showed.
    """
    manifest = TrainingManifest.read(run / MANIFEST)
    result, before = manifest.result, manifest.continues
    if result.num_batches is None:
        raise RefusedError(f"{run / MANIFEST}: result.num_batches is missing. Train the run anew, then go on.")
    return Continued(
        adapter=(run / WEIGHTS).resolve(),
        adapter_sha256=digest_of(run / WEIGHTS),
        num_batches=result.num_batches + (before.num_batches if before is not None else 0),
        num_steps=result.num_steps + (before.num_steps if before is not None else 0),
        seconds=result.seconds + (before.seconds if before is not None else 0.0),
    )


def further(resolved: ResolvedRecipe, minutes: float) -> ResolvedRecipe:
    """Return the recipe of what comes after a run: its time is `minutes`, and steps are no longer limited."""
    recipe = resolved.recipe.model_copy(update={"max_minutes": minutes, "max_steps": None})
    return replace(resolved, recipe=recipe, origins={**resolved.origins, "max_minutes": _ORIGIN, "max_steps": _ORIGIN})
