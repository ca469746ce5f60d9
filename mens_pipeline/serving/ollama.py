"""Requests and responses in Ollama's format."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.models.base import template_in
from mens_pipeline.models.chat import Turn, format_of
from mens_pipeline.serving.completions import Completions
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Piece
from mens_pipeline.serving.http import OLLAMA_PATHS, Lenient, Listing, RequestRefusedError, find_turn_errors
from mens_pipeline.serving.served_model import ServedModel

_NANOSECONDS: Final = 1e9
_IDLE: Final[dict[str, tuple[Any, ...]]] = {
    "context": (None, []),
    "format": (None, ""),
    "images": (None, []),
    "raw": (None, False),
    "template": (None, ""),
    "think": (None, False),
    "tools": (None, []),
}
"""Parameters that are not supported, at the values that ask for nothing."""

_RAW: Final = "{{ .Prompt }}"
"""The template of a prompt that is shown as it stands."""

_IGNORED: Final = frozenset(
    {
        *("f16_kv", "frequency_penalty", "logits_all", "low_vram", "main_gpu", "min_p", "mirostat", "mirostat_eta"),
        *("mirostat_tau", "num_batch", "num_ctx", "num_gpu", "num_keep", "num_thread", "numa", "penalize_newline"),
        *("presence_penalty", "repeat_last_n", "repeat_penalty", "tfs_z", "top_k", "typical_p", "use_mlock"),
        *("use_mmap", "vocab_only"),
    }
)
"""Options of a machine, or of a way to draw tokens that is not supported; editors send them along."""


class _Options(Lenient):
    harmless = _IGNORED

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    num_predict: int | None = Field(default=None, description="Below 0: as many as there may be.")
    stop: str | Listing[str] | None = None
    ignored: tuple[str, ...] = Field(default=(), description="Options that were taken away; never what a client sends.")


class _Request(Lenient):
    idle = _IDLE

    model: str = ""
    stream: bool | None = None
    options: _Options | None = None
    keep_alive: str | float | None = Field(default=None, description="The model stays as long as the server.")

    @property
    def is_streamed(self) -> bool:
        """Whether the completion comes piece by piece; as Ollama does, unless told otherwise."""
        return self.stream is not False

    def _to_generation(self, turns: tuple[Turn, ...]) -> GenerationRequest:
        options = self.options or _Options()
        stop = (options.stop,) if isinstance(options.stop, str) else options.stop or ()
        most = options.num_predict
        return GenerationRequest(
            model=self.model,
            turns=turns,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed,
            max_tokens=None if most is None or most < 1 else most,
            stop=tuple(text for text in stop if text),
            limit_field="num_predict",
            ignored=tuple(f"options.{name}" for name in options.ignored),
        )


class GenerateRequest(_Request):
    """A request and perhaps a system text."""

    idle: ClassVar = {name: values for name, values in _IDLE.items() if name not in {"raw", "template"}}
    harmless: ClassVar = frozenset[str]()

    prompt: str
    system: str | None = None
    suffix: str | None = Field(default=None, description="What stands behind the cursor that the prompt ends at.")
    raw: bool | None = Field(default=None, description="Go on from the prompt, as it stands.")
    template: str | None = Field(default=None, description="That of the prompt alone says the same.")
    ignored: tuple[str, ...] = Field(default=(), description="Fields that were taken away; never what a client sends.")

    @classmethod
    def is_at_cursor(cls, values: Mapping[str, Any]) -> bool:
        """Whether a suffix came along, or the prompt may have one between marks."""
        return bool(values.get("suffix") or values.get("raw"))

    @model_validator(mode="after")
    def _check_template(self) -> "GenerateRequest":
        if self.template and not self._is_raw:
            raise ValueError(f'template: the model has its own. Leave it out, or send "{_RAW}"')
        return self

    @property
    def _is_raw(self) -> bool:
        return bool(self.raw) or self.template == _RAW

    @property
    def generation(self) -> GenerationRequest:
        """The request as the queue takes it."""
        if self.suffix or self._is_raw:
            text = replace(self._to_generation(()), text=self.prompt, suffix=self.suffix or None)
            return replace(text, ignored=(*text.ignored, *self.ignored))
        system = (Turn("system", self.system),) if self.system else ()
        return self._to_generation((*system, Turn("user", self.prompt)))


class _Message(Lenient):
    idle: ClassVar = {"images": (None, []), "tool_calls": (None, []), "thinking": (None, "")}

    role: Literal["system", "user", "assistant"]
    content: str


class OllamaChatRequest(_Request):
    """A conversation."""

    messages: Listing[_Message] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_turns(self) -> "OllamaChatRequest":
        if errors := find_turn_errors([Turn(message.role, message.content) for message in self.messages]):
            raise ValueError("; ".join(errors))
        return self

    @property
    def generation(self) -> GenerationRequest:
        """The request as the queue takes it."""
        return self._to_generation(tuple(Turn(message.role, message.content) for message in self.messages))


class ShowRequest(BaseModel):
    """Request for the description of a model."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: str = Field(validation_alias=AliasChoices("model", "name"))


