"""Load base and adapter as one model. Only a generation process imports this.

The base of an adapter that was trained on four-bit weights is quantised and restored once, and the adapter is merged
into it. Each layer then computes one plain matrix product per token, with the values of the four-bit model. A GPU that
is too small holds the four-bit weights and the adapter separately, as in training.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import EvaluatedModel
from mens_pipeline.models.adapter import read_adapter_config
from mens_pipeline.models.base import configuration_of
from mens_pipeline.training.qlora import load_base
from mens_pipeline.training.recipe import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HEAD: Final = "lm_head"


def load_evaluated(job: EvaluatedModel, place: int | None = None) -> "PreTrainedModel":
    """Load base and adapter as one model in evaluation mode; `place` is the number of the GPU if there are several."""
    if job.adapter_path is not None:
        read_adapter_config(job.adapter_path)
    import torch
    from peft import PeftModel

    compute_dtype = getattr(torch, job.compute_dtype)
    device = job.device if place is None else place
    if job.held == "dense":
        # Round before the values are quantised, as in training.
        model = load_base(job.base_path, Recipe(quantization="bf16"), device, getattr(torch, job.trained_in))
        if job.quantization != "none":
            restore_quantized(model, double_quant=job.double_quant)
        # Only the weights: the rotary frequencies stay in float32, as in training and in a merged folder.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(compute_dtype)
    else:
        model = load_base(job.base_path, Recipe(bnb_4bit_use_double_quant=job.double_quant), device, compute_dtype)
    if job.adapter_path is not None:
        try:
            adapted = PeftModel.from_pretrained(model, job.adapter_path)
        except (RuntimeError, ValueError, KeyError) as error:
            message = f"{job.adapter_path}: does not fit {job.base_path} ({str(error)[:300]})."
            raise RefusedError(f"{message} Evaluate it with the base it was trained on.") from error
        model = adapted.merge_and_unload() if job.held == "dense" else adapted
    return model.eval()


def restore_quantized(model: "PreTrainedModel", *, double_quant: bool) -> None:
    """Round the weights of every linear layer except the head to NF4."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.rsplit(".", 1)[-1] != _HEAD:
            weight = module.weight.data.contiguous()
            packed, state = quantize_4bit(weight, quant_type="nf4", compress_statistics=double_quant)
            module.weight.data = dequantize_4bit(packed, state).to(weight.dtype)


def save_merged(model: "PreTrainedModel", base: Path, folder: Path) -> None:
    """Write weights and configuration; a text model from a base with vision gets the names of its own class.

    By default the library would write the names of the larger checkpoint under the class of the smaller one.
    """
    is_part = "text_config" in configuration_of(base)
    model.save_pretrained(folder, save_original_format=not is_part)
