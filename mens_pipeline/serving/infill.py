"""Code at a cursor over HTTP: formats of llama.cpp (`/infill`, `/completion`) and Mistral (`/v1/fim/completions`).

Editors send what stands before and behind the cursor; OpenAI's and Ollama's formats take it as `suffix`. A field that
would change how a piece is drawn, and is not supported, is passed over and named in the warning header: an editor must
not be refused for it.
"""

import json
import os
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from platform import machine
from typing import Any, ClassVar, Final

from fastapi.sse import format_sse_event
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from mens_pipeline.serving.completions import Completions
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Piece
from mens_pipeline.serving.http import Listing, RequestRefusedError, fit_header
from mens_pipeline.serving.openai import ChatResponse
from mens_pipeline.serving.served_model import ServedModel

INFILL: Final = "/infill"
COMPLETION: Final = "/completion"
PROPERTIES: Final = ("/props", "/v1/props")
TABBY_HEALTH: Final = "/v1/health"
FIM: Final = "/v1/fim/completions"

_USUAL_TOKENS: Final = 128
"""Most tokens of a piece where a request does not say."""


class _AtCursor(BaseModel):
    """Fields that both formats share; what is not known is named as passed over."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    model: str = ""
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, validation_alias=AliasChoices("seed", "random_seed"))
    stop: str | Listing[str] | None = None
    stream: bool | None = None

    _known: ClassVar[frozenset[str]] = frozenset()
    """Fields that ask for what is done anyway."""

    def to_generation(self, prefix: str, suffix: str, max_tokens: int | None) -> GenerationRequest:
        """Return the request as the queue takes it."""
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop or ()
        passed = {name for name, value in (self.model_extra or {}).items() if value is not None}
        return GenerationRequest(
            model=self.model,
            text=prefix,
            suffix=suffix,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=None if self.seed is None or self.seed < 0 else self.seed,
            max_tokens=max_tokens if max_tokens is not None and max_tokens > 0 else _USUAL_TOKENS,
            stop=tuple(text for text in stops if text),
            ignored=fit_header(passed - self._known),
        )


class FimRequest(_AtCursor):
    """A request in Mistral's format."""

    prompt: str
    suffix: str | None = None
    max_tokens: int | None = None

    @property
    def generation(self) -> GenerationRequest:
        """The request as the queue takes it."""
        return self.to_generation(self.prompt, self.suffix or "", self.max_tokens)


class FimResponse(ChatResponse):
    """The response in Mistral's format, which is that of a chat."""

    _path, _prefix = FIM, "fim"

    def _chunk(self, number: int, event: Piece | GenerationResult) -> dict[str, Any]:
        """Return a chunk as Mistral has it: the last one has a content as well, which clients rely on."""
        chunk = super()._chunk(number, event)
        return {**chunk, "delta": {"content": "", **chunk["delta"]}}


class InfillRequest(_AtCursor):
    """A request in llama.cpp's format: `prompt` is what stands before the cursor in its line.

    In `/completion` it is all, perhaps with what stands behind the cursor between marks.
    """

    _known = frozenset({"cache_prompt", "n_indent", "samplers", "id_slot", "api_key"})

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    n_predict: int | None = Field(default=None, description="0: read the prompt, for a request that comes later.")
    response_fields: Listing[str] | None = Field(default=None, description="Fields to respond with; `a/b` is b of a.")

    @property
    def generation(self) -> GenerationRequest:
        """The request as the queue takes it; pieces of other files are not looked at."""
        return self.to_generation(self.input_prefix + self.prompt, self.input_suffix, self.n_predict)


class InfillResponse:
    """The response in llama.cpp's format."""

    def __init__(self, name: str, request: GenerationRequest, fields: Sequence[str] | None) -> None:
        """Take the name of the model, the request with its prompt, and the fields that the client wants."""
        self._name = name
        self._id = request.id
        self._num_prompt = len(request.prompt)
        self._fields = fields

    def format(self, text: str, result: GenerationResult | None) -> dict[str, Any]:
        """Return an event of a stream, or with the result its last one or the whole response."""
        document = {"content": text, "stop": result is not None, "model": self._name}
        if result is None:
            return document
        timings = {
            **_timings("prompt", self._num_prompt, result.prompt_seconds),
            **_timings("predicted", result.num_computed, result.seconds),
        }
        whole = {
            **document,
            "id": self._id,
            **result.details,
            "stop_type": "eos" if result.reason == "stop" else "limit",
            "truncated": False,
            "tokens_predicted": result.num_computed,
            "tokens_evaluated": self._num_prompt,
            "timings": timings,
        }
        if self._fields is None:
            return whole
        flat = {**whole, **{f"timings/{name}": value for name, value in timings.items()}}
        return {name: flat[name] for name in self._fields if name in flat}

    def format_nothing(self) -> dict[str, Any]:
        """Return the response to a client that wants no tokens: it only announces what it will ask for."""
        return self.format("", GenerationResult("", (), "length", 0, 0, 0.0, 0.0, is_constrained=False))

    async def format_stream(self, completions: Completions) -> AsyncIterator[bytes]:
        """Yield the response as server-sent events."""
        try:
            async for _, event in completions.events():
                document = self.format(event.text, None) if isinstance(event, Piece) else self.format("", event)
                yield format_sse_event(data_str=json.dumps(document, ensure_ascii=False))
        except RequestRefusedError as error:
            yield format_sse_event(data_str=json.dumps(error.document(INFILL), ensure_ascii=False))


def _timings(name: str, number: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": number,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / max(number, 1),
        f"{name}_per_second": number / seconds if seconds else 0.0,
    }


def describe_server(served: ServedModel, num_slots: int) -> dict[str, Any]:
    """Return what clients of llama.cpp ask a server about itself."""
    return {
        "default_generation_settings": {"n_ctx": served.max_context},
        "total_slots": num_slots,
        "model_path": served.name,
    }


def describe_health(served: ServedModel) -> dict[str, Any]:
    """Return what plugins of Tabby ask a server first, and want whole; below version 0.9 they ask for nothing else."""
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
