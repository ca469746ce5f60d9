"""What a saved adapter is: recipe, inputs, versions, durations; written beside it, with a card for people."""

from pathlib import Path
from typing import Any, Final

from mens_pipeline.training.contract import library_versions
from mens_pipeline.training.job import ADAPTER, as_document
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.presets import ResolvedRecipe

MANIFEST: Final = "training_manifest.json"
CARD: Final = "README.md"
SCHEMA_VERSION: Final = 5
METHOD: Final = "qlora"


def training_manifest(
    run: PreparedRun, resolved: ResolvedRecipe, result: dict[str, Any], vcs_sha: str | None
) -> dict[str, Any]:
    """The manifest of an adapter.

    Args:
        run: What was prepared.
        resolved: The recipe, and where its values came from.
        result: What the training process left.
        vcs_sha: What the adapter is named after.
    """
    base = run.base
    return {
        "manifest_schema_version": SCHEMA_VERSION,
        "backend": METHOD,
        "tokenizer": "hf",
        "name": f"lora-adapter-{vcs_sha}" if vcs_sha else "lora-adapter",
        "vcs_sha": vcs_sha,
        "base_model": base.as_json(),
        "recipe": resolved.recipe.model_dump(mode="json"),
        "recipe_origins": resolved.origins,
        "preset": resolved.preset,
        "domain": resolved.domain,
        "contract_digest": run.job.contract_digest,
        "train_file": str(run.job.train_path),
        "train_sha256": run.contract["train_sha256"],
        "system_prompt": run.job.system_prompt,
        "n_layers": result["n_layers"],
        "n_heads": result["n_heads"],
        "libraries": library_versions(),
        "result": result,
    }


def write_manifest(run_dir: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a run, and the card of its adapter.

    Args:
        run_dir: The folder of the run.
        manifest: What `training_manifest` gave.
    """
    (run_dir / MANIFEST).write_text(as_document(manifest), encoding="utf-8")
    (run_dir / ADAPTER / CARD).write_text(card_of(manifest), encoding="utf-8")


def card_of(manifest: dict[str, Any]) -> str:
    """The card of an adapter, for people and for the Hub.

    Args:
        manifest: What `training_manifest` gave.
    """
    base, recipe, result = manifest["base_model"], manifest["recipe"], manifest["result"]
    validation = result["validation_loss"]
    rows = [
        ("base model", f"{base['name']}, {base['architecture']}, SHA-256 `{base['sha256'][:12]}`"),
        ("licence of the base", base["licence"] or "not stated"),
        ("method", f"QLoRA: NF4{' with double quantisation' if recipe['bnb_4bit_use_double_quant'] else ''}"),
        ("adapter", f"rank {recipe['lora_r']}, alpha {recipe['lora_alpha']}, on {recipe['target_modules']}"),
        ("rows", f"{result['num_train']} of {result['num_rows']}, longest {result['longest']} tokens"),
        ("updates", f"{result['num_steps']}, {result['trained_tokens']} tokens in {result['seconds']:.0f} s"),
        ("loss", f"{result['train_loss']:.4f} on average while training"),
        ("loss on other files", f"{validation:.4f}" if validation is not None else "not measured"),
        ("train set", f"SHA-256 `{manifest['train_sha256'][:12]}`"),
        ("contract", f"`{manifest['contract_digest'][:12]}`"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    head = f"---\nbase_model: {base['name']}\nlibrary_name: peft\ntags: [vox, qlora]\n---\n"
    use = f"Every request is preceded by the system prompt: {manifest['system_prompt']!r}. The form is ChatML."
    return f"{head}\n# {manifest['name']}\n\nWrites programs in Vox.\n\n| what | |\n|---|---|\n{table}\n\n{use}\n"
