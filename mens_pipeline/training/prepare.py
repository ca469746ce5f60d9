"""Check everything that a run needs, and write its job into a folder."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from mens_pipeline.corpus.curate.heldout_split import HELDOUT, trained_heldout
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import Device, refuse_missing_devices
from mens_pipeline.jobs.protocol import JOB, as_document, read_result
from mens_pipeline.models.adapter import refuse_links
from mens_pipeline.models.base import Base, FileTokenizer, configuration_of
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL, find_base_model
from mens_pipeline.models.infill import choose_order
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.jsonl import open_rows, write_text
from mens_pipeline.storage.store import ArtifactStore, digest_of, key_of
from mens_pipeline.training.examples import make_examples, plan_examples
from mens_pipeline.training.plan import BatchPlan
from mens_pipeline.training.preflight import (
    check_disk,
    check_examples,
    check_logits,
    check_tokenizer,
    compute_dtype,
    estimate_memory,
    fit_memory,
    has_linear_kernels,
    kernel_notes,
    kernels_found,
    layer_bytes,
    library_versions,
    preflight_document,
)
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.recipe import BY_MEMORY, CONTRACT, PREFLIGHT, CommonJob, Continued, Recipe, TrainingJob
from mens_pipeline.training.train_rows import Encoding, Shards, encode_train_set

_NOT_OF_THE_RUN: Final = frozenset(
    ("devices", "model_name_or_path", "model_revision", "save_steps", "logging_steps", "checkpoint_every_n_layers")
)
"""Fields that do not change the adapter, or that the hash of the base replaces."""

_OF_THE_BEGINNING: Final = ("adapter_sha256", "num_batches")
"""Fields of an earlier run that decide the result of the next run."""


def build_contract(  # noqa: PLR0913, PLR0917 - all inputs of a run
    recipe: Recipe,
    train_sha256: str,
    base: Base,
    computed_on: tuple[str, str],
    system: str,
    continues: Continued | None = None,
) -> dict[str, Any]:
    """Return everything that decides the result of a run, in JSON types; `computed_on` is device and precision."""
    # The number of processes changes dropout and the order of sums, and so the bits; a sum of two has only one order.
    alone = recipe.model_copy(update={"devices": 1}).accumulation
    is_plain_sum = alone == recipe.devices == 2 and recipe.lora_dropout == 0  # noqa: PLR2004
    is_split_felt = recipe.devices > 1 and not is_plain_sum
    return {
        "recipe": recipe.model_dump(mode="json", exclude=set(_NOT_OF_THE_RUN)),
        "train_sha256": train_sha256,
        "base_sha256": base.sha256,
        "device": computed_on[0],
        "compute_dtype": computed_on[1],
        "system_prompt": system,
        "trainer": code_version("mens_pipeline.training.train"),
        "libraries": library_versions(),
        **({"continues": continues.model_dump(include=set(_OF_THE_BEGINNING))} if continues is not None else {}),
        **({"devices": recipe.devices} if is_split_felt else {}),
    }


SomeJob = TypeVar("SomeJob", bound=CommonJob)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[SomeJob]):
    """A checked run of either lane; `is_done` if its folder already holds its result."""

    job: SomeJob
    preflight: dict[str, Any]
    contract: dict[str, Any]
    is_done: bool


@dataclass(frozen=True, slots=True)
class PreparedRun(Prepared[TrainingJob]):
    """A run of QLoRA."""

    base: Base


def prepare_run(  # noqa: PLR0913 - all inputs of a run
    resolved: ResolvedRecipe,
    train_path: Path,
    folder: Path | Callable[[str], Path],
    device: Device,
    *,
    cache: Path,
    min_rows: int,
    log_line: Callable[[str], None] = lambda _line: None,
    continues: Continued | None = None,
    is_new: bool = False,
    is_trial: bool = False,
) -> PreparedRun:
    """Check everything that a run needs, and write its job, contract and preflight.

    `folder` is the folder of the run, or a function that returns it for the hash of the contract. `cache` holds
    converted base models and locks. `min_rows` is the minimum number of training rows. `continues` is the run to
    continue, on the same rows; `is_new` replaces a run in the folder, once all checks have passed; `is_trial` only
    checks and writes nothing. `RefusedError` if a check failed, or the folder holds another run.
    """
    recipe = resolved.recipe
    refuse_missing_devices(device, recipe.devices)
    with open_rows(train_path):  # before a base is downloaded for it
        pass
    name = recipe.model_name_or_path or (DEFAULT_CUDA_MODEL if device.kind == "cuda" else DEFAULT_CPU_MODEL)
    base = find_base_model(name, recipe.model_revision, cache / "base_models", log_line)
    check_tokenizer(tokenizer := FileTokenizer(base.path), base.path)
    check_logits(base, device.kind)
    train_sha256 = digest_of(train_path)
    order = choose_order(tokenizer) if continues is None else continues.infill_order
    encoding = Encoding(train_path, base.path, SYSTEM_PROMPT, recipe.infill_window, order)
    rows_path = encode_train_set(encoding, train_sha256, cache, log_line)
    examples = make_examples(Shards(encoding.paths(rows_path)), recipe)
    check_examples(examples, min_rows, resolved.origins)
    plan = plan_examples(rows_path, examples.columns, recipe, continues)
    _check_plan(plan, len(examples.train), min_rows, recipe)
    largest = int(plan.batches.padded_tokens(examples.columns.lengths).max())
    configuration = configuration_of(base.path)
    found_kernels = kernels_found(configuration, device.capability) if device.kind == "cuda" else {}
    layer = layer_bytes(configuration, has_kernels=has_linear_kernels(found_kernels))
    fitted = fit_memory(recipe, base, max(largest, recipe.tokens_at_once or 0), device, layer)
    chosen = {field: getattr(fitted, field) for field in BY_MEMORY if getattr(recipe, field) is None}
    resolved = resolved.change(f"device {device.kind}", **chosen)
    recipe = resolved.recipe
    dtype = compute_dtype(recipe, device)
    memory = estimate_memory(base, recipe, largest, (device.kind, dtype), layer)
    contract = build_contract(recipe, train_sha256, base, (device.kind, dtype), SYSTEM_PROMPT, continues)
    digest = key_of(contract)
    run_dir = claim_folder(folder, digest, memory.checkpoints, is_new=is_new)
    preflight = preflight_document(digest, base, device, recipe, examples, plan, memory) | resolved.as_json()
    if device.kind == "cuda":
        preflight["kernels"] = found_kernels
        preflight["notes"] += kernel_notes(found_kernels)
    heldout = train_path.with_name(HELDOUT)
    if heldout.is_file() and (found := _trained_heldout(heldout, train_path, rows_path)) is not None:
        # A benchmark may still evaluate the adapter, but evaluation refuses it on these pairs.
        preflight["notes"].append(found)
    job = TrainingJob(
        recipe=recipe,
        train_path=train_path.resolve(),
        rows_path=rows_path.resolve(),
        base_path=base.path.resolve(),
        base_name=base.name,
        base_revision=base.revision if base.origin in {"cache", "hub"} else None,
        device=device.kind,
        compute_dtype=dtype,
        run_dir=run_dir.resolve(),
        system_prompt=SYSTEM_PROMPT,
        infill_order=order,
        contract_digest=digest,
        continues=continues,
        lock_path=device.lock_in(cache).resolve(),
    )
    is_done = not is_trial and lay_out(job, contract, preflight, is_new=is_new)
    return PreparedRun(job, preflight, contract, is_done, base)


def _check_plan(plan: BatchPlan, num_rows: int, min_rows: int, recipe: Recipe) -> None:
    num_shown = num_rows - min(plan.num_skipped)
    if num_shown < min_rows:
        advice = "Raise curriculum_max_difficulty, or extract more data."
        raise RefusedError(f"the curriculum shows {num_shown} rows, {min_rows} are needed. {advice}")
    if not len(plan.batches):
        shares = ", ".join(f"{kind} {share:g}" for kind, share in recipe.kind_shares.items())
        advice = "Give a share to a kind of rows that the train set has (token_shares, infill_share)."
        raise RefusedError(f"the shares of the kinds ({shares}) leave no rows to train on. {advice}")


def _trained_heldout(heldout: Path, train_path: Path, rows_path: Path) -> str | None:
    """Return the result of `trained_heldout`, which reads all rows, and cache it with the encoded rows."""
    code = code_version("mens_pipeline.corpus.curate.heldout_split:trained_heldout")
    files = {"heldout": digest_of(heldout), "paths": [str(heldout), str(train_path)]}
    kept = rows_path / f"heldout-{key_of({**files, 'code': code})}.json"
    if not kept.is_file():
        write_text(kept, json.dumps(trained_heldout(heldout, train_path)))
    found: str | None = json.loads(kept.read_text(encoding="utf-8"))
    return found


def by_id(digest: str) -> Path:
    """Return the default folder of a run, from the digest of its contract."""
    return Path("runs") / digest[:12]


def work_folder(store: ArtifactStore, kind: str, digest: str) -> Path:
    """Return the folder of a run in the graph, the same for the same contract, so that a retry resumes."""
    return store.root / kind / f".work-{digest}"


def point_latest(run_dir: Path) -> None:
    """Point the link `latest` next to a run at it; raise RefusedError if a folder has that name."""
    latest = run_dir.with_name("latest")
    if latest.is_dir() and not latest.is_symlink():
        raise RefusedError(f"{latest}: a folder, but this name is for the link to the newest run. Rename the folder.")
    temporary = latest.with_name(f".latest.{os.getpid()}")
    temporary.symlink_to(run_dir.name)
    temporary.replace(latest)


def claim_folder(folder: Path | Callable[[str], Path], digest: str, needed_mb: float, *, is_new: bool) -> Path:
    """Return the folder of a run; if `folder` is a function, from the digest of the contract.

    `RefusedError` if it holds a link, or another run (unless `is_new`), or its disk has too few megabytes free.
    """
    run_dir = folder if isinstance(folder, Path) else folder(digest)
    if run_dir.is_symlink():  # `runs/latest`: a new run may replace the one that it names
        run_dir = run_dir.resolve()
    refuse_links(run_dir)
    path = run_dir / CONTRACT
    if path.is_file() and not is_new:
        advice = "Name another --output-dir, or start over with --force-restart."
        try:
            found = str(json.loads(path.read_text(encoding="utf-8"))["digest"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise RefusedError(f"{path}: the run's digest is unreadable ({type(error).__name__}). {advice}") from error
        if found != digest:
            which = f"contract {found[:12]}, expected {digest[:12]}"
            raise RefusedError(f"{run_dir}: holds another run ({which}). {advice}")
    check_disk(run_dir, needed_mb)
    return run_dir


def lay_out(job: CommonJob, contract: dict[str, Any], preflight: dict[str, Any], *, is_new: bool) -> bool:
    """Write the job of a training process, its contract and its preflight; return whether the run is complete."""
    run_dir = job.run_dir
    if is_new and (run_dir / JOB).is_file():
        shutil.rmtree(run_dir)
    write_text(run_dir / CONTRACT, as_document({"digest": job.contract_digest, **contract}))
    write_text(run_dir / PREFLIGHT, as_document(preflight))
    write_text(run_dir / JOB, job.model_dump_json(indent=2) + "\n")
    return read_result(run_dir) is not None
