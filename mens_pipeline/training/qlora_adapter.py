"""A trained adapter as an artifact: trained once for one contract, and perhaps further after its end.

A run that goes on has the same rows and rates, from the adapter it had, up and down once more.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.contract import STAGE
from mens_pipeline.training.job import ADAPTER, CONTRACT, PREFLIGHT, Continued, ExitCode
from mens_pipeline.training.manifest import MANIFEST, finish_run
from mens_pipeline.training.manifest_file import read_manifest
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.telemetry_log import FILE

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
        return finish_run(run, resolved, vcs_sha, ExitCode.DONE if run.is_done else launch(run), backend)

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


def continued(run: Path) -> Continued:
    """Return where a complete run stands.

    Raises:
        RefusedError: It is not complete, or of a version that did not count what it showed.
    """
    manifest = read_manifest(run / MANIFEST)
    result, before = manifest["result"], manifest.get("continues") or {}
    if "num_batches" not in result:
        raise RefusedError(f"{run / MANIFEST}: result.num_batches is missing. Train the run anew, then go on.")
    return Continued(
        adapter=(run / WEIGHTS).resolve(),
        adapter_sha256=digest_of(run / WEIGHTS),
        num_batches=before.get("num_batches", 0) + result["num_batches"],
        num_steps=before.get("num_steps", 0) + result["num_steps"],
        seconds=before.get("seconds", 0.0) + result["seconds"],
    )


def further(resolved: ResolvedRecipe, minutes: float) -> ResolvedRecipe:
    """Return the recipe of what comes after a run: its time is `minutes`, and steps are no longer limited."""
    recipe = resolved.recipe.model_copy(update={"max_minutes": minutes, "max_steps": None})
    return replace(resolved, recipe=recipe, origins={**resolved.origins, "max_minutes": _ORIGIN, "max_steps": _ORIGIN})
