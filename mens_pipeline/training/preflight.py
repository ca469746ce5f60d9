"""Checks before any weight is loaded: data, lengths, tokenizer, memory, disk."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.base import Base, configuration_of
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.training.examples import Examples, NotShown
from mens_pipeline.training.plan import Plan
from mens_pipeline.training.recipe import Recipe

SCHEMA: Final = "vox.mens.preflight.v0"
_NF4_BITS: Final = 4.5
"""Bits of a quantised value with its share of the scales."""

_ADAM_BYTES: Final = 16
"""Bytes of a trained value in float32: itself, its gradient, two moments."""

_ACTIVATIONS: Final = 34
"""Bytes that training keeps for a token, a layer and a unit of width, in 16 bits (Korthikanti et al. 2022, eq. 2)."""

_KEPT_ACTIVATIONS: Final = 2
"""The same where activations are computed again: the input of each layer; one layer at a time needs all of them."""

_LAYERS_ADAPTED: Final = 7
"""Linear layers of a block: four of the attention, three of the network behind it."""

_WIDTHS: Final = 3
"""Width of a pair of adapter matrices in units of the model's: its input, and an output of up to twice that."""

_SCALES: Final = (
    *("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier"),
    "output_multiplier",
)
"""Fields by which families of models scale what their head gives; TRL's own loss knows them."""

_SCORED_AT_ONCE: Final = 4096
"""Positions whose logits are in memory at once, with their gradients, in float32."""

SCORED_ON_CPU: Final = 64
"""The same on a CPU, where no kernel starts slowly: with a vocabulary of 49,152 the logits take 13 MB."""

_TILE: Final = 32_768
"""Tokens of the vocabulary that TRL's kernel scores at once on a GPU."""

_MOST_OF_MEMORY: Final = 0.85
"""The part of a memory beyond which a run is likely not to fit: the estimate is rough, and others need some."""

_CHECKPOINT_COPIES: Final = 4
"""Two checkpoints, one that is being written, and the adapter itself; each no larger than adapter and optimiser."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Megabytes that a run needs at most, roughly.

    Attributes:
        base: Of the quantised base, embeddings and head.
        adapter: Of the adapter with its optimiser.
        activations: Of one micro-batch.
        logits: Of the scored positions.
    """

    base: float
    adapter: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.base + self.adapter + self.activations + self.logits


def estimate_memory(
    base: Base, recipe: Recipe, tokens_at_once: int, computed_on: tuple[str, str], layer: int
) -> MemoryEstimate:
    """Estimate the peak memory of a run from sizes alone.

    Args:
        base: The base model.
        recipe: Rank and sizes.
        tokens_at_once: Of the largest micro-batch, with padding.
        computed_on: The device, `cuda`, `mps` or `cpu`, and what it computes in, `float32` or `bfloat16`.
        layer: Bytes that the largest layer keeps for a token in 16 bits, as `layer_bytes` tells.
    """
    device, dtype = computed_on
    bytes_of_value = 2 if dtype == "bfloat16" else 4
    # The CPU has room to keep activations, and computing them again would cost a fourth of the speed. A GPU keeps the
    # input of each layer, and of one layer at a time all.
    every = base.hidden_size * base.num_layers
    kept = _ACTIVATIONS * every if device == "cpu" else _KEPT_ACTIVATIONS * every + layer
    logits = min(tokens_at_once, SCORED_ON_CPU if device == "cpu" else _SCORED_AT_ONCE) * base.vocab_size * 4 * 2
    if device == "cuda":  # one tile of scores, in the precision of the model
        logits = min(tokens_at_once, _SCORED_AT_ONCE) * min(base.vocab_size, _TILE) * bytes_of_value
    embeddings = base.vocab_size * base.hidden_size
    values = max(0, base.num_values - embeddings)
    adapter = base.num_layers * _LAYERS_ADAPTED * _WIDTHS * base.hidden_size * recipe.lora_r
    # `fuse_adapters` keeps a dense copy of every quantised layer there.
    copied = bytes_of_value if device == "cpu" else 0
    mega = 2**20
    return MemoryEstimate(
        base=(values * (_NF4_BITS / 8 + copied) + embeddings * bytes_of_value) / mega,
        adapter=adapter * _ADAM_BYTES / mega,
        activations=tokens_at_once * kept * bytes_of_value / 2 / mega,
        logits=logits / mega,
    )


