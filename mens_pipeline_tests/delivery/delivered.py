"""Runs that are trained on a tiny base, evaluated and promoted, for tests of delivery."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mens_pipeline.delivery.merge import MergeSource, PreparedMerge, choose_prompts, merge_source, prepare_merge
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline.training.qlora_adapter import finish_run
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, promote, scored
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.training.runs import pairs, prepare_fast
from mens_pipeline_tests.training.small_folder import Encoder
from mens_pipeline_tests.training.tiny_base import write_tiny_base

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizers import Tokenizer

    from mens_pipeline.delivery.agreement import Dtype
    from mens_pipeline.jobs.device import Device
    from mens_pipeline.storage.remote import Remote

HELDOUT = "heldout.jsonl"


def trained_run(folder: Path, write_base: "Callable[[Path, Tokenizer], Path]" = write_tiny_base, **fields: Any) -> Path:
    """Return the folder of an adapter of a tiny base whose tokenizer merges bytes as that of SmolLM2 does."""
    base = write_base(folder / "base", Encoder().inner)
    write_jsonl(folder / HELDOUT, pairs(12)[8:])
    run = prepare_fast(base, folder, number=8, **fields)
    code = do_here(run.job.path)
    finish_run(run, "0123abcd", code)
    return folder / "run"


def promoted_run(trained: Path, folder: Path, remote: "Remote | None" = None) -> tuple[Path, ArtifactStore]:
    """Copy a run, and return it with a passing verdict and a store in which it is the champion."""
    run, store = folder / "run", ArtifactStore(folder / "store", remote)
    shutil.copytree(trained, run)
    heldout = digest_of(trained.parent / HELDOUT)
    gate = scored(run, store, evaluated(run, store, heldout_sha256=heldout))
    promote(gate, run, store, replace(PRESENT, heldout=heldout), now=NOW)
    return run, store


def with_manifest(source: MergeSource, **changes: Any) -> MergeSource:
    """Return the same source with other fields in its training manifest."""
    manifest = source.adapter.manifest.model_copy(update=changes)
    return replace(source, adapter=replace(source.adapter, manifest=manifest))


def prepare(  # noqa: PLR0913 - the options of a merge
    run: Path | None,
    store: ArtifactStore,
    device: "Device",
    max_tokens: int = 32,
    *,
    dtype: "Dtype | None" = None,
    heldout: Path | None = None,
    number: int = 4,
) -> PreparedMerge:
    """Prepare to merge the adapter of a run, or the champion, and to compare it by held-out prompts."""
    source = merge_source(run, store)
    conditions = Conditions(Decoding(max_new_tokens=max_tokens), device, store.root / "lock")
    prompts = choose_prompts(source, heldout, store, lambda _text: True, number)
    return prepare_merge(source, prompts, conditions, dtype, store.root / "work")
