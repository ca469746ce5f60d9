"""`external_serving_handoff_v1.json`: what a serving system needs to know of a model, and nothing of this machine.

The fields on top are those of upstream's document, which allows no others; what we add stands in `mens`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from mens_pipeline.delivery.merge_documents import MergedInto
from mens_pipeline.delivery.merge_job import Dtype, GgufType
from mens_pipeline.storage.store import digest_of
from mens_pipeline.storage.validation import Document

HANDOFF: Final = "external_serving_handoff_v1.json"
_SHA256: Final = "^[0-9a-f]{64}$"


class HandedFile(Document):
    """One file of the model."""

    path: str = Field(description="Relative to this document, with `/`.")
    sha256: str = Field(pattern=_SHA256)
    num_bytes: int = Field(ge=0)


class GgufPart(Document):
    """The same model for llama.cpp and Ollama."""

    path: str = Field(description="Relative to this document, with `/`.")
    file_type: GgufType
    led_agreement: float = Field(ge=0, le=1, description="With the merged model, token by token.")


class MensPart(Document):
    """Adapter, base, licences and verdict that merged weights are bound to by hash."""

    name: str
    adapter_sha256: str = Field(pattern=_SHA256, description="Of the adapter's weights.")
    base_revision: str | None
    base_sha256: str = Field(pattern=_SHA256, description="Of the folder of the base.")
    licence: str | None = Field(description="Of the base; null when it says nothing.")
    data_licence: str | None = Field(description="Of the workspace that it learnt from; null when nobody said.")
    merged_into: MergedInto
    dtype: Dtype
    is_promoted: bool = Field(description="Whether this adapter was promoted, and not taken out of use since.")
    verdict_sha256: str | None = Field(pattern=_SHA256, description="Of the verdict of the gate; null without one.")
    verdict_passed: bool | None = Field(description="What it says; null without one.")
    merge_report_sha256: str = Field(pattern=_SHA256, description="Of the proof that it is the model that was judged.")
    token_agreement: float = Field(ge=0, le=1, description="Of that proof.")
    system_prompt: str = Field(description="What precedes every request; the template adds it.")
    chat_template: str = Field(description="Jinja, as in the folder.")
    stop_tokens: tuple[str, ...] = Field(min_length=1)
    stop_token_ids: tuple[int, ...] = Field(min_length=1)
    context_length: int = Field(ge=1, description="Tokens that the model can look back on.")
    trained_length: int = Field(ge=1, description="Tokens of the longest row that it was trained on.")
    files: tuple[HandedFile, ...] = Field(min_length=1, description="All files of the model.")
    gguf: GgufPart | None = Field(description="Null when none was written.")


class ServingHandoff(Document):
    """A model as it is handed to whoever serves it."""

    schema_: Literal["vox_external_serving_handoff_v1"] = Field(
        default="vox_external_serving_handoff_v1", alias="schema"
    )
    schema_version: Literal[1] = 1
    backend_family: Literal["vllm", "ollama", "hf-transformers", "openai-compatible", "other"]
    base_model: str
    tokenizer_source: str = Field(description="Where the tokenizer is, relative to this document.")
    artifact_dir: str = Field(description="The folder of the model, relative to this document.")
    prompt_format: Literal["qwen_chatml_im_start"] = "qwen_chatml_im_start"
    adapter_path: str | None = Field(default=None, description="Null: the adapter is merged.")
    openai_base_url: str | None = Field(default=None, description="Null: nothing is served yet.")
    notes: str | None = None
    mens: MensPart


def handed_files(folder: Path, names: Iterable[str], prefix: str) -> tuple[HandedFile, ...]:
    """Return files of a folder with their hashes; the prefix is the folder relative to the document, or `.`."""
    paths = ((name, folder / name) for name in sorted(names))
    return tuple(
        HandedFile(
            path=name if prefix == "." else f"{prefix}/{name}", sha256=digest_of(path), num_bytes=path.stat().st_size
        )
        for name, path in paths
    )


def changed_files(document: Path) -> tuple[str, ...]:
    """Return the files of a hand-off that are gone or not as they were written."""
    handoff = ServingHandoff.model_validate_json(document.read_text(encoding="utf-8"))
    paths = ((file, document.parent / file.path) for file in handoff.mens.files)
    return tuple(file.path for file, path in paths if not path.is_file() or digest_of(path) != file.sha256)
