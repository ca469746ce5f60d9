"""A merged folder as one GGUF file. For a process of delivery alone.

Source: the layouts of llama.cpp for Llama, Qwen2, Qwen3 and Qwen3.5; names of tensors are those of the library `gguf`.
"""

import gc
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFReader,
    GGUFWriter,
    LlamaFileType,
    SpecialVocab,
    TensorNameMap,
    TokenType,
    get_tensor_name_map,
)
from gguf.quants import quantize

from mens_pipeline.delivery.gguf_model import ARCHITECTURES, HYBRID, full_attention_interval, splitter_of
from mens_pipeline.delivery.merge import Completions, complete, write_comparison, written_by
from mens_pipeline.delivery.merge_job import MODEL, GgufJob, GgufType
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.engine import take_tokens
from mens_pipeline.inference.generate import CompletionCounter, new_row, stop_tokens
from mens_pipeline.inference.generation import GenerationJob
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline.models.infill import find_marks

if TYPE_CHECKING:
    import torch

_TYPES: Final = {
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
_NUM_LIKELIEST: Final = 64
"""Tokens that llama.cpp tells of at each position."""
_BELOW: Final = 60.0
"""Log-probability that all other tokens lie below the least likely of these: too low to be drawn, and finite."""
_FORCED: Final = 1e3
_NUM_COMPARED: Final = 32
"""Tokens of which logits of llama.cpp are compared."""
_SECTIONS: Final = (11, 11, 10)
"""Pairs of a head that turn by time, height and width of an image, where a configuration does not say."""
_SPACE: Final = chr(ord(" ") + 256)
"""How a space inside of a merge is written, since a space stands between its halves."""

Matrix = np.ndarray[Any, Any]


def write_gguf(merged: Path, target: Path, file_type: GgufType, name: str, licence: str | None) -> None:
    """Write a merged model as GGUF, with norms in float32; `refuse_unsupported` has nothing against it.

    Raises:
        RefusedError: A tensor has no place in the layout.
    """
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    architecture = ARCHITECTURES[config["architectures"][0]]
    kind, file_kind = _TYPES[file_type]
    writer = GGUFWriter(target, architecture)
    writer.add_type("model")
    writer.add_name(name)
    if licence is not None:
        writer.add_license(licence)
    writer.add_file_type(file_kind)
    _add_sizes(writer, config)
    if architecture == HYBRID:
        _add_linear_attention(writer, config)
    _add_tokenizer(writer, merged, config)
    for tensor, values in _tensors(merged, architecture, config):
        stored = GGMLQuantizationType.F32 if values.ndim == 1 or "conv1d" in tensor else kind
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
    writer.add_rope_dimension_count(int(head_width * config["rope_parameters"].get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_linear_attention(writer: GGUFWriter, config: dict[str, Any]) -> None:
    """Add what Qwen3.5 has beside: states of linear attention, and positions of three kinds, all alike in a text."""
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    writer.add_full_attention_interval(full_attention_interval(config["layer_types"]))
    sections = config["rope_parameters"].get("mrope_section", _SECTIONS)
    writer.add_rope_dimension_sections([*sections, *[0] * (4 - len(sections))])


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
    marks = find_marks(tokenizer)
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


def _tensors(merged: Path, architecture: str, config: dict[str, Any]) -> Iterator[tuple[str, Matrix]]:
    """Name and values of each tensor, float32, as llama.cpp has them."""
    from safetensors import safe_open  # noqa: PLC0415 - here only

    names: TensorNameMap = get_tensor_name_map(MODEL_ARCH[architecture.upper()], config["num_hidden_layers"])
    for file in sorted(merged.glob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            for name in sorted(content.keys()):
                if name == "lm_head.weight" and config["tie_word_embeddings"]:
                    continue
                mapped = names.get_name(name.replace(".dt_bias", ".dt_proj.bias"), try_suffixes=(".weight", ".bias"))
                if mapped is None:
                    raise RefusedError(f"{file}: {name} has no place in GGUF. Report this with config.json.")
                values = content.get_tensor(name).float().numpy()
                if architecture == "llama":
                    values = _interleave(name, values, config)
                elif architecture == HYBRID:
                    values = _of_hybrid(name, values, config)
                yield mapped, values


def _interleave(name: str, values: Matrix, config: dict[str, Any]) -> Matrix:
    """Reorder the rows of a query or key matrix: llama.cpp turns neighbours where Hugging Face turns halves."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    number = heads.get(name.split(".")[-2])
    if number is None:
        return values
    rows, *rest = values.shape
    return values.reshape(number, 2, rows // number // 2, *rest).swapaxes(1, 2).reshape(values.shape)


def _of_hybrid(name: str, values: Matrix, config: dict[str, Any]) -> Matrix:
    """Turn a tensor of Qwen3.5 into what llama.cpp computes with.

    Norms around 0 become norms around 1. In linear attention each key head has several value heads: those of all first
    ones come first there, here all of a key head.
    """
    _, is_linear, part = name.removesuffix(".weight").partition(".linear_attn.")
    if not is_linear:
        return values + 1 if name.endswith("norm.weight") else values
    if part == "norm":
        return values
    if part == "A_log":
        values = -np.exp(values)
    elif part == "conv1d":
        values = values.squeeze(1)
    axis = 1 if part == "out_proj" else 0
    num_key_heads, num_value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    first = 2 * num_key_heads * config["linear_key_head_dim"] if part in {"in_proj_qkv", "conv1d"} else 0
    queries_and_keys, moved = np.split(values, [first], axis)
    before, behind = moved.shape[:axis], moved.shape[axis + 1 :]
    heads = moved.reshape(*before, num_key_heads, num_value_heads // num_key_heads, -1, *behind).swapaxes(
        axis, axis + 1
    )
    return np.concatenate([queries_and_keys, heads.reshape(moved.shape)], axis)


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
    asked = {r.task: encode_prompt(tokenizer, reference.system_prompt, r.prompt) for r in reference.requests}
    merged = AutoModelForCausalLM.from_pretrained(job.merged_path, dtype=torch.float32).to(reference.device).eval()
    before = complete("merged", merged, tokenizer, asked, reference, log)
    stop, is_hybrid = stop_tokens(tokenizer, merged), ARCHITECTURES[merged.config.architectures[0]] == HYBRID
    del merged
    gc.collect()

    if is_hybrid:
        after = _complete_by_llama_cpp(folder / job.file_name, tokenizer, stop, before, reference, log)
        tokens = GGUFReader(folder / job.file_name).fields["tokenizer.ggml.tokens"].contents()
        read_back = {token: number for number, token in enumerate(tokens)}
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=job.file_name, dtype=torch.float32)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        after = complete("gguf", model.to(reference.device).eval(), tokenizer, asked, reference, log, along=before)
        read_back = AutoTokenizer.from_pretrained(folder, gguf_file=job.file_name).get_vocab()
    # Tokens that a reader adds of its own do not count.
    num_changed = len(set(tokenizer.get_vocab().items()) - set(read_back.items()))
    write_comparison(job.run_dir, before, after, num_tokens_changed=num_changed)


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A model in llama.cpp.

    Attributes:
        server: Of xllamacpp, asked from within this process.
        vocabulary: Number of its tokens.
        end: One that ends a turn.
    """

    server: Any
    vocabulary: int
    end: int

    def next_scores(self, tokens: Sequence[int]) -> "torch.Tensor":
        """Return log-probabilities of the token behind others, of shape `(vocabulary,)`; exact for the likeliest ones.

        Raises:
            RuntimeError: It could not go on.
        """
        import torch

        # A token that ends the text is forced: of half a character it would tell nothing. What it tells of each token
        # is from before that.
        body = {"prompt": [*tokens], "max_tokens": 1, "logprobs": _NUM_LIKELIEST, "logit_bias": [[self.end, _FORCED]]}
        reply = self.server.handle_completions(body)
        if "error" in reply:
            raise RuntimeError(f"llama.cpp: {reply['error'].get('message')}")
        (position,) = reply["choices"][0]["logprobs"]["content"]
        found = {each["id"]: each["logprob"] for each in position["top_logprobs"]}
        scores = torch.full((self.vocabulary,), min(found.values()) - _BELOW)
        scores[list(found)] = torch.tensor(list(found.values()))
        return scores


def open_gguf(file: Path, vocabulary: int, end: int, context: int) -> LlamaCpp:
    """Load a GGUF file.

    Args:
        file: The model.
        vocabulary: Number of its tokens.
        end: One that ends a turn.
        context: Tokens that it has room for.
    """
    import torch
    import xllamacpp  # noqa: PLC0415 - an extra of its own

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    # It also listens, where nobody is to ask; from within this process it takes no key.
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [secrets.token_hex()]
    params.n_parallel, params.n_ctx = 1, context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
    params.warmup, params.verbosity = False, -1
    return LlamaCpp(xllamacpp.Server(params), vocabulary, end)


def _complete_by_llama_cpp(  # noqa: PLR0913, PLR0917 - all that a completion rests on
    file: Path, tokenizer: Any, stop: frozenset[int], before: Completions, job: GenerationJob, log: TelemetryLog
) -> Completions:
    """Let llama.cpp complete what the merged model completed: transformers reads no file of such a model."""
    rows = [new_row(task, 0, prompt, job.decoding) for task, prompt in before.prompts.items()]
    counter, context = CompletionCounter(log, "gguf", len(rows)), sum(row.num_positions + 1 for row in rows)
    vocabulary = len(next(iter(before.scores.values())))
    model = open_gguf(file, vocabulary, min(stop), context)
    for row in rows:
        while row.end is None:
            take_tokens([row], model.next_scores((*row.prompt, *row.tokens))[None], stop)
        counter.count(len(row.tokens))
    scores, likely = {}, {}
    for task, prompt in before.prompts.items():
        along = before.written[task].tokens
        behind = [model.next_scores((*prompt, *along[:place])) for place in range(len(along))]
        likely[task] = tuple(int(each.argmax()) for each in behind)
        # It tells how likely the likeliest are, and nothing of the others.
        known, logits = behind[0].topk(_NUM_COMPARED), before.scores[task]
        scores[task] = logits.index_copy(0, known.indices, known.values + logits.logsumexp(-1))
    return Completions(before.prompts, written_by(rows, tokenizer), scores, likely)
