"""From a recipe and a train set to a job: everything is looked at before any weight is loaded."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.overlap import trained_heldout
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.training_pair import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import Device, refuse_missing_devices
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.jobs.protocol import JOB, result_of
from mens_pipeline.models.base import Base, configuration_of
from mens_pipeline.models.chat import IM_END, IM_START, FileTokenizer
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL, find_base_model
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.training.examples import make_examples
from mens_pipeline.training.job import Continued, TrainingJob
from mens_pipeline.training.plan import plan_run
from mens_pipeline.training.preflight import (
    check_disk,
    check_examples,
    check_logits,
    check_tokenizer,
    checkpoint_megabytes,
    estimate_memory,
    preflight_document,
)
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.recipe import Recipe
from mens_pipeline.training.run_dir import claimed, lay_out

LIBRARIES: Final = ("torch", "transformers", "peft", "trl", "bitsandbytes", "accelerate", "datasets")
"""Whose versions are recorded, and decide what a run gives."""

STAGE: Final = Stage("qlora_adapter", ("mens_pipeline.training.train",), by_content=True)

_NOT_OF_THE_RUN: Final = frozenset(("devices", "model_name_or_path", "model_revision", "save_steps", "logging_steps"))
"""Fields that do not change the adapter, or are told better by the hash of the base."""


def contract_of(  # noqa: PLR0913, PLR0917 - all that decides a run
    recipe: Recipe,
    train_sha256: str,
    base: Base,
    computed_on: tuple[str, str],
    system: str,
    continues: Continued | None = None,
) -> dict[str, Any]:
    """Return all that decides what a run gives, in JSON types.

    `computed_on` is the device, `cuda`, `mps` or `cpu`, and what it computes in, `float32` or `bfloat16`.
    """
    fields = recipe.model_dump(mode="json", exclude=set(_NOT_OF_THE_RUN))
    return {
        "recipe": fields,
        "train_sha256": train_sha256,
        "base_sha256": base.sha256,
        "device": computed_on[0],
        "compute_dtype": computed_on[1],
        "system_prompt": system,
        "trainer": STAGE.code_version,
        "libraries": library_versions(),
        **({"continues": continues.decisive()} if continues is not None else {}),
        **({"devices": recipe.devices} if _is_split_felt(recipe) else {}),
    }


def _is_split_felt(recipe: Recipe) -> bool:
    """Return whether it changes bits how many processes share a step: the order of sums does, and dropout by each.

    The sum of two is the same either way.
    """
    is_plain_sum = recipe.gradient_accumulation_steps == recipe.devices == 2 and recipe.lora_dropout == 0  # noqa: PLR2004
    return recipe.devices > 1 and not is_plain_sum


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide what a run gives."""
    return {name: version(name) for name in LIBRARIES}


_LINEAR: Final = "linear_attention"
_COMPILERS: Final = ("cc", "gcc", "clang")


def kernels_found() -> dict[str, bool]:
    """Return whether each kernel package, and the C compiler that Triton calls at run time, is there."""
    compiler = own_environment().get("CC")
    return {
        "flash_linear_attention": find_spec("fla") is not None,
        "causal_conv1d": find_spec("causal_conv1d") is not None,
        "c_compiler": any(map(shutil.which, (compiler,) if compiler else _COMPILERS)),
    }


def kernel_notes(config: Mapping[str, Any], found: Mapping[str, bool]) -> list[str]:
    """List what a base needs on a GPU and is not installed, a sentence each."""
    notes = []
    if not found["c_compiler"]:
        notes.append("no C compiler: Triton, which computes the loss on a GPU, needs one. Install gcc, or set CC")
    if _LINEAR not in (config.get("text_config", config).get("layer_types") or ()):
        return notes
    if not found["flash_linear_attention"]:
        slow = (
            "its layers of linear attention run as plain PyTorch, several times slower and with five times the memory"
        )
        notes.append(f'flash-linear-attention is not installed: {slow}. Install it: pip install -e ".[gpu]"')
    if not found["causal_conv1d"]:
        notes.append("causal-conv1d is not installed: its convolutions run as plain PyTorch, a little slower")
    return notes


_FALLBACK: Final = 98
"""Bytes for a unit of width of the values of linear attention, as transformers computes it without kernels."""

_FUSED: Final = 28
"""The same with flash-linear-attention: inputs, outputs, convolution, norm, and a state for 64 tokens. Estimated."""


def layer_bytes(config: Mapping[str, Any], *, has_kernels: bool) -> int:
    """Return bytes that the largest layer keeps for a token in 16 bits, beside its input."""
    text = config.get("text_config", config)
    kinds = set(text.get("layer_types") or ["full_attention"])
    return max(_linear(text, has_kernels=has_kernels) if kind == _LINEAR else _full(text) for kind in kinds)


def _network(text: Mapping[str, Any]) -> int:
    """Return the bytes that the MLP and the inputs of attention and MLP keep for a token: adapters keep a copy each."""
    return 8 * _inner(text) + 18 * int(text["hidden_size"])


