"""Checks before any weight is loaded: data, lengths, tokenizer, memory, disk, kernels."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from mens_pipeline.errors import RefusedError, how_to_install
from mens_pipeline.jobs.device import Device, is_triton_raising
from mens_pipeline.jobs.environment import own_environment, training_environment
from mens_pipeline.models.adapter import ShownKind
from mens_pipeline.models.base import Base, configuration_of
from mens_pipeline.models.card import format_never_shown
from mens_pipeline.models.chat import Tokenizer, format_for
from mens_pipeline.training.examples import Examples
from mens_pipeline.training.plan import BatchPlan
from mens_pipeline.training.recipe import Recipe

LIBRARIES: Final = ("torch", "transformers", "peft", "trl", "bitsandbytes", "accelerate", "datasets")
"""Libraries whose versions decide the result of a run."""

SCHEMA: Final = "vox.mens.preflight.v0"
LINEAR: Final = "linear_attention"
"""Type of layers in a configuration that have their own kernels."""
_COMPILERS: Final = ("cc", "gcc", "clang")
_NF4_BITS: Final = 4.5
"""Bits of a quantised value, including its share of the scales."""

_ADAM_BYTES: Final = 16
"""Bytes of a trained value in float32: value, gradient, two moments."""

_ACTIVATIONS: Final = 34
"""Bytes of activations per token, layer and unit of width, in 16 bits (Korthikanti et al. 2022, eq. 2)."""

_KEPT_ACTIVATIONS: Final = 2
"""The same for a checkpointed layer, which keeps only its input."""

_LAYERS_ADAPTED: Final = 7
"""Linear layers of a block: four in the attention, three in the feed-forward network."""

_WIDTHS: Final = 3
"""Width of a pair of adapter matrices, relative to the model: one for its input, up to two for its output."""

_SCALES: Final = (
    *("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier"),
    "output_multiplier",
)
"""Fields with which families of models scale the outputs of their head; TRL's loss supports them."""

_SCORED_AT_ONCE: Final = 4096
"""Positions whose logits and gradients are in memory at once, in float32."""

SCORED_ON_CPU: Final = 256
"""The same on a CPU, where kernels launch without delay; with a vocabulary of 151,936, the logits take 156 MB."""

_TILE: Final = 32_768
"""Tokens of the vocabulary that the kernel of TRL scores at once on a GPU."""

_MOST_OF_MEMORY: Final = 0.85
"""Largest share of the memory for an estimate, which is rough; other programs also need memory."""

BESIDE_GB: Final = 2.0
"""GPU memory for generation besides the weights: context, keys, values, states and scores of a batch."""

_CHECKPOINT_COPIES: Final = 4
"""Two checkpoints, one being written, and the adapter itself, each up to the size of adapter and optimizer."""


class MemoryEstimate(NamedTuple):
    """Estimated peak memory of a run in megabytes.

    The base includes embeddings and head, which are never quantised; the adapter includes its optimizer. Activations
    are for one micro-batch, logits for the positions scored at once.
    """

    base: float
    adapter: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(self)

    @property
    def checkpoints(self) -> float:
        """Megabytes on disk for checkpoints and adapter."""
        return self.adapter * _CHECKPOINT_COPIES


_FALLBACK: Final = 98
"""Bytes per unit of value width in linear attention without kernels."""

_FUSED: Final = 28
"""The same with flash-linear-attention, estimated: inputs, outputs, convolution, norm, and a state for 64 tokens."""


