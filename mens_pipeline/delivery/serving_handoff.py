"""Hand-offs of a model to a server: an artifact, or a folder that contains the model."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mens_pipeline.delivery.agreement import COMPARISONS, Dtype, GgufType
from mens_pipeline.delivery.gguf import GGUF_REPORT, MODELFILE, format_modelfile, gguf_report_in
from mens_pipeline.delivery.merge import (
    MERGE_REPORT,
    MergedInto,
    MergeSource,
    card_of_source,
    manifest_in,
    refuse_difference,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.adapter import CARD
from mens_pipeline.models.base import read_tokenizer, template_in
from mens_pipeline.models.chat import FormatName, format_of
from mens_pipeline.storage.documents import draft_folder
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.kinds import HandoffFile, Kind
from mens_pipeline.storage.stage import DecidedBy, Params, Parent, Stage
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.storage.validation import Document

HANDOFF: Final = HandoffFile.HANDOFF
"""Upstream's document, with exactly the fields of its schema."""

DETAILS: Final = HandoffFile.DETAILS
"""Our document with more details, next to upstream's."""

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
    led_agreement: float = Field(ge=0, le=1, description="Teacher-forced agreement with the merged model.")


class HandedModel(Document):
    """Adapter, base, licences and verdict of merged weights, by hash."""

    schema_: Literal["mens_handoff_v1"] = Field(default="mens_handoff_v1", alias="schema")
    name: str
    adapter_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the adapter's weights.")
    base_revision: str | None
    base_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the folder of the base.")
    licence: str | None = Field(description="Licence of the base; null if it is not stated.")
    data_licence: str | None = Field(description="Licence of the training data; null if it is not stated.")
    merged_into: MergedInto
    dtype: Dtype
    is_promoted: bool = Field(description="Whether this adapter was promoted, and not rolled back since.")
    verdict_sha256: str | None = Field(pattern=_SHA256, description="SHA-256 of the gate's verdict, if there is one.")
    verdict_passed: bool | None = Field(description="Whether the verdict passed, if there is one.")
    merge_report_sha256: str = Field(pattern=_SHA256, description="SHA-256 of the comparison with the evaluated model.")
    token_agreement: float = Field(ge=0, le=1, description="Share of equal tokens in that comparison.")
    system_prompt: str = Field(description="The template adds it to every request.")
    chat_template: str = Field(description="Jinja template, as in the folder.")
    stop_tokens: tuple[str, ...] = Field(min_length=1)
    stop_token_ids: tuple[int, ...] = Field(min_length=1)
    context_length: int = Field(ge=1, description="Tokens of prompt and completion together.")
    trained_length: int = Field(ge=1, description="Tokens of the longest row in training.")
    files: tuple[HandedFile, ...] = Field(min_length=1, description="All files of the model.")
    gguf: GgufPart | None = Field(description="Null without a GGUF file.")


class ServingHandoff(Document):
    """Upstream's document on a model that is handed to a server."""

    schema_: Literal["vox_external_serving_handoff_v1"] = Field(
        default="vox_external_serving_handoff_v1", alias="schema"
    )
    schema_version: Literal[1] = 1
    backend_family: Literal["vllm", "ollama", "hf-transformers", "openai-compatible", "other"]
    base_model: str = Field(min_length=1)
    tokenizer_source: str = Field(min_length=1, description="Location of the tokenizer, relative to this document.")
    artifact_dir: str = Field(min_length=1, description="The folder of the model, relative to this document.")
    prompt_format: FormatName = "qwen_chatml_im_start"
    adapter_path: str | None = Field(default=None, description="Null: the adapter is merged.")
    openai_base_url: str | None = Field(default=None, description="Null: nothing is served yet.")
    notes: str | None = None


def handed_files(folder: Path, names: Iterable[str], prefix: str) -> tuple[HandedFile, ...]:
    """Hash files of a folder; the prefix is the path of the folder relative to the document."""
    paths = ((_below(prefix, name), folder / name) for name in sorted(names))
    return tuple(HandedFile(path=name, sha256=digest_of(path), num_bytes=path.stat().st_size) for name, path in paths)


