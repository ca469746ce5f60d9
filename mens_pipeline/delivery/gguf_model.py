"""A merged model as a GGUF file, as an artifact: written and compared once."""

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mens_pipeline.delivery.agreement import Agreement, Demand, compare_written, reasons_against, spread
from mens_pipeline.delivery.merge_job import GGUF_NAME, MODEL, GgufJob, GgufType
from mens_pipeline.delivery.merged_model import PreparedMerge, manifest_in
from mens_pipeline.errors import RefusedError, how_to_install
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.jobs.local import refuse_failure
from mens_pipeline.jobs.protocol import write_job
from mens_pipeline.models.chat import CHATML, ChatFormat
from mens_pipeline.storage.kinds import GgufFile, Kind
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.storage.validation import Document, Versioned, read_document
from mens_pipeline.training.prepare import library_versions

ARCHITECTURES: Final = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5ForConditionalGeneration": "qwen35",
}
"""Class of a model -> what llama.cpp calls its architecture; of one that also sees, the text model is written."""
HYBRID: Final = "qwen35"
"""Full attention in some layers, linear attention in the others."""
_HEADS: Final = {"Qwen3ForCausalLM": 128}
"""Class of a model -> the one width of heads, that of published ones, with which transformers reads a file back."""
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
"""What llama.cpp calls a way to split text before merging -> what tokenizer.json says of it.

The same model comes with either: from the Hub with digits one by one, from the package of the CPU default without. It
was trained with what its tokenizer.json says, and must be served with that.
"""
_NORMALIZERS: Final = {"qwen2": {"type": "NFC"}, "qwen35": {"type": "NFC"}}
"""Normalizers that llama.cpp leaves out: it reads other tokens where a letter and its accent are two characters."""


def refuse_unsupported(merged: Path) -> None:
    """Check that a model can be written as GGUF.

    Raises:
        RefusedError: Another architecture, or a part of it that is not written; the message names it.
    """
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    found = next(iter(config.get("architectures") or []), "none named")
    if found not in ARCHITECTURES:
        only = ", ".join(ARCHITECTURES)
        raise RefusedError(f"{merged}: {found} is not written as GGUF, only {only}. {_NOT_AS_GGUF}")
    if ARCHITECTURES[found] == HYBRID and find_spec("xllamacpp") is None:
        needed = "what is written of it is read back by llama.cpp, and xllamacpp is not installed"
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
        *(["layer_types out of turn"] if kinds != _in_turn(kinds) else []),
        *(["linear_key_head_dim beside another linear_value_head_dim"] if widths[0] != widths[1] else []),
    ]
    if unwritten:
        raise RefusedError(f"{merged / 'config.json'}: {', '.join(unwritten)} is not written as GGUF. {_NOT_AS_GGUF}")
    splitter_of(merged)


def _in_turn(kinds: list[str]) -> list[str]:
    """Return as many layers, each so many-th of full attention as the first one, and all others as the first layer."""
    turn = full_attention_interval(kinds)
    return ["full_attention" if (layer + 1) % turn == 0 else kinds[0] for layer in range(len(kinds))]


def full_attention_interval(kinds: list[str]) -> int:
    """Return the number of the first layer with full attention, from 1; 1 for a model that lists no kinds of layers."""
    return kinds.index("full_attention") + 1 if "full_attention" in kinds else 1


def splitter_of(merged: Path) -> str:
    """Return llama.cpp's name for the way in which a tokenizer splits text before merging.

    Raises:
        RefusedError: It knows no such way, or the tokenizer is not made of byte pairs.
    """
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
        detail = f"a tokenizer of kind {kind}, with its normalizer or byte fallback, is not written as GGUF"
        raise RefusedError(f"{path}: {detail}. {_NOT_AS_GGUF}")
    if not named:
        kinds = ", ".join(str(step.get("type")) for step in found)
        raise RefusedError(f"{path}: splits text by {kinds}, which has no name in GGUF here. {_NOT_AS_GGUF}")
    return named[0]


MODELFILE: Final = GgufFile.MODELFILE
GGUF_REPORT: Final = GgufFile.REPORT
NUM_PROMPTS: Final = 4

DEMANDS: Final[dict[GgufType, Demand]] = {
    "f32": Demand(min_token_agreement=0.999, min_led_agreement=0.999, max_parse_difference=0.002),
    # Rounding turns close calls, and what turns once is another completion from there on; teacher-forced, it is not.
    "f16": Demand(min_token_agreement=0.0, min_led_agreement=0.99, max_parse_difference=1.0),
    "q8_0": Demand(min_token_agreement=0.0, min_led_agreement=0.95, max_parse_difference=1.0),
}
"""Type -> how far the file may be from the merged model; what is rounded is coarser than what is not."""


