"""Firefox as Debian packages it, controlled over WebDriver BiDi, without another program."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import ClientConnection, connect

FIREFOX: Final = shutil.which("firefox-esr") or shutil.which("firefox")
_LISTENING: Final = "WebDriver BiDi listening on "
_SECONDS: Final = 60.0


class Page:
    """One tab, with the actions of a person."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0
        self._send("session.new", capabilities={})
        self._tab = self._send("browsingContext.getTree")["contexts"][0]["context"]

    def open(self, url: str) -> None:
        """Go to an address, and wait until it is loaded."""
        self._send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, by way of JSON; promises are awaited."""
        wrapped = f"Promise.resolve({expression}).then(value => JSON.stringify(value ?? null))"
        said = self._send(
            "script.evaluate", expression=wrapped, target={"context": self._tab}, awaitPromise=True, userActivation=True
        )
        assert said["type"] == "success", said
        return json.loads(said["result"]["value"])

    def wait_for(self, condition: str, seconds: float = _SECONDS) -> None:
        """Wait until an expression of JavaScript is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {condition}"
            time.sleep(0.1)

    def press(self, keys: str, *, held: str = "") -> None:
        """Type keys one after another, optionally while other ones are held."""
        typed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        down, up = ([{"type": kind, "value": key} for key in held] for kind in ("keyDown", "keyUp"))
        self._act({"type": "key", "id": "keyboard", "actions": [*down, *typed, *up]})

    def click(self, x: int, y: int) -> None:
        """Press and release the mouse at a place of the window, in pixels."""
        press, release = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        self._act(
            {"type": "pointer", "id": "mouse", "actions": [{"type": "pointerMove", "x": x, "y": y}, press, release]}
        )

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window, in pixels."""
        self._send("browsingContext.setViewport", context=self._tab, viewport={"width": width, "height": height})

    def screenshot(self) -> str:
        """Return the picture of the tab, a PNG in base64."""
        return str(self._send("browsingContext.captureScreenshot", context=self._tab)["data"])

    def _act(self, source: dict[str, Any]) -> None:
        self._send("input.performActions", context=self._tab, actions=[source])

    def _send(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            reply = json.loads(self._socket.recv(_SECONDS))
            if reply.get("id") == self._number:
                assert reply["type"] == "success", reply
                return reply["result"]


@contextmanager
def firefox(*, is_dark: bool = False) -> Iterator[Page]:
    """Run a browser without a window until the block ends."""
    assert FIREFOX is not None, "the test is skipped without it"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        scheme = f'user_pref("layout.css.prefers-color-scheme.content-override", {0 if is_dark else 1});'
        (Path(profile) / "user.js").write_text(scheme)
        command = [FIREFOX, "--headless", "--profile", profile, "--remote-debugging-port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            try:
                said = next(line for line in process.stderr or () if line.startswith(_LISTENING))
                address = said.removeprefix(_LISTENING).strip() + "/session"
                with connect(address, max_size=None) as socket:
                    yield Page(socket)
            finally:
                process.terminate()
