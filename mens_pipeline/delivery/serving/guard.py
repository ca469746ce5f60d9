"""Access control: local host names on a local address, a token elsewhere, and no pages of other sites anywhere."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mens_pipeline.delivery.serving.refusal import RequestRefusedError

LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS: Final = frozenset({"/", "/health", "/ready"})
"""What needs no token: the page, which asks for it, and what those ask for who look after a server."""


@dataclass(frozen=True, slots=True)
class Access:
    """Host names and token that requests must give; None asks for none, and takes any."""

    token: SecretStr | None
    host_names: frozenset[str] | None


class Guard:
    """Lets in whoever may ask, in front of an application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may not ask, and pass on all others."""
        if scope["type"] == "http":
            try:
                check_access(Headers(scope=scope), scope["path"], self._access)
            except RequestRefusedError as refusal:
                await refusal.response(scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


def check_access(headers: Mapping[str, str], path: str, access: Access) -> None:
    """Check that a request may ask.

    Raises:
        RequestRefusedError: It may not.
    """
    called = headers.get("host", "")
    host = _name_in(f"//{called}")
    if access.host_names is not None and host not in access.host_names:
        # A page may have its own name lead here (DNS rebinding); its requests then carry that name.
        message = f"The host `{called[:100]}` is not this machine. Ask for http://localhost."
        raise RequestRefusedError(403, message, code="host_not_allowed")
    origin = headers.get("origin")
    if origin is not None and (_name_in(origin) is None or _name_in(origin) != host):
        message = f"Pages of `{origin[:100]}` may not ask. Ask from a program."
        raise RequestRefusedError(403, message, code="origin_not_allowed")
    if access.token is not None and path not in OPEN_PATHS and not _is_token(headers, access.token):
        message = "The token is missing or wrong. Send it as `Authorization: Bearer TOKEN`."
        raise RequestRefusedError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _name_in(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.hostname if parts.username is None else None


def _is_token(headers: Mapping[str, str], token: SecretStr) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    # Hashes are of one length, and compared in one time.
    pair = (hashlib.sha256(text.encode()).digest() for text in (given.strip(), token.get_secret_value()))
    return hmac.compare_digest(*pair) and scheme.lower() == "bearer"
