"""GGUF files of merged models, as artifacts that are written and compared once.

Source: the layouts of llama.cpp for Llama, Qwen2, Qwen3 and Qwen3.5; the library `gguf` gives the names of tensors.
"""

import gc
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from mens_pipeline.delivery.agreement import (
    GGUF_NAME,
    MODEL,
    Agreement,
    Demand,
    GgufJob,
    GgufType,
    read_agreement,
    reasons_against,
    spread,
)
from mens_pipeline.delivery.merge import PreparedMerge, manifest_in
from mens_pipeline.errors import RefusedError, how_to_install
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.jobs.device import leave_out_kernels
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import refuse_failure, write_job
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import CHATML, ChatFormat, encode_prompt
from mens_pipeline.models.infill import find_marks
from mens_pipeline.storage.kinds import GgufFile, Kind
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.storage.validation import Document, Versioned, read_document
from mens_pipeline.training.preflight import library_versions

if TYPE_CHECKING:
    import torch
    from gguf import GGUFWriter, TokenType

    from mens_pipeline.delivery.merged_model import GreedyCompletions

ARCHITECTURES: Final = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5ForConditionalGeneration": "qwen35",
}
"""Class of a model -> llama.cpp's name of its architecture; of a vision model, only the text model is written."""
HYBRID: Final = "qwen35"
"""Architecture with full attention in some layers, and linear attention in the others."""
_HEADS: Final = {"Qwen3ForCausalLM": 128}
"""Class of a model -> the only head width that transformers reads back."""
_NOT_AS_GGUF: Final = (
    "Run `mens merge -o DIR` without --gguf, and convert DIR with llama.cpp's own convert_hf_to_gguf.py; or serve "
    "DIR as it is: `mens serve --model DIR`, `vllm serve DIR`."
)
_BYTE_LEVEL: Final = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_DIGITS: Final = {"type": "Digits", "individual_digits": True}
_QWEN2: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split_by(pattern: str) -> tuple[dict[str, Any], ...]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return split, {**_BYTE_LEVEL, "use_regex": False}


_SPLITTERS: Final[tuple[tuple[str, tuple[dict[str, Any], ...]], ...]] = (
    ("gpt-2", (_BYTE_LEVEL,)),
    ("smollm", (_DIGITS, _BYTE_LEVEL)),
    ("qwen2", _split_by(_QWEN2)),
    ("qwen35", _split_by(_QWEN35)),
)
"""llama.cpp's name of a pre-tokenizer -> its steps in tokenizer.json.

The default base on a CPU has two variants: the one on the Hub splits digits, the one in the package does not. The
trained variant counts.
"""
_NORMALIZERS: Final = {"qwen2": {"type": "NFC"}, "qwen35": {"type": "NFC"}}
"""Normalizers that llama.cpp skips: its tokens differ if a letter and its accent are two characters."""


def refuse_unsupported(merged: Path) -> None:
    """Raise RefusedError if the architecture, a part of it or the tokenizer cannot be written as GGUF."""
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    found = next(iter(config.get("architectures") or []), "an unnamed architecture")
    if found not in ARCHITECTURES:
        only = ", ".join(ARCHITECTURES)
        raise RefusedError(f"{merged}: {found} is not supported in GGUF, only {only}. {_NOT_AS_GGUF}")
    if ARCHITECTURES[found] == HYBRID and find_spec("xllamacpp") is None:
        needed = "llama.cpp must check such a file, but xllamacpp is not installed"
        raise RefusedError(f"{merged}: {found}: {needed}. {how_to_install('llama')}")
    config = config.get("text_config", config)
    rope = (config.get("rope_parameters") or {}).get("rope_type", "default")
    kinds = config.get("layer_types") or []
    head = config.get("head_dim")
    widths = [config.get(f"linear_{which}_head_dim") for which in ("key", "value")]
    unwritten = [
        *([f"rope_type {rope}"] if rope != "default" else []),
        *(name for name in ("attention_bias", "mlp_bias", "use_sliding_window") if config.get(name)),
        *([f"hidden_act {config['hidden_act']}"] if config.get("hidden_act") != "silu" else []),
        *([f"head_dim {head}"] if head != _HEADS.get(found, head) else []),
        *(["irregular layer_types"] if kinds != _in_turn(kinds) else []),
        *(["linear_key_head_dim unlike linear_value_head_dim"] if widths[0] != widths[1] else []),
    ]
    if unwritten:
        raise RefusedError(f"{merged / 'config.json'}: {', '.join(unwritten)} is not supported in GGUF. {_NOT_AS_GGUF}")
    find_splitter(merged)


