"""Makes the Auto classes of Hugging Face know VoxTransformer and VoxTokenizer, in this process alone."""
# ruff: noqa: TID253 - only a process that trains or generates loads this

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from mens_pipeline.training.scratch.architecture import MODEL_TYPE
from mens_pipeline.training.scratch.tokenizer import VoxTokenizer
from mens_pipeline.training.scratch.transformer import VoxTransformer, VoxTransformerConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def register() -> None:
    """Let `from_pretrained` of the Auto classes find these classes; no code of a model folder is ever run."""
    AutoConfig.register(MODEL_TYPE, VoxTransformerConfig, exist_ok=True)
    AutoModelForCausalLM.register(VoxTransformerConfig, VoxTransformer, exist_ok=True)
    AutoTokenizer.register(VoxTransformerConfig, VoxTokenizer, exist_ok=True)


def load_scratch_model(folder: Path) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Load a model and its tokenizer, as a run or a merge left them in `model/`."""
    register()
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, trust_remote_code=False)
    return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