def layer_bytes(config: Mapping[str, Any], *, has_kernels: bool) -> int:
    """Estimate the bytes of activations per token of the largest layer, in 16 bits, without its input."""
    text = config.get("text_config", config)
    width, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    kinds = set(text.get("layer_types") or ["full_attention"])
    inner = int(text.get("intermediate_size") or 4 * width)
    if experts := text.get("num_experts_per_tok"):  # a token uses only some experts
        inner = int(text.get("moe_intermediate_size") or inner) * int(experts)
    sizes: list[int] = []
    if LINEAR in kinds:
        values = int(text["linear_num_value_heads"]) * max(text["linear_value_head_dim"], text["linear_key_head_dim"])
        sizes.append(2 * width + (_FUSED if has_kernels else _FALLBACK) * values)
    if kinds - {LINEAR}:
        head = int(text.get("head_dim") or width // heads)
        queries, keys = heads * head, int(text.get("num_key_value_heads") or heads) * head
        family = str(text.get("model_type", ""))
        normed = 4 * (queries + keys) if family.startswith("qwen3") else 0  # in float32
        gate = 4 * queries if family.startswith(("qwen3_5", "qwen3_next")) else 0
        sizes.append(6 * queries + 4 * keys + normed + gate)
    return 8 * inner + 12 * width + max(sizes)


def estimate_memory(
    base: Base, recipe: Recipe, tokens_at_once: int, computed_on: tuple[str, str], layer: int
) -> MemoryEstimate:
    """Estimate the peak memory of a run from sizes alone.

    `tokens_at_once` is the size of the largest micro-batch, padding included; `computed_on` is `cuda`, `mps` or `cpu`,
    and the result of `compute_dtype`; `layer` is the result of `layer_bytes`.
    """
    device, dtype = computed_on
    is_packed = recipe.quantization != "bf16"
    bytes_of_value = 2 if dtype == "bfloat16" else 4
    # A CPU keeps all activations, since checkpoints would cost a fourth of its speed. A GPU keeps the inputs of
    # checkpointed layers, all activations of one of them at a time, and all activations of the other layers.
    every_n = 1 if recipe.checkpoint_every_n_layers is None else recipe.checkpoint_every_n_layers
    num_again = -(-base.num_layers // every_n) if every_n else 0
    kept = _KEPT_ACTIVATIONS * base.hidden_size * num_again + layer * (base.num_layers - num_again + min(1, num_again))
    if device == "cpu":
        kept = _ACTIVATIONS * base.hidden_size * base.num_layers
    logits = min(tokens_at_once, SCORED_ON_CPU if device == "cpu" else _SCORED_AT_ONCE) * base.vocab_size * 4 * 2
    if device == "cuda":  # one tile of scores, in the precision of the model
        logits = min(tokens_at_once, _SCORED_AT_ONCE) * min(base.vocab_size, _TILE) * bytes_of_value
    embeddings = base.vocab_size * base.hidden_size
    values = max(0, base.num_parameters - embeddings)
    adapter = base.num_layers * _LAYERS_ADAPTED * _WIDTHS * base.hidden_size * recipe.lora_r
    # On a CPU, `fuse_adapters` keeps a copy of every quantised layer, or two in eight bits.
    copied = (2 if dtype == "int8" else bytes_of_value) if device == "cpu" else 0
    held = _NF4_BITS / 8 + copied if is_packed else bytes_of_value
    mega = 2**20
    return MemoryEstimate(
        base=(values * held + embeddings * bytes_of_value) / mega,
        adapter=adapter * _ADAM_BYTES / mega,
        activations=tokens_at_once * kept * bytes_of_value / 2 / mega,
        logits=logits / mega,
    )


def fit_memory(recipe: Recipe, base: Base, tokens_at_once: int, device: Device, layer: int) -> Recipe:
    """Choose the quantization and the layers to recompute by the memory of a device, if a recipe leaves them open.

    A GPU holds the base in bf16 if training and generation fit its memory, else in nf4. It then recomputes no layer,
    every second layer or all layers, whichever fits first. A CPU recomputes no layer. `RefusedError` if the recipe
    requests bf16 and the GPU does not compute in it.
    """
    if recipe.quantization == "bf16" and device.kind != "cpu" and not device.has_bfloat16:
        raise RefusedError(f"quantization bf16: {device.name} does not compute in bfloat16. Use quantization=nf4.")

    def fits(found: Recipe) -> bool:
        needed = estimate_memory(base, found, tokens_at_once, (device.kind, compute_dtype(found, device)), layer).total
        return device.kind == "cuda" and needed <= _MOST_OF_MEMORY * 1024 * (device.memory_gb or 0)

    if recipe.quantization is None:
        whole = recipe.model_copy(update={"quantization": "bf16"})
        is_possible = device.has_bfloat16 and recipe.bnb_4bit_compute_dtype != "float32" and fits(whole)
        held = "bf16" if is_possible and fits_dense(device, base.num_parameters, "bfloat16") else "nf4"
        recipe = recipe.model_copy(update={"quantization": held})
    if recipe.checkpoint_every_n_layers is not None:
        return recipe
    ways = [recipe.model_copy(update={"checkpoint_every_n_layers": every_n}) for every_n in (0, 2, 1)]
    return ways[0] if device.kind == "cpu" else next(filter(fits, ways), ways[-1])


def compute_dtype(recipe: Recipe, device: Device) -> str:
    """Return the dtype of computations on a device: `float32`, `bfloat16` or `int8`; refuse int8 except on a CPU."""
    asked = recipe.bnb_4bit_compute_dtype
    if asked == "int8" and device.kind != "cpu":
        raise RefusedError(f"bnb_4bit_compute_dtype is int8, which only a CPU supports, not {device.name}. Use auto.")
    if asked != "auto":
        return asked
    if device.has_bfloat16 or recipe.quantization == "bf16":
        return "bfloat16"
    return "int8" if device.has_int8 else "float32"


def fits_dense(device: Device, num_parameters: int, dtype: str) -> bool:
    """Return whether weights and a batch of completions fit a device; a CPU always has room."""
    weights = num_parameters * (2 if dtype == "bfloat16" else 4) / 2**30
    return device.kind != "cuda" or device.memory_gb is None or weights + BESIDE_GB <= device.memory_gb


def check_tokenizer(tokenizer: Tokenizer, path: Path) -> int:
    """Return the id that ends a turn; refuse a tokenizer that splits a control token of its chat format."""
    chat = format_for(tokenizer)
    ids = {text: tokenizer.encode(text, add_special_tokens=False) for text in chat.markers}
    for text, found in ids.items():
        if len(found) != 1:
            others = "or on the chat format of Llama 3, Gemma or Mistral, with its chat template in the folder"
            advice = f"Choose a base model that was trained on ChatML, such as Qwen or SmolLM2-Instruct, {others}."
            raise RefusedError(f"{path}: {text} is {len(found)} tokens, not one. {advice}")
    return ids[chat.end][0]


def check_examples(examples: Examples, min_rows: int, origins: Mapping[str, str]) -> None:
    """Refuse a train set with too few training rows."""
    if examples.num_lost:
        raise RefusedError(f"some of {examples.seen} rows are neither shown nor left out. Report this bug.")
    if len(examples.train) < min_rows:
        counts = [f"{count} {reason}" for reason, count in examples.dropped.items()]
        fields = [field for reason in examples.dropped for field in reason.settings]
        if num_validation := len(examples.validation):
            counts.append(f"{num_validation} validation")
            fields.append("validation_split_ratio")
        left_out = ", ".join(counts) or "none"
        limits = ", ".join(f"{field} ({origins[field]})" for field in fields)
        advice = f"Change {limits}, or extract more data." if limits else "Extract more data."
        raise RefusedError(f"{len(examples.train)} training rows, {min_rows} needed (left out: {left_out}). {advice}")


def check_logits(base: Base, device: str) -> None:
    """Refuse a model that scales its logits on a CPU, where our loss ignores the scale."""
    config = configuration_of(base.path)
    text = config.get("text_config", config)
    scaled = [field for field in _SCALES if text.get(field) not in {None, 1}]
    if device == "cpu" and scaled:
        advice = "Train it on a GPU, or choose another base model."
        raise RefusedError(f"{base.name}: {', '.join(scaled)} in config.json scales its logits. {advice}")


def check_disk(folder: Path, needed_mb: float) -> None:
    """Refuse a folder, which may not exist yet, without disk space for checkpoints and adapter."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free / 2**20
    if free < needed_mb:
        raise RefusedError(f"{folder}: {free:.0f} MB free, {needed_mb:.0f} MB needed. Make room, or use another disk.")


def preflight_document(  # noqa: PLR0913, PLR0917 - everything that was checked
    contract_digest: str,
    base: Base,
    device: Device,
    recipe: Recipe,
    examples: Examples,
    plan: BatchPlan,
    memory: MemoryEstimate,
) -> dict[str, Any]:
    """Build `training-preflight.json`, in the schema of upstream."""
    notes = []
    available = 1024 * (installed_memory_gb() if device.memory_gb is None else device.memory_gb)
    if memory.total > _MOST_OF_MEMORY * available:
        notes.append(f"training needs about {memory.total:.0f} MB, but the device has {available:.0f} MB")
    kinds = examples.kinds(plan.batches)
    asked = (kind for kind, share in recipe.kind_shares.items() if share)
    missing = sorted(kind for kind in asked if kind not in kinds or not kinds[kind]["rows"])
    if missing:
        notes.append(f"token_shares: no rows of {', '.join(missing)} can train; their share goes to the other kinds")
    if left := format_never_shown({name: ShownKind.model_validate(kind) for name, kind in kinds.items()}):
        advice = "Give them a share (token_shares), or raise max_length, max_steps or max_minutes"
        notes.append(f"no rows are shown of {left}. {advice}")
    if prose := [kind for kind in kinds if kind in examples.prose_kinds and kinds[kind]["rows_shown"]]:
        share = sum(kinds[kind]["share"] for kind in prose)
        notes.append(f"{100 * share:.0f} % of the tokens shown are prose ({', '.join(prose)}), which teaches no Vox")
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
        "memory_mb": {**memory._asdict(), "total": memory.total},
    }


def installed_memory_gb() -> float:
    """Return the main memory of this machine in gigabytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def kernels_found(config: Mapping[str, Any], capability: tuple[int, int]) -> dict[str, bool]:
    """Return which build tools of Triton and which kernels for a base exist, for a GPU of a compute capability."""
    compiler = own_environment().get("CC")
    found = {
        "c_compiler": any(map(shutil.which, (compiler,) if compiler else _COMPILERS)),
        "python_headers": Path(sysconfig.get_path("include"), "Python.h").is_file(),
    }
    if LINEAR in (config.get("text_config", config).get("layer_types") or ()):
        found["triton"] = not is_triton_raising(capability)
        found["flash_linear_attention"] = _can_import("fla.ops.gated_delta_rule")
        found["causal_conv1d"] = find_spec("causal_conv1d") is not None
    return found


@cache
def _can_import(module: str) -> bool:
    """Try to import a module in a separate process: a package that can be found may be incomplete."""
    command = [sys.executable, "-P", "-c", f"import {module}"]
    done = subprocess.run(command, env=training_environment(), capture_output=True, check=False)  # noqa: S603 - our own words
    return done.returncode == 0


def has_linear_kernels(found: Mapping[str, bool]) -> bool:
    """Return whether kernels compute the layers of linear attention, from the result of `kernels_found`."""
    return found.get("flash_linear_attention", False) and found["triton"]


_SLOW: Final = "layers of linear attention run as plain PyTorch, at about half the speed and with five times the memory"
_ADVICE: Final[Mapping[str, str]] = {
    "c_compiler": "no C compiler: Triton, which computes the loss on a GPU, needs one. Install gcc, or set CC",
    "python_headers": "no Python.h: Triton compiles with it. Install the headers of this Python (Debian: python3-dev)",
    "triton": f"Triton 3.4.0 to 3.7.0 on a Hopper GPU: flash-linear-attention would fail, so {_SLOW}. "
    "Install Triton 3.7.1, or flash-qla 0.1.3, which brings tilelang",
    "flash_linear_attention": f"fla.ops.gated_delta_rule cannot be imported: {_SLOW}. {how_to_install('train')}",
    "causal_conv1d": "causal-conv1d is not installed: its convolutions run as plain PyTorch, a little slower",
}


def kernel_notes(found: Mapping[str, bool]) -> list[str]:
    """Return one sentence of advice for each part that `kernels_found` did not find."""
    return [_ADVICE[name] for name, is_there in found.items() if not is_there]


def library_versions() -> dict[str, str]:
    """Return the versions of `LIBRARIES`."""
    return {name: version(name) for name in LIBRARIES}