def changed_files(document: Path) -> tuple[str, ...]:
    """Return the files of a hand-off that are missing or changed."""
    paths = ((file, document.parent / file.path) for file in read_details(document).files)
    return tuple(file.path for file, path in paths if not path.is_file() or digest_of(path) != file.sha256)


def read_details(document: Path) -> HandedModel:
    """Read the details next to a hand-off; raise OSError or ValueError if they are damaged."""
    return HandedModel.model_validate_json(read_regular(document.with_name(DETAILS), _LONGEST))


_NOT_OF_THE_MODEL: Final = (STORE_MANIFEST, COMPARISONS)
_SHOWN: Final = 3
_LONGEST: Final = 10_000_000  # bytes of a hand-off
_NAME_ANOTHER: Final = "Name an empty folder, or a new one."
_NOTES: Final = (
    "Decode greedily, as in its evaluation. Break control tokens in user input, or users can forge turns. "
    f"README.md shows the prompt at a cursor, if the model was trained to complete there. {DETAILS} next to this file "
    "has the template, stop tokens, lengths, licences, verdict, and the SHA-256 of every file."
)


def _decide(source: MergeSource) -> tuple[str | None, ...]:
    notice = (source.notice,) if source.notice else ()  # hand-offs without a notice keep their keys
    return (source.verdict_sha256, source.promoted and source.promoted.key, *notice)


class Delivery(Params):
    """A model to hand on, with its adapter."""

    source: Annotated[MergeSource, DecidedBy(_decide)]
    merged: Parent
    gguf: Parent | None
    data_licence: str | None


def write_serving_handoff(folder: Path, delivery: Delivery) -> dict[str, Any]:
    """Write the document, with paths relative to itself, the card, and a Modelfile if there is a GGUF file."""
    merged, gguf = delivery.merged, delivery.gguf
    up_gguf = f"../../{gguf.kind}/{gguf.key}" if gguf is not None else "."
    _write_documents(folder, delivery, f"../../{merged.kind}/{merged.key}", up_gguf)
    return {"name": manifest_in(merged.path).name}


STAGE: Final = Stage(Kind.SERVING_HANDOFF, (__name__,), write_serving_handoff)


def build_serving_handoff(delivery: Delivery, store: ArtifactStore) -> tuple[Artifact, bool]:
    """Return the hand-off of a merged model, and whether it was reused.

    `RefusedError` if the model differs from the evaluated one.
    """
    refuse_difference(delivery.merged.path)
    promoted = delivery.source.promoted
    return STAGE.build(store, delivery.model_copy(update={"origins": (promoted,) if promoted is not None else ()}))


def write_folder(delivery: Delivery, folder: Path) -> Path:
    """Write a self-contained folder with document, model and card, and return the path of the document.

    An older hand-off in the folder is replaced. `RefusedError` if the merged model differs from the evaluated one, or
    the folder holds something else or cannot be written.
    """
    refuse_difference(delivery.merged.path)
    refuse_foreign(folder)
    target = folder.resolve()
    try:
        with draft_folder(target) as draft:
            for name in _model_files(delivery.merged):
                shutil.copy2(delivery.merged.path / name, draft / name)
            if delivery.gguf is not None:
                for name in (gguf_report_in(delivery.gguf.path).file_name, GGUF_REPORT):
                    shutil.copy2(delivery.gguf.path / name, draft / name)
            _write_documents(draft, delivery, ".", ".")
            # Replace the content, not the folder: it may be somebody's working directory.
            target.mkdir(exist_ok=True)
            for path in target.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in sorted(draft.iterdir(), key=lambda path: path.name == DETAILS):
                path.replace(target / path.name)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder / HANDOFF


