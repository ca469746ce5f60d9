"""A client of an OpenAI-compatible endpoint, and a ledger of its replies, so that no reply is paid for twice."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field, SecretStr, ValidationError

from mens_pipeline.corpus.evolution.operators import ModelRequest, Reply
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    import httpx2

_PATH: Final = "chat/completions"
_CONNECT_SECONDS: Final = 10.0
_COMPLETION_SECONDS: Final = 180.0
_LONGEST_WAIT: Final = 60.0
_LARGEST: Final = 10_000_000  # bytes of a response
_SHOWN: Final = 300  # characters of the endpoint's error to show in a message
_AGAIN: Final = "Run the same command again later; what was answered is in the ledger"
_LOCAL: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_KEY: Final = re.compile("[!-~]+")  # what a header can hold


_BEGINNING: Final = b'{"key":'  # the start of every line that `add` writes
_WRITABLE: Final = "Name a file that may be written."
_FOREIGN: Final = "Name another file with --ledger; this one holds something else."


class Ledger:
    """Replies of all runs so far; `num_new` counts the replies of this run. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Read a file of JSON lines, which the first reply creates; drop an incomplete last line of a killed run.

        `RefusedError` if a line is not a reply; the file stays unchanged.
        """
        self.num_new = 0
        self._path = path
        self._lock = Lock()
        self._replies: dict[str, Reply] = {}
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}. {_WRITABLE}") from error
        *lines, rest = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            self._read(number, line)
        if rest:
            self._drop(len(lines) + 1, rest, len(content) - len(rest))

    def _read(self, number: int, line: bytes) -> None:
        try:
            reply = Reply.model_validate_json(line)
        except ValidationError as error:
            raise RefusedError(f"{self._path}:{number}: not a reply ({errors_in(error)}). {_FOREIGN}") from error
        self._replies[reply.key] = reply

    def _drop(self, number: int, rest: bytes, num_whole: int) -> None:
        if rest[: len(_BEGINNING)] != _BEGINNING[: len(rest)]:
            found = "an incomplete line that is not the start of a reply"
            raise RefusedError(f"{self._path}:{number}: {found}. {_FOREIGN}")
        try:
            os.truncate(self._path, num_whole)
        except OSError as error:
            raise ConfigurationError(f"{self._path}: {error.strerror}. {_WRITABLE}") from error

    def find(self, key: str) -> Reply | None:
        """Return the stored reply to a request, if there is one."""
        return self._replies.get(key)

    def add(self, reply: Reply) -> None:
        """Store a reply; it is on disk when this method returns."""
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8", newline="\n") as target:
                    target.write(reply.model_dump_json() + "\n")
                    target.flush()
                    os.fsync(target.fileno())
            except OSError as error:
                raise ConfigurationError(f"{self._path}: {error.strerror}. {_WRITABLE}") from error
            self._replies[reply.key] = reply
            self.num_new += 1


class _ChatMessage(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _ChatMessage
    finish_reason: str | None = None


class _Usage(BaseModel):
    total_tokens: int = Field(ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


@dataclass(frozen=True)
class ChatEndpoint:
    """A generator that sends prompts over HTTP.

    The wait doubles with each retry, unless the response has a Retry-After header.
    """

    url: str  # base address of the API: `https://host/v1`
    name: str
    ledger: Ledger
    key: SecretStr | None = None
    max_new_tokens: int = 1024
    temperature: float = 0.7
    concurrency: int = 4
    num_retries: int = 5  # after status 429 or 5xx
    first_wait: float = 1.0  # seconds before the first retry
    completion_seconds: float = _COMPLETION_SECONDS  # limit for a whole response, up to its last byte

    def __post_init__(self) -> None:
        import httpx2  # noqa: PLC0415 - most commands need no network

        try:
            url = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise ConfigurationError(f"{self.url}: {error}. Write it as https://HOST/v1.") from error
        if url.scheme not in {"http", "https"} or not url.host:
            raise ConfigurationError(f"{self.url}: not an HTTP address. Write it as https://HOST/v1.")
        if url.userinfo or url.query:
            raise ConfigurationError("the endpoint: keys do not belong into an address. Set MENS_EVOL_API_KEY.")
        if self.key is not None and url.scheme == "http" and url.host not in _LOCAL:
            raise ConfigurationError(f"{self.url}: the key would be sent in the clear. Use https.")
        if self.key is not None and not _KEY.fullmatch(self.key.get_secret_value()):
            raise ConfigurationError("MENS_EVOL_API_KEY: expected printable ASCII without spaces. Copy the key again.")

    @property
    def digest(self) -> str:
        """The address, since nothing else identifies the weights."""
        return self.url

    @property
    def decoding(self) -> Mapping[str, Any]:
        """Decoding options in JSON types."""
        return {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature}

    def ask(self, requests: Sequence[ModelRequest], time_left: Callable[[], float]) -> dict[str, Reply]:
        """Return replies by key, from the ledger or the endpoint; start no request once `time_left` is 0 or less.

        `RefusedError` if the endpoint rejects requests, does not respond, or sends anything but a completion.
        """
        if missing := [request for request in requests if self.ledger.find(request.key) is None]:
            self._complete(missing, time_left)
        return {request.key: reply for request in requests if (reply := self.ledger.find(request.key)) is not None}

    def _complete(self, requests: Sequence[ModelRequest], time_left: Callable[[], float]) -> None:
        import httpx2  # noqa: PLC0415 - most commands need no network

        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key.get_secret_value()}"}
        timeout = httpx2.Timeout(self.completion_seconds, connect=_CONNECT_SECONDS)
        # No redirects: the key is only for this address.
        with httpx2.Client(headers=headers, timeout=timeout, follow_redirects=False) as client:
            pool = ThreadPoolExecutor(self.concurrency)
            try:
                waiting = [pool.submit(self._complete_one, client, r, time_left) for r in requests]
                for future in as_completed(waiting):  # the first failure ends the call
                    future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _complete_one(self, client: "httpx2.Client", request: ModelRequest, time_left: Callable[[], float]) -> None:
        if time_left() <= 0:
            return
        content = {
            "model": self.name,
            "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.prompt}],
            "max_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "seed": int(request.key[:8], 16) >> 1,
        }
        response = self._post(client, content, time_left)
        if response is not None:
            self.ledger.add(self._reply(request, response))

    def _post(
        self, client: "httpx2.Client", content: dict[str, Any], time_left: Callable[[], float]
    ) -> "httpx2.Response | None":
        for attempt in count():
            response = self._send_once(client, content)
            if response.status_code == HTTPStatus.OK:
                return response
            if attempt == self.num_retries:
                raise RefusedError(f"{self.url}: {self._problem(response)}, {attempt + 1} times. {_AGAIN}")
            wait = self._wait(attempt, response)
            if wait >= time_left():
                break
            time.sleep(wait)
        return None

    def _send_once(self, client: "httpx2.Client", content: dict[str, Any]) -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 - most commands need no network

        try:
            response = self._read(client, content)
        except httpx2.RequestError as error:
            # It may have been completed and paid for, so do not send it again.
            raise RefusedError(f"{self.url}: {type(error).__name__}: {error}. {_AGAIN}") from error
        status = response.status_code
        is_for_now = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if status != HTTPStatus.OK and not is_for_now:
            raise RefusedError(f"{self.url}: {self._problem(response)}. Check address, model and MENS_EVOL_API_KEY.")
        return response

    def _read(self, client: "httpx2.Client", content: dict[str, Any]) -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 - most commands need no network

        deadline, body = time.monotonic() + self.completion_seconds, bytearray()
        with client.stream("POST", f"{self.url.rstrip('/')}/{_PATH}", json=content) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _LARGEST:
                    raise RefusedError(f"{self.url}: an answer of more than {_LARGEST} bytes. {_OTHER}")
                if time.monotonic() > deadline:
                    raise RefusedError(f"{self.url}: no answer within {self.completion_seconds:g} seconds. {_AGAIN}")
            # The body is decompressed now, so the headers about its encoding no longer apply.
            headers = [(name, value) for name, value in response.headers.raw if name.lower() == b"retry-after"]
            return httpx2.Response(response.status_code, headers=headers, content=bytes(body))

    def _problem(self, response: "httpx2.Response") -> str:
        said = " ".join(response.text.split())
        if self.key is not None:
            said = said.replace(self.key.get_secret_value(), "(the key)")
        return f"status {response.status_code}" + (f" ({said[:_SHOWN]})" if said else "")

    def _wait(self, attempt: int, response: "httpx2.Response") -> float:
        asked = response.headers.get("retry-after", "")
        return min(float(asked) if asked.isdecimal() else self.first_wait * 2**attempt, _LONGEST_WAIT)

    def _reply(self, request: ModelRequest, response: "httpx2.Response") -> Reply:
        try:
            completion = _Completion.model_validate_json(response.content)
        except ValidationError as error:
            raise RefusedError(f"{self.url}: not a chat completion ({errors_in(error)}). {_OTHER}") from error
        choice, usage = completion.choices[0], completion.usage
        return Reply(
            key=request.key,
            text=choice.message.content or choice.message.refusal or "",
            stopped=choice.finish_reason == "stop",
            # Without a count, assume that it used all allowed tokens.
            num_tokens=usage.total_tokens if usage is not None else request.num_bytes + self.max_new_tokens,
            num_written=usage.completion_tokens if usage is not None else None,
        )


_OTHER: Final = "Name an OpenAI-compatible address, such as HOST/v1."
