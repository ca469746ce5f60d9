"""The body of a request: read up to a limit, and checked field by field."""

import asyncio
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from mens_pipeline.delivery.serving.refusal import RequestRefusedError, nobody_listens

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
