"""A trained adapter as an artifact: trained once for one contract, taken up where it was interrupted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.contract import STAGE
from mens_pipeline.training.job import ADAPTER, CONTRACT, PREFLIGHT
from mens_pipeline.training.manifest import MANIFEST, finish_run
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.telemetry_log import FILE

KIND: Final = STAGE.kind
WEIGHTS: Final = f"{ADAPTER}/adapter_model.safetensors"
_KEPT: Final = (CONTRACT, PREFLIGHT, MANIFEST, FILE)


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
    run_dir = run.job.run_dir

    def write(folder: Path) -> dict[str, Any]:
        code = 0 if run.is_done else launch(run)
        manifest = finish_run(run, resolved, vcs_sha, code, backend)
        shutil.copytree(run_dir / ADAPTER, folder / ADAPTER)
        for name in _KEPT:
            shutil.copy2(run_dir / name, folder / name)
        return {"training": manifest}

    continues = run.job.continues
    parents = store.holding(run.job.train_path, *((continues.adapter,) if continues is not None else ()))
    adapter, reused = STAGE.build(store, parents, {"contract": run.contract}, write, force=anew)
    shutil.rmtree(run_dir, ignore_errors=True)
    return adapter, reused
