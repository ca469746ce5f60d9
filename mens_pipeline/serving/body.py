"""The body of a request: read up to a limit, checked field by field, and the errors of requests that get no answer."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import ClientDisconnect

from mens_pipeline.errors import MensError
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text
from mens_pipeline.models.chat import Turn

OLLAMA_PATHS: Final = "/api/"
"""Where the shape of Ollama is spoken."""

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_SERVERS_FAULT: Final = 500
_NOBODY_LISTENS: Final = 499


class RequestRefusedError(MensError):
    """A request that gets no answer; it says why, to whoever sent it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse a request with a status of HTTP; the field `param` is at fault, and `code` is for machines."""
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def document(self, path: str) -> dict[str, Any]:
        """Return the body of the response, in the shape of the path that was asked for."""
        if path.startswith(OLLAMA_PATHS):
            return {"error": str(self)}
        usual = "server_error" if self.status >= _SERVERS_FAULT else "invalid_request_error"
        kind = _TYPES.get(self.status, usual)
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str) -> JSONResponse:
        """Return the whole response."""
        return JSONResponse(self.document(path), self.status, self.headers)


def nobody_listens() -> RequestRefusedError:
    """Return the error of a client that went away; nobody reads it but the log."""
    return RequestRefusedError(_NOBODY_LISTENS, "The client went away.")


_SECONDS: Final = 30.0
"""How long a body may take to come in."""

_MOST_NAMED: Final = 10
"""Mistakes in a message."""

_UNKNOWN: Final = "extra_forbidden"
_NO_JSON: Final = "json_invalid"
_OWN: Final = "Value error, "

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model], max_bytes: int) -> Model:
    """Read the body of a request, validated as a pydantic model.

    The limit of the web framework is not taken, since it answers in a shape of its own.

    Raises:
        RequestRefusedError: It is too long, too slow, or does not fit, the message names the first
            ten mistakes; or its client went away.
    """
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError as error:
        raise RequestRefusedError(408, f"The body took more than {_SECONDS:g} seconds.", code="timeout") from error
    except ClientDisconnect as error:
        raise nobody_listens() from error
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        raise _misfit(error) from error


def without_idle(values: Any, idle: dict[str, tuple[Any, ...]], harmless: frozenset[str] | None = None) -> Any:
    """Remove the fields of a document that ask for nothing: absent, or at the value that changes nothing.

    Fields that are harmless are taken away whatever they say, and named in the field `ignored`; with None there is no
    such field.
    """
    if not isinstance(values, dict):
        return values
    kept = {name: value for name, value in values.items() if not _is_idle(value, idle.get(name))}
    if harmless is None:
        return kept
    ignored = tuple(sorted(harmless & {name for name, value in kept.items() if value is not None}))
    return {**{name: value for name, value in kept.items() if name not in harmless}, "ignored": ignored}


def _is_idle(value: Any, idle: tuple[Any, ...] | None) -> bool:
    # False is 0 to Python, and not to JSON.
    return idle is not None and any(type(value) is type(other) and value == other for other in idle)


def _too_large(max_bytes: int) -> RequestRefusedError:
    message = f"The body is larger than {max_bytes} bytes. Send less, or start the server with --max-request-bytes."
    return RequestRefusedError(413, message, code="request_too_large", headers={"Connection": "close"})


def _misfit(error: ValidationError) -> RequestRefusedError:
    mistakes = error.errors(include_url=False, include_input=False)
    first = mistakes[0]
    if first["type"] == _NO_JSON:
        return RequestRefusedError(400, f"The body is no JSON: {first['ctx']['error']}.", code="invalid_json")
    named = [(".".join(map(str, mistake["loc"])), mistake) for mistake in mistakes[:_MOST_NAMED]]
    lines = "; ".join(_line(place, mistake["type"], mistake["msg"]) for place, mistake in named)
    code = "unsupported_parameter" if first["type"] == _UNKNOWN else "invalid_value"
    more = f"; and {len(mistakes) - len(named)} more" if len(mistakes) > len(named) else ""
    return RequestRefusedError(400, f"{lines}{more}.", param=named[0][0] or None, code=code)


def _line(place: str, kind: str, message: str) -> str:
    if kind == _UNKNOWN:
        return f"{place}: not supported here, leave it out"
    return f"{place}: {message.removeprefix(_OWN)}" if place else message.removeprefix(_OWN)


OURS: Final = "vox"
"""Says the grammar by its name."""

_FIELDS: Final = ("response_format", "structured_outputs", "guided_grammar", "grammar")
_IDLE_FORMAT: Final = {"type": "text"}
_ADVICE: Final = f'Send "{OURS}", or what `mens grammar` of this version prints.'


def with_grammar(values: Any) -> Any:
    """Turn the fields of a request that ask for a grammar into `decoding`.

    `guided_grammar` is of vLLM, as is `structured_outputs`; `grammar` is of llama.cpp. In all of them, and in
    `response_format` of type `grammar`, the name or the whole text of the grammar may stand.

    Raises:
        ValueError: Another grammar or form of an answer is asked for, or `decoding` says otherwise.
    """
    if not isinstance(values, dict):
        return values
    asked = {name: _grammar_in(name, values[name]) for name in _FIELDS if values.get(name) is not None}
    kept = {name: value for name, value in values.items() if name not in _FIELDS}
    for name, grammar in asked.items():
        if grammar is not None and not (isinstance(grammar, str) and grammar.strip() in _own_texts()):
            raise ValueError(f"{name}: not the grammar of Vox, and this server knows no other. {_ADVICE}")
    if any(grammar is not None for grammar in asked.values()):
        # A fallback ends with a program as well.
        if kept.get("decoding") == Syntax.FREE:
            raise ValueError("decoding: free, and a grammar is asked for; leave one of them out")
        return {**kept, "decoding": kept.get("decoding") or str(Syntax.CONSTRAINED)}
    return kept


def _grammar_in(name: str, value: Any) -> Any:
    """Return the grammar that a field asks for; None where it asks for nothing."""
    if name in {"guided_grammar", "grammar"}:
        return value or None
    if name == "response_format" and value == _IDLE_FORMAT:
        return None
    if name == "response_format" and (not isinstance(value, dict) or value.get("type") != "grammar"):
        raise ValueError('response_format: answers are Vox programs; its type is "text" or "grammar"')
    if not isinstance(value, dict) or value.keys() - {"type"} != {"grammar"}:
        raise ValueError(f'{name}: beside "grammar" there is nothing to choose here. {_ADVICE}')
    return value["grammar"]


@cache
def _own_texts() -> frozenset[str]:
    return frozenset((OURS, *(grammar_text(notation).strip() for notation in GrammarFormat)))


MOST_STOPS: Final = 4
"""Texts that end an answer; each is looked for behind every token."""

Listed = TypeVar("Listed")
Listing = Annotated[list[Listed], Field(fail_fast=True, max_length=1_000)]
"""A list of a request: the first mistake ends it, since a body of a megabyte has room for half a million."""

STRICT: Final = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Lenient(BaseModel):
    """A part of a request from which fields that ask for nothing are removed first, as `without_idle` does."""

    model_config = STRICT

    idle: ClassVar[dict[str, tuple[Any, ...]]] = {}
    harmless: ClassVar[frozenset[str] | None] = None

    @model_validator(mode="before")
    @classmethod
    def _remove_idle(cls, values: Any) -> Any:
        return without_idle(values, cls.idle, cls.harmless)


class StreamOptions(Lenient):
    """Options of a streamed response."""

    idle = {"include_obfuscation": (None, False)}

    include_usage: bool = False


class TextRequest(Lenient):
    """Fields that requests for chats and for text completions share."""

    model: str
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: str | Listing[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignored: tuple[str, ...] = Field(default=(), description="Fields that were taken away; never what a client sends.")

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return self.stream_options is not None and self.stream_options.include_usage

    def mistakes(self) -> list[str]:
        """Return what does not hold together, a phrase each."""
        mistakes = []
        if self.stream_options is not None and not self.stream:
            mistakes.append("stream_options: only with stream")
        if not all(self.stops) or len(self.stops) > MOST_STOPS:
            mistakes.append(f"stop: at most {MOST_STOPS} texts, none of them empty")
        return mistakes

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        if mistakes := self.mistakes():
            raise ValueError("; ".join(mistakes))
        return self


def mistakes_of_turns(turns: Sequence[Turn]) -> list[str]:
    """Return why a conversation cannot be answered, a phrase each; a last message of the assistant is gone on with."""
    mistakes = []
    if turns[-1].role == "system":
        mistakes.append("messages: the last one is of role system; it must be of role user, or assistant to go on with")
    if any(turn.role == "system" for turn in turns[1:]):
        mistakes.append("messages: a message of role system or developer may only come first")
    return mistakes