def refuse_foreign(folder: Path) -> None:
    """Refuse (`RefusedError`) a folder that cannot be written, or holds anything but a hand-off."""
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise RefusedError(f"{folder}: not a folder. {_NAME_ANOTHER}")
    foreign = _find_foreign(target) if target.is_dir() else ()
    if foreign:
        shown = ", ".join(foreign[:_SHOWN])
        raise RefusedError(f"{folder}: contains files that are not part of a hand-off ({shown}). {_NAME_ANOTHER}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(target):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> RefusedError:
    return RefusedError(f"{folder}: cannot be written ({error.strerror}). Name another folder.")


def _find_foreign(folder: Path) -> tuple[str, ...]:
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    found = {path.relative_to(folder).as_posix() for path in paths}
    ours: set[str] = {HANDOFF, DETAILS}
    if HANDOFF in found:
        try:
            details = read_details(folder / HANDOFF)
        except (OSError, ValueError) as error:
            raise RefusedError(f"{folder / HANDOFF}: its details cannot be read. {_NAME_ANOTHER}") from error
        ours |= {file.path for file in details.files}
    return tuple(sorted(found - ours))


def _write_documents(folder: Path, delivery: Delivery, to_model: str, to_gguf: str) -> None:
    merged, gguf, part = delivery.merged, delivery.gguf, None
    card = card_of_source(delivery.source, "merged", delivery.data_licence)
    (folder / CARD).write_text(card, encoding="utf-8")
    files = handed_files(merged.path, _model_files(merged), to_model)
    written = [CARD]
    if gguf is not None:
        report = gguf_report_in(gguf.path)
        files += handed_files(gguf.path, (report.file_name, GGUF_REPORT), to_gguf)
        path = _below(to_gguf, report.file_name)
        part = GgufPart(path=path, file_type=report.file_type, led_agreement=report.agreement.led_agreement)
        chat = format_of(template_in(merged.path))
        text = format_modelfile(path, manifest_in(merged.path).system_prompt, _context_length(merged.path), chat)
        (folder / MODELFILE).write_text(text, encoding="utf-8")
        written.append(MODELFILE)
    handoff = ServingHandoff(
        backend_family="hf-transformers" if gguf is None else "ollama",
        base_model=manifest_in(merged.path).base_model,
        tokenizer_source=to_model,
        artifact_dir=to_model,
        prompt_format=format_of(template_in(merged.path)).name,
        notes=_NOTES,
    )
    (folder / HANDOFF).write_text(handoff.model_dump_json(indent=2) + "\n", encoding="utf-8")
    details = _build_details(delivery, part, (*files, *handed_files(folder, (*written, HANDOFF), ".")))
    (folder / DETAILS).write_text(details.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _build_details(delivery: Delivery, gguf: GgufPart | None, files: tuple[HandedFile, ...]) -> HandedModel:
    source, merged = delivery.source, delivery.merged.path
    manifest, report = manifest_in(merged), refuse_difference(merged)
    named = json.loads((merged / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    stop = tuple(named) if isinstance(named, list) else (named,)
    tokenizer = read_tokenizer(merged / "tokenizer.json")
    return HandedModel(
        name=manifest.name,
        adapter_sha256=source.adapter.digest,
        base_revision=manifest.base_revision,
        base_sha256=manifest.base_sha256,
        licence=manifest.base_licence,
        data_licence=delivery.data_licence,
        merged_into=manifest.merged_into,
        dtype=manifest.dtype,
        is_promoted=source.promoted is not None,
        verdict_sha256=source.verdict_sha256,
        verdict_passed=source.receipt.overall_passed if source.receipt is not None else None,
        merge_report_sha256=digest_of(merged / MERGE_REPORT),
        token_agreement=report.agreement.token_agreement,
        system_prompt=manifest.system_prompt,
        chat_template=(merged / "chat_template.jinja").read_text(encoding="utf-8"),
        stop_tokens=tuple(str(tokenizer.id_to_token(number)) for number in stop),
        stop_token_ids=stop,
        context_length=_context_length(merged),
        trained_length=source.adapter.manifest.result.longest,
        files=files,
        gguf=gguf,
    )


def _model_files(merged: Artifact) -> list[str]:
    return [name for name in merged.outputs if name not in _NOT_OF_THE_MODEL]


def _below(prefix: str, name: str) -> str:
    return name if prefix == "." else f"{prefix}/{name}"


def _context_length(merged: Path) -> int:
    config = json.loads((merged / "config.json").read_text(encoding="utf-8"))
    return int(config.get("text_config", config)["max_position_embeddings"])
