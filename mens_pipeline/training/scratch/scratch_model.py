"""A model from scratch as an artifact: trained once for one contract, taken up where it was interrupted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.job import CONTRACT, PREFLIGHT, ExitCode
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.scratch.finish import KIND, finish_scratch
from mens_pipeline.training.scratch.job import MODEL
from mens_pipeline.training.scratch.prepare import STAGE, PreparedScratch
from mens_pipeline.training.telemetry_log import FILE

_KEPT: Final = (CONTRACT, PREFLIGHT, MANIFEST, FILE)


def scratch_folder(store: ArtifactStore, digest: str) -> Path:
    """Return the working folder of a run; the same for the same contract, so that a retry finds its checkpoints.

    Args:
        store: Where models are kept.
        digest: The contract as a hash.
    """
    return store.root / KIND / f".work-{digest}"


def build_scratch_model(
    run: PreparedScratch,
    store: ArtifactStore,
    launch: Callable[[PreparedScratch], int],
    vcs_sha: str | None,
    *,
    anew: bool = False,
) -> tuple[Artifact, bool]:
    """Train a model from scratch, unless the very same was trained before.

    Args:
        run: What was prepared, in its work folder.
        store: Where models are kept.
        launch: Runs the training process and returns its exit code.
        vcs_sha: What the model is named after.
        anew: Train although the very same was trained before; what is there stays until the new one is.

    Returns:
        The model, and whether it was reused. The folder holds `model/` as Hugging Face reads it, `telemetry.jsonl`,
        contract, preflight and manifest.

    Raises:
        RefusedError: Training did not come to its end; what it has reached stays in the work folder.
        ConfigurationError: The store cannot be written.
    """
    run_dir = run.job.run_dir

    def write(folder: Path) -> dict[str, Any]:
        code = ExitCode.DONE if run.is_done else launch(run)
        manifest = finish_scratch(run, vcs_sha, code)
        shutil.copytree(run_dir / MODEL, folder / MODEL)
        for name in _KEPT:
            shutil.copy2(run_dir / name, folder / name)
        return {"training": manifest}

    parents = store.holding(run.job.train_path)
    model, reused = STAGE.build(store, parents, {"contract": run.contract}, write, force=anew)
    shutil.rmtree(run_dir, ignore_errors=True)
    return model, reused
