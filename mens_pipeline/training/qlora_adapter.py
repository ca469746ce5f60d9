"""A trained adapter as an artifact with manifest and card, made once per contract; a later run may continue it.

A continued run has the same rows, and starts a new schedule from the final adapter of the first run.
"""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.jobs.local import result_after
from mens_pipeline.jobs.protocol import ExitCode, as_document
from mens_pipeline.models.adapter import (
    ADAPTER,
    CARD,
    MANIFEST,
    METHOD,
    SCHEMA_VERSION,
    TELEMETRY,
    TrainingManifest,
)
from mens_pipeline.models.base import Recorded, template_in
from mens_pipeline.models.card import data_sources, model_card
from mens_pipeline.models.chat import format_of
from mens_pipeline.storage.documents import hold_folder
from mens_pipeline.storage.files import copy_folder
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import Helper, Params, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.preflight import library_versions
from mens_pipeline.training.prepare import Prepared, PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.recipe import CONTRACT, PREFLIGHT, Continued

WEIGHTS: Final = f"{ADAPTER}/adapter_model.safetensors"

SomeRun = TypeVar("SomeRun", bound=Prepared[Any])


class TrainingParams(Params):
    """A run: its contract with the hashes of all inputs, its folder, and a function that finishes it."""

    contract: dict[str, Any]
    run_dir: Helper[Path]
    model: Helper[str]
    finish: Helper[Callable[[], dict[str, Any]]]


def write_trained_model(folder: Path, params: TrainingParams) -> dict[str, Any]:
    """Finish a run, and copy its model and documents; its manifest becomes a field of the artifact's manifest."""
    manifest = params.finish()
    copy_folder(params.run_dir / params.model, folder / params.model)
    for name in (CONTRACT, PREFLIGHT, MANIFEST, TELEMETRY):
        shutil.copy2(params.run_dir / name, folder / name)
    return {"training": manifest}


STAGE: Final = Stage(Kind.QLORA_ADAPTER, ("mens_pipeline.training.train",), write_trained_model)


def build_qlora_adapter(  # noqa: PLR0913 - the parts of an adapter and of its record
    run: PreparedRun,
    store: ArtifactStore,
    launch: Callable[[PreparedRun], int],
    vcs_sha: str | None,
    backend: str | None = None,
    *,
    again: bool = False,
) -> tuple[Artifact, bool]:
    """Train an adapter, unless the store has one with the same contract; return it, and whether it was reused.

    `again` trains and replaces it. The folder holds `adapter/` as PEFT reads it, `telemetry.jsonl`, contract, preflight
    and manifest. `RefusedError` if training did not finish; its checkpoints stay in the work folder.
    """
    continues = run.job.continues
    rests_on = (run.job.train_path, *((continues.adapter,) if continues is not None else ()))
    finish = partial(finish_run, run, vcs_sha, backend=backend)
    return build_trained_model(STAGE, run, store, launch, finish, model=ADAPTER, rests_on=rests_on, again=again)


def build_trained_model(  # noqa: PLR0913 - parts of a model
    stage: Stage[TrainingParams],
    run: SomeRun,
    store: ArtifactStore,
    launch: Callable[[SomeRun], int],
    finish: Callable[[int], Recorded],
    *,
    model: str,
    rests_on: Sequence[Path],
    again: bool,
) -> tuple[Artifact, bool]:
    """Build the artifact of a run of either lane, with its folder `model`; return it, and whether it was reused.

    `launch` runs the process of a run and returns its exit code; `finish` turns the exit code into the manifest. With
    `again`, an existing artifact stays until the new one is trained.
    """

    def end() -> dict[str, Any]:
        return finish(ExitCode.DONE if run.is_done else launch(run)).as_json()

    # The contract has the digests, so the same rows from another mix do not train again.
    origins, run_dir = store.holding(*rests_on), run.job.run_dir
    params = TrainingParams(contract=run.contract, run_dir=run_dir, model=model, finish=end, origins=origins)
    with hold_folder(run_dir):  # also before and after its process, and if that runs on another machine
        made, reused = stage.build(store, params, force=again)
    shutil.rmtree(run_dir, ignore_errors=True)
    return made, reused


def finish_run(run: PreparedRun, vcs_sha: str | None, code: int, backend: str | None = None) -> TrainingManifest:
    """Write manifest and card of a run; raise RefusedError for an incomplete one."""
    run_dir = run.job.run_dir
    manifest = training_manifest(run, result_after(run_dir, code), vcs_sha, backend)
    (run_dir / MANIFEST).write_text(as_document(manifest.as_json()), encoding="utf-8")
    card = model_card(manifest, sources=data_sources(manifest), tokenizer_in=run.job.base_path)
    (run_dir / ADAPTER / CARD).write_text(card, encoding="utf-8")
    return manifest


def training_manifest(
    run: PreparedRun, result: dict[str, Any], vcs_sha: str | None, backend: str | None = None
) -> TrainingManifest:
    """Build the manifest of an adapter."""
    base, continues = run.base, run.job.continues
    heldout = run.job.train_path.with_name(HELDOUT)
    recipe = run.job.recipe
    is_packed = recipe.quantization != "bf16"
    document = {
        "manifest_schema_version": SCHEMA_VERSION,
        "backend": METHOD,
        "adapter_method": "qlora" if is_packed else "lora",
        # In the format of upstream's adapter manifest.
        "quant": {
            "base_quant": "nf4" if is_packed else "none",
            "double_quant": is_packed and recipe.bnb_4bit_use_double_quant,
        },
        "tokenizer": "hf",
        "name": f"lora-adapter-{vcs_sha}" if vcs_sha else "lora-adapter",
        "vcs_sha": vcs_sha,
        "vox_backend": backend,
        "base_model": base.as_json(),
        **{name: run.preflight[name] for name in ("recipe", "recipe_origins", "recipe_name", "preset", "domain")},
        "continues": continues and continues.model_dump(mode="json", exclude={"adapter"}),
        "contract_digest": run.job.contract_digest,
        "train_file": str(run.job.train_path),
        "train_sha256": run.contract["train_sha256"],
        "heldout_sha256": digest_of(heldout) if heldout.is_file() else None,
        "system_prompt": run.job.system_prompt,
        "chat_template": format_of(template_in(base.path)).template(),
        "infill_order": run.job.infill_order,
        "n_layers": result["n_layers"],
        "n_heads": result["n_heads"],
        "libraries": library_versions(),
        "result": result,
    }
    return TrainingManifest.model_validate(document)


def continue_from(run: Path) -> Continued:
    """Return the state of a run to continue; raise RefusedError for an incomplete one."""
    manifest = TrainingManifest.read(run / MANIFEST)
    result, before = manifest.result, manifest.continues
    runs = (result,) if before is None else (result, before)
    return Continued(
        adapter=(run / WEIGHTS).resolve(),
        adapter_sha256=digest_of(run / WEIGHTS),
        num_batches=sum(each.num_batches for each in runs),
        num_steps=sum(each.num_steps for each in runs),
        seconds=sum(each.seconds for each in runs),
        infill_order=manifest.infill_order,
    )


def further(resolved: ResolvedRecipe, minutes: float) -> ResolvedRecipe:
    """Return the recipe of a continued run, limited by `minutes` instead of steps."""
    return resolved.change("more", max_minutes=minutes, max_steps=None)
