"""A base model, in four bits or bfloat16, with an adapter to train. Only a training process imports this."""

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import leave_out_kernels
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.recipe import Continued, Recipe

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig, PeftModel
    from transformers import PreTrainedModel

_HEAD: Final = "lm_head"
_HASHED_BYTES: Final = 8192


class Checksums(NamedTuple):
    """Checksums of all frozen values and of each adapter matrix, by name; they detect accidents, not attacks."""

    frozen_sha256: str
    trained: dict[str, bytes]


def load_base(path: Path, recipe: Recipe, device: str | int, compute_dtype: "torch.dtype") -> "PreTrainedModel":
    """Load the base, in NF4 except for its head, or whole in `compute_dtype` if the recipe requests bf16.

    If several processes train, the device is the number of a GPU. `RefusedError` if no layer can be quantised.
    """
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    leave_out_kernels(device)
    is_packed = recipe.quantization != "bf16"
    packed = {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": recipe.bnb_4bit_use_double_quant,
        "bnb_4bit_compute_dtype": compute_dtype,
    }
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        path,
        quantization_config=BitsAndBytesConfig(**packed) if is_packed else None,
        dtype=compute_dtype,
        attn_implementation="sdpa",
        use_safetensors=True,
        trust_remote_code=False,
        device_map={"": device},
    )
    if is_packed and not _four_bit_layers(model):
        raise RefusedError(f"{path}: no layer could be quantised to four bits. Choose another base model.")
    return model


def lora_config(recipe: Recipe, model: "PreTrainedModel") -> "LoraConfig":
    """Build the LoRA configuration of a recipe; raise RefusedError for named layers that the base lacks."""
    from peft import LoraConfig

    targets = recipe.target_modules
    if targets != "all-linear":
        names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
        unknown = [target for target in targets if target not in names]
        if unknown or _HEAD in targets:
            known = ", ".join(sorted(name for name in names if name.endswith("_proj")))
            advice = f'Write "all-linear", or some of {known}.'
            raise RefusedError(f"target_modules: {', '.join(unknown) or _HEAD} cannot get an adapter. {advice}")
    return LoraConfig(
        r=recipe.lora_r,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        target_modules=targets if targets == "all-linear" else list(targets),
        task_type="CAUSAL_LM",
    )


def _four_bit_layers(model: "torch.nn.Module") -> list["torch.nn.Module"]:
    library = sys.modules.get("bitsandbytes")  # a model with such layers has loaded it
    return [module for module in model.modules() if library and isinstance(module, library.nn.Linear4bit)]


def keep_adapter_in_float32(model: "PeftModel") -> None:
    """Restore float32, which TRL lowers, in the adapter matrices: bfloat16 loses small updates."""
    import torch

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)


def keep_input_precision(model: "PeftModel") -> None:
    """Leave the precision of adapters to autocast: PEFT casts their inputs to float32, and autocast casts them back."""
    from peft.tuners.lora import LoraLayer

    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.cast_input_dtype_enabled = False


def begin_evaluation(model: "torch.nn.Module") -> None:
    """Set a model to evaluation mode, except four-bit layers, whose weights bitsandbytes would pack for a CPU."""
    for module in _four_bit_layers(model.eval()):
        module.training = True


def take_over(model: "PeftModel", before: Continued) -> None:
    """Copy the adapter of an earlier run into a new one; the optimizer starts again.

    `RefusedError` if it changed since that run, or does not fit.
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack

    if digest_of(before.adapter) != before.adapter_sha256:
        raise RefusedError(f"{before.adapter}: changed since it was trained. Restore it, or train it again.")
    values: dict[str, Any] = load_file(before.adapter)
    num_trained = sum(parameter.requires_grad for parameter in model.parameters())
    unknown = set_peft_model_state_dict(model, values).unexpected_keys
    if unknown or len(values) != num_trained:
        found = f"has {len(values)} matrices, but the recipe needs {num_trained}"
        raise RefusedError(f"{before.adapter}: {found}. Continue with the recipe that trained it.")


def checksums(model: "PeftModel") -> Checksums:
    """Hash the frozen parameters and each adapter matrix, on their device."""
    frozen = hashlib.sha256()
    trained: dict[str, bytes] = {}
    for name, parameter in sorted(model.named_parameters()):
        if parameter.requires_grad:
            trained[name] = _hash(parameter.data)
            continue
        frozen.update(name.encode())
        frozen.update(_hash(parameter.data))
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            for part in (state.absmax, state.code, getattr(state.state2, "absmax", None)):
                frozen.update(b"" if part is None else _hash(part))
    return Checksums(frozen.hexdigest(), trained)


def _hash(tensor: Any) -> bytes:
    import torch

    data = tensor.detach().flatten().view(torch.uint8)
    if data.numel() % _HASHED_BYTES or data.storage_offset() % 8:
        data = torch.nn.functional.pad(data, (0, -data.numel() % _HASHED_BYTES))
    # A hash is the exclusive or of its words; with a single hash, a permutation of all words would go undetected.
    parts = data.view(torch.int64).reshape(data.numel() // _HASHED_BYTES, _HASHED_BYTES // 8)
    return bytes(torch.hash_tensor(parts, 1).cpu().numpy().tobytes())