def check_tokenizer(ids: Sequence[Sequence[int]], path: Path) -> None:
    """Check that the tokenizer knows the control tokens of ChatML, start and end of a turn, as one id each.

    Raises:
        RefusedError: It does not.
    """
    for text, found in zip((IM_START, IM_END), ids, strict=True):
        if len(found) != 1:
            advice = "Choose a base model that was trained on ChatML, such as Qwen or SmolLM2-Instruct."
            raise RefusedError(f"{path}: {text} is {len(found)} tokens, not one. {advice}")


_LIMITS: Final = {
    NotShown.LOW_RATING: "min_rating",
    NotShown.OTHER_CATEGORY: "category_filter",
    NotShown.OTHER_DIFFICULTY: "max_difficulty",
    NotShown.TOO_LONG: "max_length",
}
"""Why a row is left out -> the field of the recipe that says so."""


def check_examples(examples: Examples, end_of_turn: int, min_rows: int, origins: Mapping[str, str]) -> None:
    """Check that there are enough rows, and that each ends its turn and teaches something.

    Raises:
        RefusedError: One of these does not hold.
    """
    if not examples.adds_up():
        raise RefusedError(f"of {examples.seen} rows some are neither shown nor left out. Report this.")
    if len(examples.train) < min_rows:
        left_out = ", ".join(f"{count} {reason}" for reason, count in examples.not_shown.items()) or "none"
        limits = ", ".join(f"{name} ({origins[name]})" for name in map(_LIMITS.__getitem__, examples.not_shown))
        advice = f"Widen {limits}, or extract more data." if limits else "Extract more data."
        raise RefusedError(f"{len(examples.train)} rows train, {min_rows} are needed (left out: {left_out}). {advice}")
    for example in (*examples.train, *examples.validation):
        if example.completion[-1] != end_of_turn or end_of_turn in example.completion[:-1]:
            raise RefusedError("a row does not end its turn once, at its end. Report this with the train set.")


def check_logits(base: Base, device: str) -> None:
    """Check that the loss of this device is that of the model: on a CPU, logits are taken as the head gives them.

    Raises:
        RefusedError: The model scales its logits, and is to train on a CPU.
    """
    config = configuration_of(base.path)
    text = config.get("text_config", config)
    scaled = [field for field in _SCALES if text.get(field) not in {None, 1}]
    if device == "cpu" and scaled:
        advice = "Train it on a GPU, or choose another base model."
        raise RefusedError(f"{base.name}: {', '.join(scaled)} in config.json changes its logits. {advice}")


def check_disk(folder: Path, needed_mb: float) -> None:
    """Check that checkpoints and adapter have room; their folder need not be there yet.

    Raises:
        RefusedError: They have not.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free / 2**20
    if free < needed_mb:
        raise RefusedError(f"{folder}: {free:.0f} MB are free, {needed_mb:.0f} MB are needed. Make room, or move it.")


def preflight_document(  # noqa: PLR0913, PLR0917 - all that was looked at
    contract_digest: str,
    base: Base,
    device: Device,
    recipe: Recipe,
    examples: Examples,
    plan: Plan,
    memory: MemoryEstimate,
) -> dict[str, Any]:
    """`training-preflight.json`: upstream's schema with what was looked at."""
    notes = []
    available = 1024 * (installed_memory_gb() if device.memory_gb is None else device.memory_gb)
    if memory.total > _MOST_OF_MEMORY * available:
        notes.append(f"about {memory.total:.0f} MB needed, the device has {available:.0f} MB")
    kinds = examples.kinds(plan.batches)
    missing = sorted(kind for kind in recipe.token_shares if kind not in kinds or not kinds[kind]["rows"])
    if missing:
        notes.append(f"token_shares: no row of {', '.join(missing)} trains; their share goes to the other kinds")
    return {
        "schema_version": SCHEMA,
        "contract_digest": contract_digest,
        "execution_kernel": "qlora",
        "notes": notes,
        "base_model": base.as_json(),
        "device": {"kind": device.kind, "name": device.name, "memory_gb": device.memory_gb},
        "data": examples.account(),
        "kinds": kinds,
        "num_steps": plan.num_steps,
        "curriculum_skipped": list(plan.num_skipped),
        "num_micro_batches": len(plan.batches),
        "memory_mb": {
            "base": memory.base,
            "adapter": memory.adapter,
            "activations": memory.activations,
            "logits": memory.logits,
            "total": memory.total,
        },
    }


def installed_memory_gb() -> float:
    """Return gigabytes of memory that this machine has for its CPUs."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def checkpoint_megabytes(memory: MemoryEstimate) -> float:
    """Return megabytes on disk for checkpoints and adapter."""
    return memory.adapter * _CHECKPOINT_COPIES
