"""Manifest of a saved adapter: recipe, inputs, versions, durations; written beside it, with a model card."""

import json
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mix_files import REPORT_SUFFIX
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.chat import opening_of, template_behind
from mens_pipeline.training.contract import library_versions
from mens_pipeline.training.job import ADAPTER, as_document
from mens_pipeline.training.launch import result_after
from mens_pipeline.training.model_card import DataSource, model_card
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.tokenizer_file import template_in

MANIFEST: Final = "training_manifest.json"
CARD: Final = "README.md"
SCHEMA_VERSION: Final = 6
METHOD: Final = "qlora"


def training_manifest(
    run: PreparedRun, resolved: ResolvedRecipe, result: dict[str, Any], vcs_sha: str | None, backend: str | None = None
) -> dict[str, Any]:
    """Build the manifest of an adapter."""
    base = run.base
    heldout = run.job.train_path.with_name(HELDOUT)
    return {
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


def finish_run(
    run: PreparedRun, resolved: ResolvedRecipe, vcs_sha: str | None, code: int, backend: str | None = None
) -> dict[str, Any]:
    """Write manifest and card of a complete run beside its adapter, and return the manifest.

    Raises:
        RefusedError: It did not come to its end; the message says why.
    """
    run_dir = run.job.run_dir
    manifest = training_manifest(run, resolved, result_after(run_dir, code), vcs_sha, backend)
    (run_dir / MANIFEST).write_text(as_document(manifest), encoding="utf-8")
    card = model_card(manifest, sources=data_sources(manifest))
    (run_dir / ADAPTER / CARD).write_text(card, encoding="utf-8")
    return manifest


def data_sources(manifest: dict[str, Any]) -> tuple[DataSource, ...]:
    """Return what the train set of an adapter was made of; empty when that is not on record beside that very set."""
    train_file = Path(manifest["train_file"])
    report = train_file.with_suffix(REPORT_SUFFIX)
    if not (train_file.is_file() and report.is_file()) or digest_of(train_file) != manifest["train_sha256"]:
        return ()
    sources = json.loads(report.read_text(encoding="utf-8"))["sources"]
    used = (source for source in sources if source["emitted_lines"])
    return tuple(DataSource(s["path"], s["distinct_lines"], s["share_of_output"]) for s in used)