class GgufReport(Document, Versioned):
    """Whether a GGUF file writes as the merged model does."""

    schema_: Literal["mens_gguf_report_v1"] = Field(default="mens_gguf_report_v1", alias="schema")
    file_name: str = Field(pattern=GGUF_NAME)
    file_type: GgufType
    num_tokens_changed: int = Field(ge=0, description="Of the vocabulary, as another reader reads it back.")
    demand: Demand
    agreement: Agreement
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it does not pass, a sentence each.")


class GgufParams(Params):
    """A merged model, the prompts that it is compared by, and the process that writes it."""

    merged: Parent
    file_type: GgufType
    job: Annotated[GgufJob, DecidedBy(lambda job: [job.reference.model_dump(include={"requests", "device"})])]
    libraries: dict[str, str]
    tasks: Helper[tuple[Task, ...]]
    launch: Helper[Callable[[Path], int]]


def write_gguf_model(folder: Path, params: GgufParams) -> dict[str, Any]:
    """Write a merged model as GGUF, with `gguf_report.json`; refused where what is read back is another model."""
    job, demand = params.job, DEMANDS[params.file_type]
    refuse_failure(job.run_dir, params.launch(write_job(job)), "GGUF")
    found, figures = compare_written(job.run_dir, params.tasks)
    reasons = [*reasons_against(found, demand)]
    if figures["num_tokens_changed"]:
        reasons.append(f"{figures['num_tokens_changed']} tokens of the vocabulary are not read back as they were.")
    if reasons:
        raise RefusedError(f"{job.file_name}: not the merged model. {' '.join(reasons)} Report this.")
    shutil.move(job.run_dir / MODEL / job.file_name, folder / job.file_name)
    report = GgufReport(
        file_name=job.file_name,
        file_type=params.file_type,
        num_tokens_changed=figures["num_tokens_changed"],
        demand=demand,
        agreement=found,
        passed=not reasons,
        reasons=tuple(reasons),
    )
    (folder / GGUF_REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {"name": manifest_in(params.merged.path).name}


STAGE: Final = Stage(Kind.GGUF_MODEL, (__name__, "mens_pipeline.delivery.gguf_file"), write_gguf_model)


def build_gguf_model(
    merged: Artifact,
    prepared: PreparedMerge,
    file_type: GgufType,
    store: ArtifactStore,
    launch: Callable[[Path], int],
) -> tuple[Artifact, bool]:
    """Write a merged model as GGUF, and return the file with its report, and whether it was written before.

    Raises:
        RefusedError: The architecture, the tokenizer or the system prompt is not supported, the process did not come
            to its end, or what was read back is another model.
        ConfigurationError: The store cannot be written.
    """
    refuse_unsupported(merged.path)
    refuse_unquotable(manifest_in(merged.path).system_prompt)
    job = _job(merged, prepared, file_type, store)
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
    """Read the report on a GGUF file.

    Raises:
        RefusedError: It is none, or written by a newer version.
    """
    return read_document(folder / GGUF_REPORT, GgufReport, "GGUF report", "Delete this folder, and merge again.")


def _job(merged: Artifact, prepared: PreparedMerge, file_type: GgufType, store: ArtifactStore) -> GgufJob:
    tasks = spread(prepared.prompts.tasks, NUM_PROMPTS)
    manifest = manifest_in(merged.path)
    run_dir = (store.root / Kind.GGUF_MODEL / f"{prepared.job.run_dir.name}-{file_type}").resolve()
    requests = tuple(task.request for task in tasks)
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
    """Check that a system prompt can stand in the Modelfile of Ollama, which knows no way to escape a quote.

    Raises:
        RefusedError: It holds three double quotes in a row, or ends with one.
    """
    if '"""' in f'{system}"""'[:-1]:
        found = "the system prompt holds three double quotes in a row, or ends with one"
        raise RefusedError(f"{MODELFILE}: {found}. Merge without --gguf, or train with another system prompt.")


def modelfile(gguf: str, system: str, context_length: int, chat: ChatFormat = CHATML) -> str:
    """Write what Ollama needs to serve a GGUF file beside it: form, stop token, system prompt; greedy, as evaluated.

    Raises:
        RefusedError: The system prompt would end its place in the file early, and go on as instructions.
    """
    refuse_unquotable(system)
    before, behind = chat.user
    shown = "{{ .System }}\n\n" if chat.system is None else "{{ .System }}".join(chat.system)
    system_turn = f"{{{{ if .System }}}}{shown}{{{{ end }}}}"
    if chat.system is None:
        before, system_turn = before + system_turn, ""
    template = (
        f"{system_turn}{{{{ if .Prompt }}}}{before}{{{{ .Prompt }}}}{behind}{{{{ end }}}}"
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
