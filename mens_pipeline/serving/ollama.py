"""Requests and responses in Ollama's format."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.models.base import template_in
from mens_pipeline.models.chat import Turn, format_of
from mens_pipeline.serving.completions import ClientResponse
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Piece, PreparedRequest
from mens_pipeline.serving.http import OLLAMA_PATHS, Lenient, Listing, find_turn_errors, list_stops
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
"""Unsupported parameter -> values without effect."""

_RAW: Final = "{{ .Prompt }}"  # the template that keeps a prompt unchanged
_IGNORED: Final = frozenset(
    {
        *("cache_prompt", "f16_kv", "frequency_penalty", "logits_all", "low_vram", "main_gpu", "min_p", "mirostat"),
        *("mirostat_eta", "mirostat_tau", "num_batch", "num_ctx", "num_gpu", "num_keep", "num_thread", "numa"),
        *("penalize_newline", "presence_penalty", "repeat_last_n", "repeat_penalty", "repetition_penalty", "tfs_z"),
        *("top_k", "typical_p", "use_mlock", "use_mmap", "vocab_only"),
    }
)
"""Options of the machine, or of unsupported sampling methods, which editors send anyway."""


class _Options(Lenient):
    harmless = _IGNORED

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    num_predict: int | None = Field(default=None, description="Below 1: as many as possible.")
    stop: str | Listing[str] | None = None
    ignored: tuple[str, ...] = Field(default=(), description="Options that were dropped; never sent by a client.")


class _OllamaRequest(Lenient):
    idle = _IDLE
    is_chat: ClassVar[bool]

    model: str = ""
    stream: bool | None = None
    options: _Options | None = None
    keep_alive: str | float | None = Field(default=None, description="The model stays as long as the server.")

    @property
    def is_streamed(self) -> bool:
        """Whether the response comes piece by piece, which is Ollama's default."""
        return self.stream is not False

    def to_response(self, served: ServedModel, request: PreparedRequest) -> "OllamaResponse":
        return OllamaResponse(served, request, is_chat=self.is_chat)

    def _to_generation(self, turns: tuple[Turn, ...]) -> GenerationRequest:
        options = self.options or _Options()
        most = options.num_predict
        return GenerationRequest(
            model=self.model,
            turns=turns,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed,
            max_tokens=None if most is None or most < 1 else most,
            stop=tuple(text for text in list_stops(options.stop) if text),
            limit_field="num_predict",
            ignored=tuple(f"options.{name}" for name in options.ignored),
        )


class GenerateRequest(_OllamaRequest):
    """A prompt, perhaps with a system text or a suffix."""

    is_chat = False
    idle: ClassVar = {name: values for name, values in _IDLE.items() if name not in {"raw", "template"}}
    harmless: ClassVar = frozenset[str]()

    prompt: str
    system: str | None = None
    suffix: str | None = Field(default=None, description="Text after the cursor at the end of the prompt.")
    raw: bool | None = Field(default=None, description="Continue the prompt unchanged.")
    template: str | None = Field(default=None, description="`{{ .Prompt }}` means the same as `raw`.")
    ignored: tuple[str, ...] = Field(default=(), description="Fields that were dropped; never sent by a client.")

    @classmethod
    def is_at_cursor(cls, values: Mapping[str, Any]) -> bool:
        """Return whether there is a suffix, or the prompt may hold one between marks."""
        return bool(values.get("suffix") or values.get("raw"))

    @model_validator(mode="after")
    def _check_template(self) -> "GenerateRequest":
        if self.template and not self._is_raw:
            raise ValueError(f'template: the model uses its own template. Leave it out, or send "{_RAW}"')
        return self

    @property
    def _is_raw(self) -> bool:
        return bool(self.raw) or self.template == _RAW

    @property
    def generation(self) -> GenerationRequest:
        """The request in the format of the queue."""
        if self.suffix or self._is_raw:
            text = replace(self._to_generation(()), text=self.prompt, suffix=self.suffix or None)
            return replace(text, ignored=(*text.ignored, *self.ignored))
        system = (Turn("system", self.system),) if self.system else ()
        return self._to_generation((*system, Turn("user", self.prompt)))


class _OllamaMessage(Lenient):
    idle: ClassVar = {"images": (None, []), "tool_calls": (None, []), "thinking": (None, "")}

    role: Literal["system", "user", "assistant"]
    content: str


class OllamaChatRequest(_OllamaRequest):
    """A conversation."""

    is_chat = True
    messages: Listing[_OllamaMessage] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_turns(self) -> "OllamaChatRequest":
        if errors := find_turn_errors(self._turns):
            raise ValueError("; ".join(errors))
        return self

    @property
    def _turns(self) -> tuple[Turn, ...]:
        return tuple(Turn(message.role, message.content) for message in self.messages)

    @property
    def generation(self) -> GenerationRequest:
        """The request in the format of the queue."""
        return self._to_generation(self._turns)


class ShowRequest(BaseModel):
    """Request for the description of a model."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: str = Field(validation_alias=AliasChoices("model", "name"))


class OllamaResponse(ClientResponse):
    """A response, streamed as lines of JSON."""

    path, media_type = OLLAMA_PATHS, "application/x-ndjson"

    def __init__(self, served: ServedModel, request: PreparedRequest, *, is_chat: bool) -> None:
        self._name = served.name
        self._id = request.asked.id
        self._num_prompt = len(request.prompt)
        self._is_chat = is_chat
        self._begun = time.monotonic()

    @staticmethod
    def encode(document: dict[str, Any]) -> bytes:
        """Encode a document as a line."""
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"

    def format_whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        """Format the only completion."""
        return self._format(results[0].text, results[0])

    def format_event(self, _number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Format a piece, or the last line, which has no text."""
        return self._format(event.text, None) if isinstance(event, Piece) else self._format("", event)

    def _format(self, text: str, result: GenerationResult | None) -> dict[str, Any]:
        shown: Any = {"message": {"role": "assistant", "content": text}} if self._is_chat else {"response": text}
        document = {"model": self._name, "created_at": datetime.now(UTC).isoformat(), **shown}
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


def format_tag(served: ServedModel, name: str, num_bytes: int) -> dict[str, Any]:
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
    """Return the response to `/api/show`."""
    listed = format_tag(served, served.name, num_bytes)
    family = served.architecture
    chat = format_of(template_in(served.evaluated.base_path)).template()
    # `.Suffix` tells clients that the model completes at a cursor.
    at_cursor = "{{- if .Suffix }}{{ .Prompt }}{{ .Suffix }}{{ end }}"
    return {
        "modelfile": f"FROM {served.name}",
        "parameters": "temperature 0",
        "template": chat if served.infill_window is None else at_cursor + chat,
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