class OllamaResponse:
    """The response to one request."""

    def __init__(self, served: ServedModel, request: GenerationRequest, *, is_chat: bool) -> None:
        self._name = served.name
        self._id = request.id
        self._num_prompt = len(request.prompt)
        self._is_chat = is_chat
        self._begun = time.monotonic()

    async def format_stream(self, completions: Completions) -> AsyncIterator[bytes]:
        """Yield the response as lines of JSON."""
        try:
            async for _, event in completions.events():
                document = self.format(event.text, None) if isinstance(event, Piece) else self.format("", event)
                yield _line(document)
        except RequestRefusedError as error:
            yield _line(error.document(OLLAMA_PATHS))

    def format(self, text: str, result: GenerationResult | None) -> dict[str, Any]:
        """Return a line of a stream, or with the result its last line or the whole response."""
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        text_field = content if self._is_chat else {"response": text}
        document = {"model": self._name, "created_at": datetime.now(UTC).isoformat(), **text_field}
        if result is None:
            return {**document, "done": False}
        return {
            **document,
            "id": self._id,
            "done": True,
            "done_reason": result.reason,
            **result.details,
            "total_duration": int((time.monotonic() - self._begun) * _NANOSECONDS),
            "load_duration": 0,
            "prompt_eval_count": self._num_prompt,
            "prompt_eval_duration": int(result.prompt_seconds * _NANOSECONDS),
            "eval_count": result.num_tokens,
            "computed_count": result.num_computed,
            "eval_duration": int(result.seconds * _NANOSECONDS),
        }


def tag(served: ServedModel, name: str, num_bytes: int) -> dict[str, Any]:
    """Return the entry of a model in Ollama's list of models."""
    full = f"{name}:latest"
    return {
        "name": full,
        "model": full,
        "modified_at": datetime.fromtimestamp(served.created_unix, UTC).isoformat(),
        "size": num_bytes,
        "digest": served.sha256,
        "details": {
            "parent_model": "",
            "format": "safetensors",
            "family": served.architecture,
            "families": [served.architecture],
            "parameter_size": f"{served.num_parameters / 1e6:.0f}M",
            "quantization_level": served.evaluated.quantization,
        },
    }


def describe_model(served: ServedModel, num_bytes: int) -> dict[str, Any]:
    """Describe a model."""
    listed = tag(served, served.name, num_bytes)
    family = served.architecture
    return {
        "modelfile": f"FROM {served.name}",
        "parameters": "temperature 0",
        "template": _template(served),
        "system": served.system_prompt,
        "details": listed["details"],
        "modified_at": listed["modified_at"],
        "model_info": {
            "general.architecture": family,
            "general.parameter_count": served.num_parameters,
            f"{family}.context_length": served.max_context,
        },
        "capabilities": ["completion", *(["insert"] if served.infill_window is not None else [])],
    }


def _template(served: ServedModel) -> str:
    """Return the chat template; clients know by `.Suffix` in it that the model completes at a cursor."""
    chat = format_of(template_in(served.evaluated.base_path)).template()
    return (
        chat
        if served.infill_window is None
        else f"{{{{- if .Suffix }}}}{{{{ .Prompt }}}}{{{{ .Suffix }}}}{{{{ end }}}}{chat}"
    )


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"
