"""The body of a request: read up to a limit, checked field by field, and the errors of requests that are refused."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import ClientDisconnect

from mens_pipeline.errors import MensError
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.language.grammar.export import GrammarFormat, grammar_text
from mens_pipeline.models.chat import Turn

OLLAMA_PATHS: Final = "/api/"
"""Paths below it take requests in the format of Ollama, and give errors in it."""

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_SERVERS_FAULT: Final = 500
_CLIENT_WENT_AWAY: Final = 499


class RequestRefusedError(MensError):
    """A request that is refused, with the reason for the client."""

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


def client_went_away() -> RequestRefusedError:
    """Return the error of a client that went away; nobody reads it but the log."""
    return RequestRefusedError(_CLIENT_WENT_AWAY, "The client went away.")


_SECONDS: Final = 30.0
"""How long a body may take to come in."""

_MOST_ERRORS: Final = 10
"""As many errors of a body are named in a message."""

_UNKNOWN: Final = "extra_forbidden"
_NO_JSON: Final = "json_invalid"
_OWN: Final = "Value error, "

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model], max_bytes: int) -> Model:
    """Read the body of a request, validated as a pydantic model.

    The limit of the web framework is not taken, since it answers in a shape of its own.

    Raises:
        RequestRefusedError: It is too long, too slow, or does not fit, the message names the first
            ten errors; or its client went away.
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
        raise client_went_away() from error
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        raise _format_errors(error) from error


def _is_idle(value: Any, idle: tuple[Any, ...] | None) -> bool:
    # False is 0 to Python, and not to JSON.
    return idle is not None and any(type(value) is type(other) and value == other for other in idle)


def _too_large(max_bytes: int) -> RequestRefusedError:
    message = f"The body is larger than {max_bytes} bytes. Send less, or start the server with --max-request-bytes."
    return RequestRefusedError(413, message, code="request_too_large", headers={"Connection": "close"})


def _format_errors(error: ValidationError) -> RequestRefusedError:
    errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    if first["type"] == _NO_JSON:
        return RequestRefusedError(400, f"The body is no JSON: {first['ctx']['error']}.", code="invalid_json")
    named = [(".".join(map(str, found["loc"])), found) for found in errors[:_MOST_ERRORS]]
    lines = "; ".join(_line(place, found["type"], found["msg"]) for place, found in named)
    code = "unsupported_parameter" if first["type"] == _UNKNOWN else "invalid_value"
    more = f"; and {len(errors) - len(named)} more" if len(errors) > len(named) else ""
    return RequestRefusedError(400, f"{lines}{more}.", param=named[0][0] or None, code=code)


def _line(place: str, kind: str, message: str) -> str:
    if kind == _UNKNOWN:
        return f"{place}: not supported here, leave it out"
    return f"{place}: {message.removeprefix(_OWN)}" if place else message.removeprefix(_OWN)


OURS: Final = "vox"
"""The name of the grammar, in place of its text."""

_FIELDS: Final = ("response_format", "structured_outputs", "guided_grammar", "grammar")
_IDLE_FORMAT: Final = {"type": "text"}
_ADVICE: Final = f'Send "{OURS}", or what `mens grammar` of this version prints.'


def read_grammar(values: Any) -> Any:
    """Turn the fields of a request that ask for a grammar into `decoding`.

    `guided_grammar` is of vLLM, as is `structured_outputs`; `grammar` is of llama.cpp. In all of them, and in
    `response_format` of type `grammar`, the name or the whole text of the grammar may stand.

    Raises:
        ValueError: Another grammar or form of a completion is asked for, or `decoding` says otherwise.
    """
    if not isinstance(values, dict):
        return values
    asked = {name: _grammar_in(name, values[name]) for name in _FIELDS if values.get(name) is not None}
    kept = {name: value for name, value in values.items() if name not in _FIELDS}
    for name, grammar in asked.items():
        if grammar is not None and not (isinstance(grammar, str) and grammar.strip() in _own_texts()):
            raise ValueError(f"{name}: not the grammar of Vox, and this server knows no other. {_ADVICE}")
    if any(grammar is not None for grammar in asked.values()):
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
"""Texts that end a completion; each is looked for behind every token."""

MOST_STOPS_AT_CURSOR: Final = 16
"""Of these of an editor, which sends the marks of many models along; what is above that is passed over."""

Listed = TypeVar("Listed")
Listing = Annotated[list[Listed], Field(fail_fast=True, max_length=1_000)]
"""A list of a request: the first error ends it, since a body of a megabyte has room for half a million."""

STRICT: Final = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Lenient(BaseModel):
    """A part of a request from which fields are removed first that are not supported and ask for nothing.

    Attributes:
        idle: Field -> values that ask for nothing.
        harmless: Fields that are removed whatever they say, and named in the field `ignored`; None without that field.
            At a cursor all fields are that are not known: an editor is not refused for what it sends along.
    """

    model_config = STRICT

    idle: ClassVar[dict[str, tuple[Any, ...]]] = {}
    harmless: ClassVar[frozenset[str] | None] = None

    @classmethod
    def is_at_cursor(cls, _values: Mapping[str, Any]) -> bool:
        """Whether a request asks for code between a prefix and a suffix."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _remove_idle(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kept = {name: value for name, value in values.items() if not _is_idle(value, cls.idle.get(name))}
        if cls.harmless is None:
            return kept
        unknown = kept.keys() - cls.model_fields.keys() if cls.is_at_cursor(kept) else set()
        harmless = cls.harmless | unknown
        ignored = fit_header(name for name, value in kept.items() if name in harmless and value is not None)
        return {**{name: value for name, value in kept.items() if name not in harmless}, "ignored": ignored}


_MOST_NAMES: Final = 20
_LONGEST_NAME: Final = 60


def fit_header(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of fields as a header may name them: sorted, not too many, and none of a form that no field has."""
    fit = sorted(name for name in names if name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME)
    return tuple(fit[:_MOST_NAMES])


class StreamOptions(Lenient):
    """Options of a streamed response."""

    idle = {"include_obfuscation": (None, False)}

    include_usage: bool = False


class TextRequest(Lenient):
    """Fields that requests for chats and for text completions share."""

    model: str = ""
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
        """Texts that end a completion."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return self.stream_options is not None and self.stream_options.include_usage

    def find_errors(self) -> list[str]:
        """Return errors between fields, a phrase each."""
        errors: list[str] = []
        if self.stream_options is not None and not self.stream:
            errors.append("stream_options: only with stream")
        if not all(self.stops) or len(self.stops) > MOST_STOPS:
            errors.append(f"stop: at most {MOST_STOPS} texts, none of them empty")
        return errors

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if errors := self.find_errors():
            raise ValueError("; ".join(errors))
        return self


def find_turn_errors(turns: Sequence[Turn]) -> list[str]:
    """Return why a conversation cannot be completed, a phrase each; a last message of the assistant is continued."""
    errors: list[str] = []
    if turns[-1].role == "system":
        errors.append("messages: the last one is of role system; it must be of role user, or assistant to go on with")
    if any(turn.role == "system" for turn in turns[1:]):
        errors.append("messages: a message of role system or developer may only come first")
    return errors
