"""A base model small enough to train in seconds: two layers with random weights, and a tokenizer of single bytes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.models.chat import IM_END, IM_START, TEMPLATE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HIDDEN = 64
LAYERS = 2
HEADS = 4
TINY_HYBRID: Final = {
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_hidden_layers": 4,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "max_position_embeddings": 512,
}
"""Of a text model of Qwen3.5: three layers of linear attention, and one of full attention."""


def write_tiny_base(  # noqa: PLR0913 - the sizes of a model
    folder: Path,
    tokenizer: "Tokenizer | None" = None,
    hidden: int = HIDDEN,
    *,
    inner: int | None = None,
    layers: int = LAYERS,
    heads: int = HEADS,
    positions: int = 512,
) -> Path:
    """A Llama of random weights, the same each time, as a Hugging Face folder.

    The `tokenizer` knows the control tokens of ChatML; None for one of single bytes. `inner` is the width after the
    attention, None for twice `hidden`.
    """
    return write_random_base(
        folder,
        tokenizer,
        model_type="llama",
        hidden_size=hidden,
        intermediate_size=inner or 2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=positions,
    )


def write_tiny_hybrid(folder: Path, tokenizer: "Tokenizer | None" = None, **sizes: int) -> Path:
    """A text model of Qwen3.5 with layers of linear and of full attention; random weights, the same each time.

    Its tokenizer knows the control tokens of ChatML, or is one of single bytes.
    """
    fields: dict[str, Any] = {**TINY_HYBRID, **sizes}
    return write_random_base(folder, tokenizer, model_type="qwen3_5_text", **fields)


def write_random_base(
    folder: Path, tokenizer: "Tokenizer | None", *, are_vectors_random: bool = False, **fields: Any
) -> Path:
    """A model of a configuration as a Hugging Face folder, with random weights, and biases and norms if requested."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    chosen = tokenizer if tokenizer is not None else _make_byte_tokenizer()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=chosen, eos_token=IM_END, pad_token=IM_END)
    wrapped.chat_template = TEMPLATE
    torch.manual_seed(0)
    ends = {"eos_token_id": wrapped.eos_token_id, "pad_token_id": wrapped.pad_token_id}
    config = AutoConfig.for_model(**{"tie_word_embeddings": True, "vocab_size": len(wrapped), **ends, **fields})
    model = AutoModelForCausalLM.from_config(config)
    if are_vectors_random:
        with torch.no_grad():
            for vector in [parameter for parameter in model.parameters() if parameter.ndim == 1]:
                vector.add_(torch.randn_like(vector), alpha=0.2)
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return folder


def _make_byte_tokenizer() -> "Tokenizer":
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 - likewise
    from tokenizers.decoders import ByteLevel  # noqa: PLC0415 - likewise

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens([IM_START, IM_END])
    return tokenizer