def _in_turn(kinds: list[str]) -> list[str]:
    """Return the kinds that llama.cpp assumes: full attention at each multiple of the interval, else the first kind."""
    turn = _full_attention_interval(kinds)
    return ["full_attention" if (layer + 1) % turn == 0 else kinds[0] for layer in range(len(kinds))]


def _full_attention_interval(kinds: list[str]) -> int:
    return kinds.index("full_attention") + 1 if "full_attention" in kinds else 1


def find_splitter(merged: Path) -> str:
    """Return llama.cpp's name of the pre-tokenizer, or raise RefusedError if it has none."""
    path = merged / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    kind = tokenizer["model"].get("type")
    steps = tokenizer["pre_tokenizer"] or {}
    found = steps.get("pretokenizers", [steps])
    named = [
        name
        for name, wanted in _SPLITTERS
        if len(found) == len(wanted) and all(said | asked == said for said, asked in zip(found, wanted, strict=True))
    ]
    plain = (None, *(_NORMALIZERS.get(name) for name in named))
    if kind != "BPE" or tokenizer["model"].get("byte_fallback") or tokenizer["normalizer"] not in plain:
        detail = f"a tokenizer of kind {kind}, with its normalizer or byte fallback, is not supported in GGUF"
        raise RefusedError(f"{path}: {detail}. {_NOT_AS_GGUF}")
    if not named:
        kinds = ", ".join(str(step.get("type")) for step in found)
        raise RefusedError(f"{path}: splits text by {kinds}, which GGUF does not support. {_NOT_AS_GGUF}")
    return named[0]


MODELFILE: Final = GgufFile.MODELFILE
GGUF_REPORT: Final = GgufFile.REPORT
NUM_PROMPTS: Final = 4

DEMANDS: Final[dict[GgufType, Demand]] = {
    "f32": Demand(min_token_agreement=0.999, min_led_agreement=0.999, max_parse_difference=0.002),
    # Rounding flips close calls, after which a free completion differs; a teacher-forced one does not.
    "f16": Demand(min_token_agreement=0.0, min_led_agreement=0.99, max_parse_difference=1.0),
    "q8_0": Demand(min_token_agreement=0.0, min_led_agreement=0.95, max_parse_difference=1.0),
}
"""Type -> tolerances for the file against the merged model."""


class GgufReport(Document, Versioned):
    """Evidence that a GGUF file writes the same completions as the merged model; any other file is refused."""

    schema_: Literal["mens_gguf_report_v1"] = Field(default="mens_gguf_report_v1", alias="schema")
    file_name: str = Field(pattern=GGUF_NAME)
    file_type: GgufType
    demand: Demand
    agreement: Agreement


class GgufParams(Params):
    """A merged model, the prompts to compare, and the process that writes the GGUF file."""

    merged: Parent
    file_type: GgufType
    job: Annotated[GgufJob, DecidedBy(lambda job: [job.reference.model_dump(include={"requests", "device"})])]
    libraries: dict[str, str]
    tasks: Helper[tuple[Task, ...]]
    launch: Helper[Callable[[Path], int]]


