"""Manifest and card of a run when its process has ended."""

from typing import Any

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.job import RESULT, result_of
from mens_pipeline.training.launch import refuse_failure
from mens_pipeline.training.manifest import training_manifest, write_manifest
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe


def finish_run(
    run: PreparedRun, resolved: ResolvedRecipe, vcs_sha: str | None, code: int, backend: str | None = None
) -> dict[str, Any]:
    """Write the manifest of a complete run beside its adapter, and return it.

    Args:
        run: What was prepared.
        resolved: Its recipe.
        vcs_sha: What the adapter is named after.
        code: How the training process ended.
        backend: What VOX_BACKEND says; None when it says nothing.

    Raises:
        RefusedError: It did not come to its end; the message says why.
    """
    run_dir = run.job.run_dir
    refuse_failure(run_dir, code, "training")
    result = result_of(run_dir)
    if result is None:
        raise RefusedError(f"{run_dir}: the training process left no {RESULT}. Run the same again.")
    manifest = training_manifest(run, resolved, result, vcs_sha, backend)
    write_manifest(run_dir, manifest)
    return manifest
