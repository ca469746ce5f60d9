"""A run that goes on after its end: the same rows and rates, from the adapter it had, up and down once more."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.job import ADAPTER, Continued
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.manifest_file import read_manifest
from mens_pipeline.training.presets import ResolvedRecipe

_WEIGHTS: Final = "adapter_model.safetensors"
_ORIGIN: Final = "more"


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
        adapter=(run / ADAPTER / _WEIGHTS).resolve(),
        adapter_sha256=digest_of(run / ADAPTER / _WEIGHTS),
        num_batches=before.get("num_batches", 0) + result["num_batches"],
        num_steps=before.get("num_steps", 0) + result["num_steps"],
        seconds=before.get("seconds", 0.0) + result["seconds"],
    )


def further(resolved: ResolvedRecipe, minutes: float) -> ResolvedRecipe:
    """Return the recipe of what comes after a run: its time is `minutes`, and steps are no longer limited."""
    recipe = resolved.recipe.model_copy(update={"max_minutes": minutes, "max_steps": None})
    return replace(resolved, recipe=recipe, origins={**resolved.origins, "max_minutes": _ORIGIN, "max_steps": _ORIGIN})