def write_gguf_model(folder: Path, params: GgufParams) -> dict[str, Any]:
    """Write a merged model as GGUF with `gguf_report.json`; `RefusedError` if it reads back as another model."""
    job, demand = params.job, DEMANDS[params.file_type]
    refuse_failure(job.run_dir, params.launch(write_job(job)), "GGUF")
    found, figures = read_agreement(job.run_dir, params.tasks)
    reasons = [*reasons_against(found, demand)]
    if figures["num_tokens_changed"]:
        reasons.append(f"{figures['num_tokens_changed']} tokens of the vocabulary changed when read back.")
    if reasons:
        raise RefusedError(f"{job.file_name}: differs from the merged model. {' '.join(reasons)} Report this.")
    shutil.move(job.run_dir / MODEL / job.file_name, folder / job.file_name)
    report = GgufReport(file_name=job.file_name, file_type=params.file_type, demand=demand, agreement=found)
    (folder / GGUF_REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {"name": manifest_in(params.merged.path).name}


STAGE: Final = Stage(Kind.GGUF_MODEL, (__name__,), write_gguf_model)


def build_gguf_model(
    merged: Artifact,
    prepared: PreparedMerge,
    file_type: GgufType,
    store: ArtifactStore,
    launch: Callable[[Path], int],
) -> tuple[Artifact, bool]:
    """Return the GGUF file of a merged model with its report, and whether it was reused.

    `RefusedError` if the model is not supported, the process failed, or the file reads back as another model.
    """
    refuse_unsupported(merged.path)
    refuse_unquotable(manifest_in(merged.path).system_prompt)
    job = _build_job(merged, prepared, file_type, store)
    params = GgufParams(
        merged=merged,
        file_type=file_type,
        job=job,
        libraries=library_versions(),
        tasks=prepared.prompts.tasks,
        launch=launch,
    )
    gguf, reused = STAGE.build(store, params)
    shutil.rmtree(job.run_dir, ignore_errors=True)
    return gguf, reused


def gguf_report_in(folder: Path) -> GgufReport:
    """Read the report on a GGUF file, or raise RefusedError if it is damaged or newer."""
    return read_document(folder / GGUF_REPORT, GgufReport, "GGUF report", "Delete this folder, and merge again.")


def _build_job(merged: Artifact, prepared: PreparedMerge, file_type: GgufType, store: ArtifactStore) -> GgufJob:
    manifest = manifest_in(merged.path)
    run_dir = (store.root / Kind.GGUF_MODEL / f"{prepared.job.run_dir.name}-{file_type}").resolve()
    requests = tuple(task.request for task in spread(prepared.prompts.tasks, NUM_PROMPTS))
    return GgufJob(
        run_dir=run_dir,
        lock_path=prepared.job.lock_path,
        reference=prepared.job.reference.model_copy(update={"requests": requests}),
        merged_path=merged.path,
        file_type=file_type,
        file_name=f"{manifest.name}-{file_type}.gguf",
        model_name=manifest.name,
        licence=manifest.base_licence,
    )


def refuse_unquotable(system: str) -> None:
    """Raise RefusedError if a system prompt cannot be in a Modelfile, since Ollama has no escape for quotes."""
    if '"""' in f'{system}"""'[:-1]:
        found = "the system prompt contains three double quotes in a row, or ends with one"
        raise RefusedError(f"{MODELFILE}: {found}. Merge without --gguf, or train with another system prompt.")


def format_modelfile(gguf: str, system: str, context_length: int, chat: ChatFormat = CHATML) -> str:
    """Format the Modelfile for Ollama to serve a GGUF file greedily, as evaluated; errors as in `refuse_unquotable`."""
    refuse_unquotable(system)
    before, after = chat.user
    shown = "{{ .System }}\n\n" if chat.system is None else "{{ .System }}".join(chat.system)
    system_turn = f"{{{{ if .System }}}}{shown}{{{{ end }}}}"
    if chat.system is None:
        before, system_turn = before + system_turn, ""
    template = (
        f"{system_turn}{{{{ if .Prompt }}}}{before}{{{{ .Prompt }}}}{after}{{{{ end }}}}"
        f"{chat.opening}{{{{ .Response }}}}{chat.end}{chat.behind}"
    )
    stops = dict.fromkeys((chat.end, *reversed([text for text in chat.markers if text != chat.bos])))
    lines = (
        f"FROM ./{gguf}",
        f'TEMPLATE """{template}"""',
        f'SYSTEM """{system}"""',
        *(f'PARAMETER stop "{stop}"' for stop in stops),
        "PARAMETER temperature 0",
        f"PARAMETER num_ctx {context_length}",
    )
    return "\n".join(lines) + "\n"


_NUM_LIKELIEST: Final = 64  # most likely tokens that llama.cpp reports at each position
_BELOW: Final = 60.0
"""Distance of all other log-probabilities below the lowest of these: too low to be drawn, and finite."""
_FORCED: Final = 1e3
_NUM_COMPARED: Final = 32  # most likely tokens whose logits are compared with those of llama.cpp
_SECTIONS: Final = (11, 11, 10)
"""Default numbers of rotary pairs for the time, height and width of an image."""
_SPACE: Final = chr(ord(" ") + 256)  # a space inside a merge, since a space separates its halves

Matrix = np.ndarray[Any, Any]


def write_gguf(merged: Path, target: Path, file_type: GgufType, name: str, licence: str | None) -> None:
    """Write a merged model that `refuse_unsupported` accepts as GGUF, with norms in float32."""
    from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType  # noqa: PLC0415 - optional dependency
    from gguf.quants import quantize  # noqa: PLC0415 - likewise

    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    architecture = ARCHITECTURES[config["architectures"][0]]
    kind = GGMLQuantizationType[file_type.upper()]
    writer = GGUFWriter(target, architecture)
    writer.add_type("model")
    writer.add_name(name)
    if licence is not None:
        writer.add_license(licence)
    prefix = "ALL" if file_type == "f32" else "MOSTLY"
    writer.add_file_type(LlamaFileType[f"{prefix}_{file_type.upper()}"])
    _add_sizes(writer, config)
    if architecture == HYBRID:
        _add_linear_attention(writer, config)
    _add_tokenizer(writer, merged, config)
    for tensor, values in _list_tensors(merged, architecture, config):
        stored = GGMLQuantizationType.F32 if values.ndim == 1 or "conv1d" in tensor else kind
        writer.add_tensor(tensor, quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: "GGUFWriter", config: dict[str, Any]) -> None:
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


def _add_linear_attention(writer: "GGUFWriter", config: dict[str, Any]) -> None:
    """Add the sizes of Qwen3.5's linear attention, and of its three kinds of positions, which are equal in text."""
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    writer.add_full_attention_interval(_full_attention_interval(config["layer_types"]))
    sections = config["rope_parameters"].get("mrope_section", _SECTIONS)
    writer.add_rope_dimension_sections([*sections, *[0] * (4 - len(sections))])


def _add_tokenizer(writer: "GGUFWriter", merged: Path, config: dict[str, Any]) -> None:
    from gguf import SpecialVocab  # noqa: PLC0415 - optional dependency

    tokenizer = json.loads((merged / "tokenizer.json").read_text(encoding="utf-8"))
    tokens, types = _list_tokens(tokenizer, config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(find_splitter(merged))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = tokenizer["model"]["merges"]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    writer.add_token_merges([" ".join(part.replace(" ", _SPACE) for part in pair) for pair in pairs])
    special = SpecialVocab(merged, load_merges=False, special_token_types=("bos", "eos", "unk", "pad"))
    for kind, number in special.special_token_ids.items():
        getattr(writer, f"add_{kind}_token_id")(number)
    for part, number in _find_cursor_tokens(merged).items():
        writer.add_uint32(f"tokenizer.ggml.fim_{part}_token_id", number)
    # The template begins with a control token; training never saw two.
    writer.add_add_bos_token(value=False)
    writer.add_chat_template((merged / "chat_template.jinja").read_text(encoding="utf-8"))


def _find_cursor_tokens(merged: Path) -> dict[str, int]:
    tokenizer = FileTokenizer(merged)
    marks = find_marks(tokenizer)
    found = {"pre": marks.prefix, "suf": marks.suffix, "mid": marks.middle}
    ids = {part: tokenizer.encode(mark, add_special_tokens=False) for part, mark in found.items()}
    return {part: number for part, (number, *_) in ids.items()} if all(len(each) == 1 for each in ids.values()) else {}


def _list_tokens(tokenizer: dict[str, Any], size: int) -> tuple[list[str], list["TokenType"]]:
    from gguf import TokenType  # noqa: PLC0415 - optional dependency

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


def _list_tensors(merged: Path, architecture: str, config: dict[str, Any]) -> Iterator[tuple[str, Matrix]]:
    from gguf import MODEL_ARCH, get_tensor_name_map  # noqa: PLC0415 - optional dependency
    from safetensors import safe_open  # noqa: PLC0415 - likewise

    names = get_tensor_name_map(MODEL_ARCH[architecture.upper()], config["num_hidden_layers"])
    for file in sorted(merged.glob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            for name in sorted(content.keys()):
                if name == "lm_head.weight" and config["tie_word_embeddings"]:
                    continue
                mapped = names.get_name(name.replace(".dt_bias", ".dt_proj.bias"), try_suffixes=(".weight", ".bias"))
                if mapped is None:
                    raise RefusedError(f"{file}: {name} has no equivalent in GGUF. Report this with config.json.")
                values = content.get_tensor(name).float().numpy()
                if architecture == "llama":
                    values = _interleave(name, values, config)
                elif architecture == HYBRID:
                    values = _convert_hybrid(name, values, config)
                yield mapped, values


def _interleave(name: str, values: Matrix, config: dict[str, Any]) -> Matrix:
    """Reorder the rows of a query or key matrix: llama.cpp rotates neighbours, Hugging Face halves."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    number = heads.get(name.split(".")[-2])
    if number is None:
        return values
    rows, *rest = values.shape
    return values.reshape(number, 2, rows // number // 2, *rest).swapaxes(1, 2).reshape(values.shape)


def _convert_hybrid(name: str, values: Matrix, config: dict[str, Any]) -> Matrix:
    """Convert a tensor of Qwen3.5 to llama.cpp's layout.

    Norms centred at 0 become norms centred at 1. In linear attention each key head has several value heads: llama.cpp
    orders them by their place in the key head, Hugging Face by key head.
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
    before, after = moved.shape[:axis], moved.shape[axis + 1 :]
    heads = moved.reshape(*before, num_key_heads, num_value_heads // num_key_heads, -1, *after).swapaxes(axis, axis + 1)
    return np.concatenate([queries_and_keys, heads.reshape(moved.shape)], axis)


def export(job: GgufJob) -> None:
    """Write the file, read it back with another program, and complete prompts with both models; see `write_gguf`."""
    import torch
    from gguf import GGUFReader  # noqa: PLC0415 - optional dependency
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from mens_pipeline.delivery.merged_model import complete, write_comparison  # noqa: PLC0415 - loads torch
    from mens_pipeline.inference.generate import stop_tokens  # noqa: PLC0415 - likewise

    torch.set_flush_denormal(True)
    reference, folder = job.reference, job.run_dir / MODEL
    leave_out_kernels(reference.device)
    decoding = reference.decoding
    folder.mkdir()
    write_gguf(job.merged_path, folder / job.file_name, job.file_type, job.model_name, job.licence)
    gc.collect()

    log = TelemetryLog(job.run_dir / TELEMETRY)
    tokenizer = AutoTokenizer.from_pretrained(job.merged_path)
    asked = {r.task: encode_prompt(tokenizer, reference.system_prompt, r.prompt) for r in reference.requests}
    merged = AutoModelForCausalLM.from_pretrained(job.merged_path, dtype=torch.float32).to(reference.device).eval()
    before = complete("merged", merged, tokenizer, asked, decoding, log)
    stop, is_hybrid = stop_tokens(tokenizer, merged), ARCHITECTURES[merged.config.architectures[0]] == HYBRID
    del merged
    gc.collect()

    if is_hybrid:
        after = _complete_by_llama_cpp(folder / job.file_name, tokenizer, stop, before, decoding, log)
        tokens = GGUFReader(folder / job.file_name).fields["tokenizer.ggml.tokens"].contents()
        read_back = {token: number for number, token in enumerate(tokens)}
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=job.file_name, dtype=torch.float32)
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        after = complete("gguf", model.to(reference.device).eval(), tokenizer, asked, decoding, log, along=before)
        read_back = AutoTokenizer.from_pretrained(folder, gguf_file=job.file_name).get_vocab()
    # Tokens that a reader adds do not count.
    num_changed = len(set(tokenizer.get_vocab().items()) - set(read_back.items()))
    write_comparison(job.run_dir, before, after, num_tokens_changed=num_changed)


class LlamaCpp:
    """A GGUF file in llama.cpp, with `vocabulary` tokens, a window of `context` tokens, and the end token `end`."""

    def __init__(self, file: Path, vocabulary: int, end: int, context: int) -> None:
        import torch
        import xllamacpp  # noqa: PLC0415 - optional dependency

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        # Its HTTP port cannot be turned off, so a random key closes it; calls in this process need none.
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [secrets.token_hex()]
        params.n_parallel, params.n_ctx = 1, context
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
        params.warmup, params.verbosity = False, -1
        self._server = xllamacpp.Server(params)
        self._vocabulary, self._end = vocabulary, end

    def next_scores(self, tokens: Sequence[int]) -> "torch.Tensor":
        """Return log-probabilities of the next token, of shape `(vocabulary,)`, exact for the most likely ones."""
        import torch

        # Force the end token, since llama.cpp reports nothing for half a character. Log-probabilities ignore the bias.
        body = {"prompt": [*tokens], "max_tokens": 1, "logprobs": _NUM_LIKELIEST, "logit_bias": [[self._end, _FORCED]]}
        reply = self._server.handle_completions(body)
        if "error" in reply:
            raise RuntimeError(f"llama.cpp: {reply['error'].get('message')}")
        (position,) = reply["choices"][0]["logprobs"]["content"]
        found = {each["id"]: each["logprob"] for each in position["top_logprobs"]}
        scores = torch.full((self._vocabulary,), min(found.values()) - _BELOW)
        scores[list(found)] = torch.tensor(list(found.values()))
        return scores


def _complete_by_llama_cpp(  # noqa: PLR0913, PLR0917 - the inputs of a completion
    file: Path, tokenizer: Any, stop: frozenset[int], before: "GreedyCompletions", decoding: Decoding, log: TelemetryLog
) -> "GreedyCompletions":
    from mens_pipeline.delivery.merged_model import GreedyCompletions, read_slots  # noqa: PLC0415 - loads torch
    from mens_pipeline.inference.engine import take_tokens  # noqa: PLC0415 - likewise
    from mens_pipeline.inference.generate import CompletionCounter, new_slot  # noqa: PLC0415 - likewise

    rows = [new_slot(task, 0, prompt, decoding) for task, prompt in before.prompts.items()]
    counter, context = CompletionCounter(log, "gguf", len(rows)), sum(row.num_positions + 1 for row in rows)
    vocabulary = len(next(iter(before.scores.values())))
    model = LlamaCpp(file, vocabulary, min(stop), context)
    for row in rows:
        while row.end is None:
            take_tokens([row], model.next_scores((*row.prompt, *row.tokens))[None], stop)
        counter.count(len(row.tokens))
    scores, likely = {}, {}
    for task, prompt in before.prompts.items():
        along = before.written[task].tokens
        after = [model.next_scores((*prompt, *along[:place])) for place in range(len(along))]
        likely[task] = tuple(int(each.argmax()) for each in after)
        # llama.cpp reports only the most likely tokens.
        known, logits = after[0].topk(_NUM_COMPARED), before.scores[task]
        scores[task] = logits.index_copy(0, known.indices, known.values + logits.logsumexp(-1))
    return GreedyCompletions(before.prompts, read_slots(rows, tokenizer), scores, likely)
