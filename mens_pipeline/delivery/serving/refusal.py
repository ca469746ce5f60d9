"""Why a request gets no answer, in the shape of OpenAI and in that of Ollama."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi.responses import JSONResponse

from mens_pipeline.errors import MensError

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


def out_of_time(seconds: float) -> RequestRefusedError:
    """Return the error of a completion that took too long."""
    message = f"No complete answer within {seconds:g} seconds. Ask for fewer tokens, or serve with a longer --timeout."
    # Whoever asks again by itself would wait as long again.
    return RequestRefusedError(504, message, code="timeout", headers={"x-should-retry": "false"})


def not_ready(what: str) -> RequestRefusedError:
    """Return the error of a server that does not answer at the moment."""
    return RequestRefusedError(503, f"The server {what}. Ask again.", code="unavailable", headers={"Retry-After": "2"})


def too_many(seconds: int) -> RequestRefusedError:
    """Refuse a request because too many wait; it may be asked again in so many seconds."""
    message = f"Too many requests are waiting. Ask again in {seconds} seconds."
    return RequestRefusedError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(seconds)})
