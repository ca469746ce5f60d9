"""Access control: host name, origin and token of a request."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mens_pipeline.serving.http import RequestRefusedError

HOSTS: Final = "MENS_SERVE_HOSTS"
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS: Final = frozenset({"/", "/health", "/ready"})
"""Paths that need no token: the page, which asks for the token, and the probes of a supervisor."""


@dataclass(frozen=True, slots=True)
class Access:
    """Token and host names that requests must give; None accepts any.

    `base_path`, such as `/vox`, may precede all paths, for a proxy that does not strip it.
    """

    token: SecretStr | None
    host_names: frozenset[str] | None
    base_path: str = ""


_OWN_SITES: Final = frozenset({"none", "same-origin"})
_USUAL_PORTS: Final = frozenset({80, 443})
"""Behind a proxy we cannot tell http from https, so both default ports count as equal."""


class AccessControl:
    """Middleware that refuses requests without the right host name, origin or token.

    `check_method` raises RequestRefusedError for a method that a path does not allow.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        check_method: Callable[[str, str, Headers], None] = lambda _method, _path, _headers: None,
    ) -> None:
        self._app = app
        self._access = access
        self._check_method = check_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request on, or respond with the refusal."""
        if scope["type"] != "lifespan":
            path, base = scope["path"], self._access.base_path
            if base and path == base:  # relative addresses of the page need the slash
                await RedirectResponse(f"{base.rpartition('/')[2]}/")(scope, receive, send)
                return
            if base and path.startswith(f"{base}/"):
                scope["path"] = path.removeprefix(base)  # in place: log and metrics name the same path
            headers = Headers(scope=scope)
            try:
                check_access(headers, scope["path"], self._access)
                if scope["type"] == "http":
                    self._check_method(scope["method"], scope["path"], headers)
            except RequestRefusedError as refusal:
                refuse = refusal.response(scope["path"]) if scope["type"] == "http" else WebSocketClose()
                await refuse(scope, receive, send)
                return
        await self._app(scope, receive, send)


def check_access(headers: Mapping[str, str], path: str, access: Access) -> None:
    """Check host, origin and token of a request; `RequestRefusedError` if one is wrong."""
    called = headers.get("host", "")
    host, port = _parse_host(f"//{called}")
    if access.host_names is not None and host not in access.host_names:
        # DNS rebinding: a page lets its own name resolve to this machine, and its requests carry that name.
        message = f"The host `{called[:100]}` is not allowed. Use http://localhost, or add the host to {HOSTS}."
        raise RequestRefusedError(403, message, code="host_not_allowed")
    origin = headers.get("origin")
    # Browsers send no origin with images and frames, but send their site. Links from other sites may be followed.
    is_foreign = headers.get("sec-fetch-site", "none") not in _OWN_SITES and headers.get("sec-fetch-dest") != "document"
    if is_foreign or (origin is not None and (host is None or _parse_host(origin) != (host, port))):
        message = f"Pages of `{(origin or 'another site')[:100]}` may not send requests. Use a program instead."
        raise RequestRefusedError(403, message, code="origin_not_allowed")
    if access.token is not None and path not in OPEN_PATHS and not _has_token(headers, access.token):
        message = "The token is missing or wrong. Send it as `Authorization: Bearer TOKEN`."
        raise RequestRefusedError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _parse_host(url: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None, None
    return parts.hostname if parts.username is None else None, None if port in _USUAL_PORTS else port


def _has_token(headers: Mapping[str, str], token: SecretStr) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    # Hashes have the same length, so the comparison takes constant time.
    pair = (hashlib.sha256(text.encode()).digest() for text in (given.strip(), token.get_secret_value()))
    return hmac.compare_digest(*pair) and scheme.lower() == "bearer"
