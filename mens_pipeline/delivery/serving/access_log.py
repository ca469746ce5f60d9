"""One line for each request: what, how it ended, how long it took. No header and no text of anybody."""

import time
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LONGEST: Final = 100
_NOT_ANSWERED: Final = 499


class AccessLog:
    """Says what was asked for, in front of an application."""

    def __init__(self, app: ASGIApp, say: Callable[[str], None]) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            say: Takes each line.
        """
        self._app = app
        self._say = say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and say how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, is_over = time.monotonic(), _NOT_ANSWERED, False

        async def noting(message: Message) -> None:
            nonlocal status, is_over
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                is_over = not message.get("more_body", False)

        try:
            await self._app(scope, receive, noting)
        finally:
            # A path is whatever a client likes; as ASCII it stays on its line.
            path = ascii(scope["path"])[1:-1][:_LONGEST]
            end = "" if is_over else ", not to its end"
            self._say(f"{scope['method']} {path} {status} in {time.monotonic() - begun:.2f} s{end}")