def _full(text: Mapping[str, Any]) -> int:
    heads = int(text["num_attention_heads"])
    width = int(text.get("head_dim") or text["hidden_size"] // heads)
    queries, keys = heads * width, int(text.get("num_key_value_heads") or heads) * width
    kind = str(text.get("model_type", ""))
    normed = 4 * (queries + keys) if kind.startswith("qwen3") else 0  # in float32
    gate = 4 * queries if kind.startswith(("qwen3_5", "qwen3_next")) else 0
    return _network(text) + 6 * queries + 4 * keys + normed + gate


def _linear(text: Mapping[str, Any], *, has_kernels: bool) -> int:
    heads = int(text["linear_num_value_heads"])
    width: int = heads * max(text["linear_value_head_dim"], text["linear_key_head_dim"])
    return _network(text) + 2 * int(text["hidden_size"]) + (_FUSED if has_kernels else _FALLBACK) * width


def _inner(text: Mapping[str, Any]) -> int:
    """Return the width of the network; of a mixture, that of the experts that a token sees."""
    inner = int(text.get("intermediate_size") or 4 * text["hidden_size"])
    experts = text.get("num_experts_per_tok")
    return inner if not experts else int(text.get("moe_intermediate_size") or inner) * int(experts)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that may begin, or whose folder holds its result already."""

    job: TrainingJob
    job_path: Path
    base: Base
    preflight: dict[str, Any]
    contract: dict[str, Any]
    is_done: bool


def prepare_run(  # noqa: PLR0913 - all that decides a run
    resolved: ResolvedRecipe,
    train_path: Path,
    folder: Path | Callable[[str], Path],
    device: Device,
    *,
    cache: Path,
    min_rows: int,
    say: Callable[[str], None] = lambda _line: None,
    continues: Continued | None = None,
    is_new: bool = False,
    is_trial: bool = False,
) -> PreparedRun:
    """Look at everything a run needs, and write its job, its contract and its preflight.

    Args:
        resolved: The recipe.
        train_path: The train set.
        folder: Where everything of the run goes, perhaps by the hash of its contract; made when it is not there.
        device: What it trains on.
        cache: Where converted base models and locks are kept.
        min_rows: Rows without which training does not begin.
        say: Takes a line about what is done, for a person.
        continues: The run that this one goes on from, with the same rows; None to begin.
        is_new: Whether a run that the folder holds gives way, once everything else is as it must be.
        is_trial: Whether to look only: nothing is written, and nothing gives way.

    Raises:
        RefusedError: Something is not as it must be, or the folder holds another run.
        SourceNotFoundError: There is no train set.
    """
    recipe = resolved.recipe
    refuse_missing_devices(device, recipe.devices)
    name = recipe.model_name_or_path or (DEFAULT_CUDA_MODEL if device.kind == "cuda" else DEFAULT_CPU_MODEL)
    base = find_base_model(name, recipe.model_revision, cache / "base_models", say)
    tokenizer = FileTokenizer(base.path)
    markers = [tokenizer.encode(text, add_special_tokens=False) for text in (IM_START, IM_END)]
    check_tokenizer(markers, base.path)
    check_logits(base, device.kind)
    examples = make_examples(read_pairs(train_path), recipe, tokenizer, SYSTEM_PROMPT)
    check_examples(examples, markers[1][0], min_rows, resolved.origins)
    plan = plan_run(examples.train, recipe, continues)
    num_shown = len(examples.train) - min(plan.num_skipped)
    if num_shown < min_rows:
        advice = "Raise curriculum_max_difficulty, or extract more data."
        raise RefusedError(f"the curriculum shows {num_shown} rows, {min_rows} are needed. {advice}")
    largest = max(len(batch) * max(len(examples.train[row]) for row in batch) for batch in plan.batches)
    own = "bfloat16" if device.has_bfloat16 else "float32"
    dtype = own if recipe.bnb_4bit_compute_dtype == "auto" else recipe.bnb_4bit_compute_dtype
    configuration, found_kernels = configuration_of(base.path), kernels_found()
    layer = layer_bytes(configuration, has_kernels=found_kernels["flash_linear_attention"])
    memory = estimate_memory(base, recipe, largest, (device.kind, dtype), layer)
    contract = contract_of(recipe, digest_of(train_path), base, (device.kind, dtype), SYSTEM_PROMPT, continues)
    digest = key_of(contract)
    run_dir = claimed(folder, digest, is_new=is_new)
    check_disk(run_dir, checkpoint_megabytes(memory))
    preflight = preflight_document(digest, base, device, recipe, examples, plan, memory) | _chosen(resolved)
    if device.kind == "cuda":
        preflight["kernels"] = found_kernels
        preflight["notes"] += kernel_notes(configuration, found_kernels)
    heldout = train_path.with_name(HELDOUT)
    if heldout.is_file() and (found := trained_heldout(heldout, train_path)) is not None:
        # The adapter may still be judged by a benchmark; by these pairs evaluation refuses to judge it.
        preflight["notes"].append(found)
    job = TrainingJob(
        recipe=recipe,
        train_path=train_path.resolve(),
        base_path=base.path.resolve(),
        base_name=base.name,
        base_revision=base.revision if base.origin in {"cache", "hub"} else None,
        device=device.kind,
        compute_dtype=dtype,
        run_dir=run_dir.resolve(),
        system_prompt=SYSTEM_PROMPT,
        contract_digest=digest,
        continues=continues,
        lock_path=(cache / f"{device.kind}.lock").resolve(),
    )
    if is_trial:
        return PreparedRun(job, run_dir / JOB, base, preflight, contract, is_done=False)
    job_path = lay_out(run_dir, job, {"digest": digest, **contract}, preflight, is_new=is_new)
    return PreparedRun(job, job_path, base, preflight, contract, result_of(run_dir) is not None)


def _chosen(resolved: ResolvedRecipe) -> dict[str, Any]:
    """Return the recipe, and where its values came from."""
    return {
        "preset": resolved.preset,
        "domain": resolved.domain,
        "recipe": resolved.recipe.model_dump(mode="json"),
        "recipe_origins": resolved.origins,
    }
