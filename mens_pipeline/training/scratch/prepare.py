"""From a recipe and a train set to a job: everything is looked at before anything is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.language.requests import SYSTEM_PROMPT
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.training.devices import Device
from mens_pipeline.training.job import JOB, result_of
from mens_pipeline.training.preflight import check_disk
from mens_pipeline.training.run_dir import claimed, lay_out
from mens_pipeline.training.scratch.data import JsonlDataLoader
from mens_pipeline.training.scratch.job import ScratchJob
from mens_pipeline.training.scratch.order import account_of, lay_down
from mens_pipeline.training.scratch.recipe import ScratchRecipe

STAGE: Final = Stage("scratch_model", ("mens_pipeline.training.scratch.train",), by_content=True)

LIBRARIES: Final = ("torch", "transformers", "accelerate")
"""Whose versions are recorded, and decide what a run gives."""


_NOT_OF_THE_RUN: Final = frozenset(("save_steps", "save_total_limit"))
"""Fields that do not change the model."""

_CHECKPOINT_BYTES: Final = 12
"""Bytes of a value in a checkpoint: itself and two moments, in float32."""


@dataclass(frozen=True, slots=True)
class PreparedScratch:
    """A run that may begin, or whose folder holds its result already; its backend is what VOX_BACKEND says."""

    job: ScratchJob
    job_path: Path
    preflight: dict[str, Any]
    contract: dict[str, Any]
    backend: str | None
    is_done: bool


def prepare_scratch(  # noqa: PLR0913 - all that decides a run
    recipe: ScratchRecipe,
    train_path: Path,
    folder: Path | Callable[[str], Path],
    device: Device,
    *,
    cache: Path,
    min_rows: int,
    backend: str | None = None,
    strict: bool = False,
    is_new: bool = False,
    is_trial: bool = False,
) -> PreparedScratch:
    """Prepare a run as `training.prepare.prepare_run` does; `strict` ends it at a line that is no pair.

    Raises:
        RefusedError: Something is not as it must be, or the folder holds another run.
        SourceNotFoundError: There is no train set.
    """
    loader = JsonlDataLoader(
        train_path,
        max_length=recipe.max_length,
        system_prompt=SYSTEM_PROMPT,
        min_rating=recipe.min_rating,
        strict=strict,
    )
    order = lay_down(loader, recipe)
    if len(order.train) < min_rows:
        others = [*loader.skipped.items(), ("for measuring", len(order.validation))]
        left_out = ", ".join(f"{count} {reason}" for reason, count in others if count) or "none"
        advice = "Extract more data."
        raise RefusedError(f"{len(order.train)} rows train, {min_rows} are needed (left out: {left_out}). {advice}")
    dtype = "bfloat16" if device.has_bfloat16 else "float32"
    contract = {
        "lane": "scratch",
        "recipe": recipe.model_dump(mode="json", exclude=set(_NOT_OF_THE_RUN)) | {"learning_rate": recipe.rate},
        "shape": recipe.shape.as_json(),
        "train_sha256": digest_of(train_path),
        "device": device.kind,
        "compute_dtype": dtype,
        "system_prompt": SYSTEM_PROMPT,
        "tokenizer": code_version("mens_pipeline.language.vox_tokenizer"),
        "trainer": STAGE.code_version,
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    digest = key_of(contract)
    run_dir = claimed(folder, digest, is_new=is_new)
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
        device=device.kind,
        compute_dtype=dtype,
        run_dir=run_dir.resolve(),
        system_prompt=SYSTEM_PROMPT,
        strict=strict,
        contract_digest=digest,
        lock_path=(cache / f"{device.kind}.lock").resolve(),
    )
    if is_trial:
        return PreparedScratch(job, run_dir / JOB, preflight, contract, backend, is_done=False)
    job_path = lay_out(run_dir, job, {"digest": digest, **contract}, preflight, is_new=is_new)
    return PreparedScratch(job, job_path, preflight, contract, backend, result_of(run_dir) is not None)
