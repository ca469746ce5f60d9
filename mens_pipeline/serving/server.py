"""The server: loads the model, listens at an address, and ends on a signal."""

import asyncio
import ipaddress
import logging
import os
import re
import socket
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import uvicorn
from pydantic import SecretStr

from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.jobs.progress import log_wait
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.serving.access import HOSTS, LOCAL_NAMES, Access
from mens_pipeline.serving.application import application
from mens_pipeline.serving.completions import Defaults
from mens_pipeline.serving.connections import BoundedConnection, limit_error_log
from mens_pipeline.serving.queue import GenerationQueue, Loaded, ServerLimits, State
from mens_pipeline.serving.served_model import ServedModel


def load(served: ServedModel) -> Loaded:
    """Load a model as for its evaluation; `RefusedError` if that fails."""
    import torch
    from safetensors import SafetensorError  # noqa: PLC0415 - likewise
    from transformers import AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    from mens_pipeline.inference.dense_model import speed_up  # noqa: PLC0415 - likewise
    from mens_pipeline.inference.generate import stop_tokens  # noqa: PLC0415 - likewise
    from mens_pipeline.inference.model import load_evaluated  # noqa: PLC0415 - likewise

    # Denormal numbers slow a CPU down a hundredfold and do not change a token.
    torch.set_flush_denormal(True)
    # Keep messages of libraries out of the log of a server.
    disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    # PEFT 0.21.2 asks transformers 5.23.0 for a property by its old name.
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing", FutureWarning)
    path = served.evaluated.base_path
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model = speed_up(load_evaluated(served.evaluated), in_eight_bits=served.evaluated.in_eight_bits)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise RefusedError(f"{path}: cannot be loaded ({str(error)[:300]}). Write the model again.") from error

    return Loaded(model, stop_tokens(tokenizer, model), tokenizer)


_GRACE_SECONDS: Final = 20.0  # time for unfinished completions when the server is asked to end
_CLOSING_SECONDS: Final = 5
_TOKEN: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_BASE_PATH: Final = re.compile(r"(?:/[\w.~-]+)*", re.ASCII)
_KEEP_ALIVE_SECONDS: Final = 30
_BACKLOG: Final = 128
"""Connections that the system queues; asyncio also reports a full table of files this many times a second."""


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a server; port 0 is any free port; with `is_local`, only this machine can reach it."""

    host: str
    port: int
    is_local: bool
    family: socket.AddressFamily

    def url(self, port: int) -> str:
        """Return the address for clients."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


def resolve_address(host: str, port: int) -> Address:
    """Resolve a host name and port to an address; `ConfigurationError` if there is no such name."""
    try:
        family, _, _, _, (found, *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--host {host}: unknown host ({error}). Use an address of this machine.") from error
    return Address(str(found), port, ipaddress.ip_address(str(found).split("%")[0]).is_loopback, family)


def access_to(
    address: Address, token: SecretStr | None, variable: str, hosts: Collection[str] = (), base_path: str = ""
) -> Access:
    """Return the access rules of a server at an address.

    `hosts` are the host names in requests from a proxy on this machine. `ConfigurationError` if other machines can
    reach it and there is no token, or if the base path or the token is invalid.
    """
    if not _BASE_PATH.fullmatch(base_path):
        raise ConfigurationError(
            f"--base-path {base_path}: not a path. Use one such as /vox, without a trailing slash."
        )
    reach = "" if address.is_local else f"--host {address.host}"
    reach = reach or (f"{HOSTS} {','.join(sorted(hosts))}" if hosts else "")
    if reach and token is None:
        advice = f"Set {variable} to a secret, for example from `openssl rand -hex 32`, or listen on 127.0.0.1."
        raise ConfigurationError(f"{reach}: other machines can reach this server, but no token is set. {advice}")
    if token is not None and not _TOKEN.fullmatch(token.get_secret_value()):
        raise ConfigurationError(
            f"{variable}: no header can carry it. Use ASCII characters, with no space at the ends."
        )
    names = LOCAL_NAMES | {address.host, *(host.lower() for host in hosts)}
    return Access(token, names if address.is_local else None, base_path)


class ModelServer:
    """A model at an address: it binds the address at once, and loads the model when it runs."""

    def __init__(  # noqa: PLR0913, PLR0917 - all parts of a server
        self,
        served: ServedModel,
        address: Address,
        access: Access,
        limits: ServerLimits,
        defaults: Defaults,
        log_line: Callable[[str], None],
        accepted: AcceptedPieces | None = None,
    ) -> None:
        """Bind the address, or raise `ConfigurationError`; accepted pieces become rows of `accepted`, if given."""
        self._served = served
        self._defaults = defaults
        self._log_line = log_line
        self._socket = _listen(address)
        self.url = address.url(self._socket.getsockname()[1])
        loading = log_wait("loading", log_line)(load)
        self._queue = GenerationQueue(lambda: loading(served), limits, self._report_state)
        tokenizer = FileTokenizer(served.evaluated.base_path)
        app = application(served, tokenizer, self._queue, limits, access, defaults, log_line, accepted)
        config = uvicorn.Config(
            app,
            # Use the same parser on every machine, regardless of other packages.
            http=BoundedConnection,
            loop="asyncio",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(_GRACE_SECONDS) + _CLOSING_SECONDS,
        )
        self._server = _Server(config, self._queue, log_line)

    def run(self) -> None:
        """Serve until a signal, and let unfinished completions end. `RefusedError` if the model cannot be loaded."""
        with self._socket:
            self._server.run(sockets=[self._socket])
        if self._queue.failure is not None:
            raise RefusedError(self._queue.failure)

    def stop(self) -> None:
        """Stop the server as a signal would, from another thread."""
        self._server.should_exit = True

    def _report_state(self, state: State) -> None:
        if state is State.READY:
            if self._served.candidate is not None:
                self._log_line(f"candidate: {self._served.candidate}; every response says so")
            if self._served.infill_window is not None:
                self._log_line(f"at a cursor: {self._describe_threshold()}")
            self._log_line(f"ready: {self._served.name} at {self.url}/v1")
        else:
            self.stop()

    def _describe_threshold(self) -> str:
        threshold = self._served.infill_threshold
        if threshold is None:
            return "no evaluation gives a threshold for this model; every piece without an error is shown"
        if self._defaults.show_all:
            return "every piece that parses is shown (--show-all)"
        return f"pieces below a mean log-probability of {threshold:.2f} are withheld; --show-all shows them"


class _Server(uvicorn.Server):
    """Stops the queue with the server; a first signal lets running completions end, a second one does not."""

    def __init__(self, config: uvicorn.Config, queue: GenerationQueue, log_line: Callable[[str], None]) -> None:
        super().__init__(config)
        self._queue = queue
        self._log_line = log_line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(limit_error_log(self._log_line))
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: object) -> None:  # noqa: ARG002 - the form of a handler
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._queue.stop(0 if self.force_exit else _GRACE_SECONDS)
        await super().shutdown(sockets)


def _listen(address: Address) -> socket.socket:
    try:
        return socket.create_server((address.host, address.port), family=address.family)
    except OSError as error:
        advice = "Choose another --port or --host, or 0 for any free port."
        reason = os.strerror(error.errno) if error.errno else str(error)
        message = f"{address.url(address.port)}: cannot listen on this address ({reason}). {advice}"
        raise ConfigurationError(message) from error
