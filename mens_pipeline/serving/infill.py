"""Code at a cursor over HTTP: formats of llama.cpp (`/infill`, `/completion`) and Mistral (`/v1/fim/completions`).

Editors send the text on both sides of the cursor; in OpenAI's and Ollama's formats, `suffix` is the text after it.
Unsupported fields are ignored and named in the warning header: an editor must not be refused for them.
"""

import os
from collections.abc import Sequence
from importlib.metadata import version
from platform import machine
from typing import Any, ClassVar, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.serving.completions import ClientResponse
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Piece, PreparedRequest
from mens_pipeline.serving.http import Listing, fit_header, list_stops
from mens_pipeline.serving.openai import ChatResponse
from mens_pipeline.serving.served_model import ServedModel

INFILL: Final = "/infill"
COMPLETION: Final = "/completion"
PROPERTIES: Final = ("/props", "/v1/props")
TABBY_HEALTH: Final = "/v1/health"
FIM: Final = "/v1/fim/completions"

_USUAL_TOKENS: Final = 128  # limit of a piece, unless a request sets one


class _AtCursor(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    model: str = ""
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, validation_alias=AliasChoices("seed", "random_seed"))
    stop: str | Listing[str] | None = None
    stream: bool | None = None

    _known: ClassVar[frozenset[str]] = frozenset()
    """Other fields that request the default behaviour."""

    @property
    def is_streamed(self) -> bool:
        return bool(self.stream)

    def _to_generation(self, prefix: str, suffix: str, max_tokens: int | None) -> GenerationRequest:
        passed = {name for name, value in (self.model_extra or {}).items() if value is not None}
        return GenerationRequest(
            model=self.model,
            num_completions=0 if max_tokens == 0 else 1,
            text=prefix,
            suffix=suffix,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=None if self.seed is None or self.seed < 0 else self.seed,
            max_tokens=max_tokens if max_tokens is not None and max_tokens > 0 else _USUAL_TOKENS,
            stop=tuple(text for text in list_stops(self.stop) if text),
            ignored=fit_header(passed - self._known),
        )


class FimRequest(_AtCursor):
    """A request in Mistral's format."""

    prompt: str
    suffix: str | None = None
    max_tokens: int | None = None

    @property
    def generation(self) -> GenerationRequest:
        """The request in the format of the queue."""
        return self._to_generation(self.prompt, self.suffix or "", self.max_tokens or None)

    def to_response(self, served: ServedModel, request: PreparedRequest) -> "FimResponse":
        """Return the formatter of the response."""
        return FimResponse(served, request)


class FimResponse(ChatResponse):
    """The response in Mistral's format, which equals a chat response."""

    path, _prefix = FIM, "fim"

    def _format_delta(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Format a chunk as Mistral does: even the last one has a content, which clients rely on."""
        choice = super()._format_delta(number, event)
        return {**choice, "delta": {"content": "", **choice["delta"]}}


class InfillRequest(_AtCursor):
    """A request in llama.cpp's format: `prompt` is the line up to the cursor.

    In `/completion` it is the whole text, perhaps with marks around the text on both sides of the cursor.
    """

    _known = frozenset({"cache_prompt", "n_indent", "samplers", "id_slot", "api_key"})

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    n_predict: int | None = Field(default=None, description="0: only announce the prompt.")
    response_fields: Listing[str] | None = Field(default=None, description="Fields to return; `a/b` is field b of a.")

    @model_validator(mode="after")
    def _check_fields(self) -> "InfillRequest":
        if self.n_predict != 0 and self.model_fields_set.isdisjoint(("input_prefix", "input_suffix", "prompt")):
            raise ValueError("input_prefix, input_suffix, prompt: all missing; send the code around the cursor")
        return self

    @property
    def generation(self) -> GenerationRequest:
        """The request in the format of the queue, without the pieces of other files."""
        return self._to_generation(self.input_prefix + self.prompt, self.input_suffix, self.n_predict)

    def to_response(self, served: ServedModel, request: PreparedRequest) -> "InfillResponse":
        """Return the formatter of the response."""
        return InfillResponse(served.name, request, self.response_fields)


_NOTHING: Final = GenerationResult("", (), "length", 0, 0, 0.0, 0.0, is_constrained=False)


class InfillResponse(ClientResponse):
    """The response in llama.cpp's format, with the fields that the client requests."""

    path = INFILL

    def __init__(self, name: str, request: PreparedRequest, fields: Sequence[str] | None) -> None:
        self._name = name
        self._id = request.asked.id
        self._num_prompt = len(request.prompt)
        self._fields = fields

    def format_whole(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        """Format the only completion, or an empty one for a client that announces its prompt."""
        result = next(iter(results), _NOTHING)
        return self._format(result.text, result)

    def format_event(self, _number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Format a piece, or the last event, which has no text."""
        return self._format(event.text, None) if isinstance(event, Piece) else self._format("", event)

    def _format(self, text: str, result: GenerationResult | None) -> dict[str, Any]:
        document = {"content": text, "stop": result is not None, "model": self._name}
        if result is None:
            return document
        timings = {
            **_format_timings("prompt", self._num_prompt, result.prompt_seconds),
            **_format_timings("predicted", result.num_computed, result.seconds),
        }
        whole = {
            **document,
            "id": self._id,
            **result.details,
            "stop_type": "eos" if result.reason == "stop" else "limit",
            "truncated": False,
            "tokens_predicted": result.num_tokens,
            "tokens_evaluated": self._num_prompt,
            "timings": timings,
        }
        if self._fields is None:
            return whole
        flat = {**whole, **{f"timings/{name}": value for name, value in timings.items()}}
        return {name: flat[name] for name in self._fields if name in flat}


def _format_timings(name: str, number: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": number,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / max(number, 1),
        f"{name}_per_second": number / seconds if seconds else 0.0,
    }


def describe_server(served: ServedModel, num_slots: int) -> dict[str, Any]:
    """Return the properties that clients of llama.cpp read."""
    return {
        "default_generation_settings": {"n_ctx": served.max_context},
        "total_slots": num_slots,
        "model_path": served.name,
    }


def describe_health(served: ServedModel) -> dict[str, Any]:
    """Return the health document that plugins of Tabby read; versions below 0.9 read no other."""
    own = version("mens-pipeline")
    return {
        "model": served.name,
        "device": served.evaluated.device,
        "arch": machine(),
        "cpu_info": "",
        "cpu_count": os.cpu_count() or 1,
        "cuda_devices": [],
        "version": {"build_date": "", "build_timestamp": "", "git_sha": served.fingerprint, "git_describe": f"v{own}"},
    }
