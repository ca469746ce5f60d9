"""A merged folder as one GGUF file. For a process of delivery alone.

Source: the layout of llama.cpp for the architecture `llama`; names of tensors are those of the library `gguf`.
"""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    SpecialVocab,
    TensorNameMap,
    TokenType,
    get_tensor_name_map,
)
from gguf.quants import quantize

from mens_pipeline.delivery.gguf_model import splitter_of
from mens_pipeline.delivery.merge import complete, write_comparison
from mens_pipeline.delivery.merge_job import MODEL, GgufJob, GgufType
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline.models.infill import marks_of

_TYPES: Final = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
_SPACE: Final = chr(ord(" ") + 256)
"""How a space inside of a merge is written, since a space stands between its halves."""

Matrix = np.ndarray[Any, Any]


def write_gguf(merged: Path, target: Path, file_type: GgufType, name: str, licence: str | None) -> None:
    """Write a merged model as GGUF, with norms in float32; `refuse_unsupported` has nothing against it.

    Raises:
        RefusedError: A tensor has no place in the layout.
    """
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    kind, file_kind = _TYPES[file_type]
    writer = GGUFWriter(target, "llama")
    writer.add_type("model")
    writer.add_name(name)
    if licence is not None:
        writer.add_license(licence)
    writer.add_file_type(file_kind)
    _add_sizes(writer, config)
    _add_tokenizer(writer, merged, config)
    for tensor, values in _tensors(merged, config):
        stored = GGMLQuantizationType.F32 if values.ndim == 1 else kind
        writer.add_tensor(tensor, quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: GGUFWriter, config: dict[str, Any]) -> None:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_width = config.get("head_dim") or width // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_width)
    writer.add_value_length(head_width)
    writer.add_rope_dimension_count(head_width)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: GGUFWriter, merged: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((merged / "tokenizer.json").read_text(encoding="utf-8"))
    tokens, types = _tokens(tokenizer, config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitter_of(merged))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = tokenizer["model"]["merges"]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    writer.add_token_merges([" ".join(part.replace(" ", _SPACE) for part in pair) for pair in pairs])
    special = SpecialVocab(merged, load_merges=False, special_token_types=("bos", "eos", "unk", "pad"))
    for kind, number in special.special_token_ids.items():
        getattr(writer, f"add_{kind}_token_id")(number)
    for part, number in _cursor_tokens(merged).items():
        writer.add_uint32(f"tokenizer.ggml.fim_{part}_token_id", number)
    # The template begins with a control token itself; another one before it would be one that never trained.
    writer.add_add_bos_token(value=False)
    writer.add_chat_template((merged / "chat_template.jinja").read_text(encoding="utf-8"))


def _cursor_tokens(merged: Path) -> dict[str, int]:
    """Return the tokens that stand before prefix, suffix and middle at a cursor, by which `/infill` of llama.cpp asks.

    None where the marks are words, or no token each.
    """
    tokenizer = FileTokenizer(merged)
    marks = marks_of(tokenizer)
    found = {"pre": marks.prefix, "suf": marks.suffix, "mid": marks.middle}
    ids = {part: tokenizer.encode(mark, add_special_tokens=False) for part, mark in found.items()}
    return {part: number for part, (number, *_) in ids.items()} if all(len(each) == 1 for each in ids.values()) else {}


def _tokens(tokenizer: dict[str, Any], size: int) -> tuple[list[str], list[TokenType]]:
    """Return all tokens in order, and what each is; numbers that no token has are filled."""
    tokens = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    kinds = dict.fromkeys(tokens, TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        kinds[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    numbers = range(size)
    return (
        [tokens.get(number, f"[PAD{number}]") for number in numbers],
        [kinds.get(number, TokenType.UNUSED) for number in numbers],
    )


def _tensors(merged: Path, config: dict[str, Any]) -> Iterator[tuple[str, Matrix]]:
    """Name and values of each tensor, float32, as llama.cpp has them."""
    from safetensors import safe_open  # noqa: PLC0415 - here only

    names: TensorNameMap = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for file in sorted(merged.glob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            for name in sorted(content.keys()):
                if name == "lm_head.weight" and config["tie_word_embeddings"]:
                    continue
                mapped = names.get_name(name, try_suffixes=(".weight",))
                if mapped is None:
                    raise RefusedError(f"{file}: {name} has no place in GGUF. Report this with config.json.")
                values = content.get_tensor(name).float().numpy()
                layer = name.split(".")[-2]
                yield mapped, _interleave(values, heads[layer]) if layer in heads else values


def _interleave(values: Matrix, num_heads: int) -> Matrix:
    """Reorder the rows of a query or key matrix: llama.cpp turns neighbours where Hugging Face turns halves."""
    rows, *rest = values.shape
    return values.reshape(num_heads, 2, rows // num_heads // 2, *rest).swapaxes(1, 2).reshape(values.shape)


def export(job: GgufJob) -> None:
    """Write the file, read it back with another program's reader, and let both models complete some prompts.

    Raises:
        RefusedError: A tensor has no place in the layout.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_flush_denormal(True)
    reference, folder = job.reference, job.run_dir / MODEL
    folder.mkdir()
    write_gguf(job.merged_path, folder / job.file_name, job.file_type, job.model_name, job.licence)
    gc.collect()

    log = TelemetryLog(job.run_dir / TELEMETRY)
    tokenizer = AutoTokenizer.from_pretrained(job.merged_path)
    read_back = AutoTokenizer.from_pretrained(folder, gguf_file=job.file_name)
    asked = {r.task: encode_prompt(tokenizer, reference.system_prompt, r.prompt) for r in reference.requests}
    merged = AutoModelForCausalLM.from_pretrained(job.merged_path, dtype=torch.float32).to(reference.device).eval()
    before = complete("merged", merged, tokenizer, asked, reference, log)
    del merged
    gc.collect()

    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=job.file_name, dtype=torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    after = complete("gguf", model.to(reference.device).eval(), tokenizer, asked, reference, log, along=before)
    # Tokens that a reader adds of its own do not count.
    num_changed = len(set(tokenizer.get_vocab().items()) - set(read_back.get_vocab().items()))
    write_comparison(job.run_dir, before, after, num_tokens_changed=num_changed)
