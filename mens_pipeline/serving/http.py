"""Request bodies: read up to a limit, validated field by field, and refused with a reason."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from mens_pipeline.errors import MensError
from mens_pipeline.models.chat import Turn

OLLAMA_PATHS: Final = "/api/"
"""Paths with this prefix use Ollama's format, also for errors."""

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
        """Refuse with an HTTP status; `param` names the field at fault, `code` is for programs."""
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def document(self, path: str) -> dict[str, Any]:
        """Return the body of the response, in the format that belongs to the path."""
        if path.startswith(OLLAMA_PATHS):
            return {"error": str(self)}
        usual = "server_error" if self.status >= _SERVERS_FAULT else "invalid_request_error"
        kind = _TYPES.get(self.status, usual)
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str) -> JSONResponse:
        """Return the response, with status and headers."""
        return JSONResponse(self.document(path), self.status, self.headers)


def client_went_away() -> RequestRefusedError:
    """Return the error of a client that disconnected; only the log shows it."""
    return RequestRefusedError(_CLIENT_WENT_AWAY, "The client went away.")


_SECONDS: Final = 30.0  # time for a body to arrive
_MOST_HELD: Final = 67_108_864
"""Most bytes of all bodies that arrive at once, unless a single body may have more."""

_MOST_ERRORS: Final = 10  # errors of a body that a message names
_UNKNOWN: Final = "extra_forbidden"
_NO_JSON: Final = "json_invalid"
_OWN: Final = "Value error, "

Model = TypeVar("Model", bound=BaseModel)


class _Held:
    """Bytes of all bodies that are arriving."""

    num_bytes = 0


async def read_body(request: Request, model: type[Model], max_bytes: int) -> Model:
    """Read and validate the body of a request; FastAPI's own limit is not used, since its error has another format.

    `RequestRefusedError` if the body is too long, too slow or invalid (the first ten errors are named), too many bodies
    arrive at once, or the client disconnected.
    """
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for chunk in request.stream():
                body += chunk
                _Held.num_bytes += len(chunk)
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
                if _Held.num_bytes > max(_MOST_HELD, max_bytes):
                    headers = {"Retry-After": "2", "Connection": "close"}
                    raise RequestRefusedError(503, "Too many bodies at once. Retry in 2 seconds.", headers=headers)
    except TimeoutError as error:
        raise RequestRefusedError(408, f"The body took more than {_SECONDS:g} seconds.", code="timeout") from error
    except ClientDisconnect as error:
        raise client_went_away() from error
    finally:
        _Held.num_bytes -= len(body)
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        repaired = _repair_text(bytes(body)) if error.errors(include_url=False)[0]["type"] == _NO_JSON else None
        if repaired is None:
            raise _format_errors(error) from error
    try:
        return model.model_validate_json(repaired)
    except ValidationError as error:
        raise _format_errors(error) from error


def _repair_text(body: bytes) -> bytes | None:
    """Replace half characters, from editors that cut a text anywhere; None if the rest is also not JSON."""
    try:
        document = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    text = json.dumps(document, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _too_large(max_bytes: int) -> RequestRefusedError:
    message = f"The body is larger than {max_bytes} bytes. Send less, or start the server with --max-request-bytes."
    return RequestRefusedError(413, message, code="request_too_large", headers={"Connection": "close"})


def _format_errors(error: ValidationError) -> RequestRefusedError:
    errors = error.errors(include_url=False, include_input=False)
    first = errors[0]
    if first["type"] == _NO_JSON:
        return RequestRefusedError(400, f"The body is not JSON: {first['ctx']['error']}.", code="invalid_json")
    named = [(".".join(map(str, found["loc"])), found) for found in errors[:_MOST_ERRORS]]
    lines = "; ".join(_format_error(place, found["type"], found["msg"]) for place, found in named)
    code = "unsupported_parameter" if first["type"] == _UNKNOWN else "invalid_value"
    more = f"; and {len(errors) - len(named)} more" if len(errors) > len(named) else ""
    return RequestRefusedError(400, f"{lines}{more}.", param=named[0][0] or None, code=code)


def _format_error(place: str, kind: str, message: str) -> str:
    if kind == _UNKNOWN:
        return f"{place}: not supported here, leave it out"
    return f"{place}: {message.removeprefix(_OWN)}" if place else message.removeprefix(_OWN)


MOST_STOPS: Final = 4
"""Most texts that end a completion; each one is searched for after every token."""

MOST_STOPS_AT_CURSOR: Final = 16
"""The same for editors, which send the marks of many models; more are ignored."""

Listed = TypeVar("Listed")
Listing = Annotated[list[Listed], Field(fail_fast=True, max_length=1_000)]
"""A list in a request; validation stops at the first error, since a megabyte holds half a million items."""

STRICT: Final = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def list_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the stop texts of a request, which may name a single one."""
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


class Lenient(BaseModel):
    """A part of a request; its unsupported fields are dropped before validation if their values have no effect.

    Attributes:
        idle: Field -> values without effect.
        harmless: Fields that are dropped whatever their value, and named in the field `ignored`; None: no such field.
            At a cursor, unknown fields are harmless too: an editor is not refused for additional fields.
    """

    model_config = STRICT

    idle: ClassVar[dict[str, tuple[Any, ...]]] = {}
    harmless: ClassVar[frozenset[str] | None] = None

    @classmethod
    def is_at_cursor(cls, _values: Mapping[str, Any]) -> bool:
        """Return whether a request asks for code between a prefix and a suffix."""
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


def _is_idle(value: Any, idle: tuple[Any, ...] | None) -> bool:
    # In Python False equals 0; in JSON it does not.
    return idle is not None and any(type(value) is type(other) and value == other for other in idle)


_MOST_NAMES: Final = 20
_LONGEST_NAME: Final = 60


def fit_header(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are short ASCII identifiers, and so safe in a header: the first 20, sorted."""
    fit = sorted(name for name in names if name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME)
    return tuple(fit[:_MOST_NAMES])


def find_turn_errors(turns: Sequence[Turn]) -> list[str]:
    """List the reasons why a conversation cannot be completed; a last turn of the assistant is continued."""
    errors: list[str] = []
    if turns[-1].role == "system":
        errors.append("messages: the last message has the role system; it must be user, or assistant to be continued")
    if any(turn.role == "system" for turn in turns[1:]):
        errors.append("messages: only the first message may have the role system or developer")
    return errors
