"""Tiny models that do not end too soon: one varies its text, one repeats a byte for ever."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mens_pipeline.models.adapter import ADAPTER, MANIFEST, adapter_digest
from mens_pipeline.models.base import describe_base
from mens_pipeline.promotion.history import HistoryEvent, lock_champion, record
from mens_pipeline.storage.kinds import Kind
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.tiny_base import write_tiny_base

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from mens_pipeline.storage.signing import Signing
    from mens_pipeline.storage.store import Artifact, ArtifactStore

_SPREAD = 0.4
"""Of its weights; large enough for attention to decide the next token."""


def write_talkative(folder: Path, tokenizer: "Tokenizer | None" = None) -> Path:
    """A Llama with our chat template, the same random weights each time, and by default a tokenizer of single bytes."""
    import torch
    from transformers import AutoConfig, LlamaForCausalLM

    write_tiny_base(folder, tokenizer)
    config = AutoConfig.from_pretrained(folder)
    config.update({"tie_word_embeddings": False, "initializer_range": _SPREAD})
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write_endless(folder: Path) -> Path:
    """A model that repeats one byte, and has a context so long that its completions outlast every test."""
    write_tiny_base(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1_000_000}))
    return folder


def write_run(folder: Path, base: Path, rank: int = 4, *, is_neutral: bool = False) -> Path:
    """Write the parts of a run that a server reads: an adapter, and the manifest of its training."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(2)
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", init_lora_weights=is_neutral, task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    adapted.save_pretrained(folder / ADAPTER, save_embedding_layers=False)
    described_base = describe_base(str(base), None, base, "folder", None)
    manifest = manifest_about(described_base, system_prompt="You write Vox, in a run.")
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def write_infill_run(folder: Path, base: Path) -> Path:
    """A run trained for infill; its weights are random."""
    run = write_run(folder, base)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["result"]["kinds"] = {"infill": {"tokens_shown": 9, "share": 0.5, "epochs": 1.0}}
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run


def make_champion(store: "ArtifactStore", run: Path, signing: "Signing | None" = None) -> "Artifact":
    """Put a run into a store as its champion, without a gate."""
    digest = adapter_digest(run)

    def write(folder: Path) -> dict[str, Any]:
        shutil.copytree(run, folder, dirs_exist_ok=True)
        if signing is not None:
            signing.sign(folder, Kind.PROMOTED_ADAPTER)
        return {}

    champion, _ = store.build(Kind.PROMOTED_ADAPTER, {"adapter_sha256": digest}, write)
    event = HistoryEvent(
        timestamp_unix=0, action="promote", key=champion.key, previous=None, adapter_sha256=digest, reason="a test"
    )
    with lock_champion(store) as seen:
        record(store, event, champion, seen)
    return champion
