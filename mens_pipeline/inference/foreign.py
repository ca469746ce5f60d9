"""Servers in place of our own engine, of a merged model, or of a base with adapters beside: prompted by token ids."""

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field, ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.endpoint import Endpoint
from mens_pipeline.inference.generation import LORA_MODULES, Completion, Decoding, ForeignEngine
from mens_pipeline.jobs.local import die_with_parent
from mens_pipeline.models.adapter import read_adapter_config
from mens_pipeline.storage.store import key_of
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    import httpx2

PATH: Final = "completions"
_START_SECONDS: Final = 900.0
"""A server that compiles its kernels takes minutes."""
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2
_PROBE_SECONDS: Final = 60.0
_COMPLETION_SECONDS: Final = 3600.0
_LAST_WORDS: Final = 600
_SEEDS: Final = 2**31
_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""Of adapters, at most, as vLLM takes them (`--max-lora-rank`)."""
_ADVICE: Final = "Correct MENS_ENGINE, or unset it: then our own engine is used."


@dataclass(frozen=True, slots=True)
class ForeignPrompt:
    """A prompt to complete: its task, the number of the sample, and the ids of its tokens."""

    task: str
    sample: int
    ids: tuple[int, ...]


class _Token(BaseModel):
    logprob: float


class _Likelihoods(BaseModel):
    """Log-probabilities of tokens, as OpenAI's text completions have them, or as llama.cpp has them."""

    token_logprobs: list[float] | None = None
    content: list[_Token] | None = None

    @property
    def mean(self) -> float | None:
        found = self.token_logprobs or [token.logprob for token in self.content or ()]
        return min(0.0, sum(found) / len(found)) if found else None


class _Choice(BaseModel):
    text: str
    finish_reason: str
    logprobs: _Likelihoods | None = None


class _Usage(BaseModel):
    completion_tokens: int = Field(ge=0)


class _Completion(BaseModel):
    """Fields of a completion that are used; others are ignored."""

    choices: list[_Choice] = Field(min_length=1, max_length=1)
    usage: _Usage


@contextmanager
def start_servers(
    engine: ForeignEngine, folder: Path, log: Path, adapters: Mapping[str, Path] = MappingProxyType({})
) -> Iterator[list[Endpoint]]:
    """Start the servers of a model; they end with the block, and with this process. Refuse one that does not start.

    `adapters` stand beside it, each under its name. What the servers print is added to the log.

    Yields:
        An endpoint for each, under the name that the server gives its model.
    """
    with ExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        started = []
        for index in range(engine.copies):
            port = _free_port()
            values = {"{folder}": str(folder), "{port}": str(port), "{index}": str(index)}
            options = _lora_options(adapters)
            words = shlex.split(engine.command)
            command = [part for word in words for part in (options if word == LORA_MODULES else (word,))]
            for name, value in values.items():
                command = [part.replace(name, value) for part in command]
            try:
                server = subprocess.Popen(  # noqa: S603 - what the operator set
                    command,
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no thread of ours runs yet
                )
            except OSError as error:
                raise RefusedError(f"MENS_ENGINE: {command[0]}: {error.strerror}. {_ADVICE}") from error
            stack.callback(_stop_server, server)
            started.append((server, f"http://127.0.0.1:{port}/v1"))
        yield [_wait_until_ready(server, url, log) for server, url in started]


def _lora_options(adapters: Mapping[str, Path]) -> list[str]:
    """Return the options by which vLLM takes adapters; none where there are none."""
    if not adapters:
        return []
    rank = max(read_adapter_config(path).r for path in adapters.values())
    most = next(size for size in _RANKS if size >= rank)
    named = [f"{name}={path}" for name, path in adapters.items()]
    return ["--enable-lora", "--max-lora-rank", str(most), "--lora-modules", *named]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop_server(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _wait_until_ready(server: "subprocess.Popen[bytes]", url: str, log: Path) -> Endpoint:
    """Wait until a server names its model, and has loaded it."""
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        name = _find_loaded_name(url)
        if name is not None:
            return Endpoint(url, name, completion_seconds=_COMPLETION_SECONDS, again=_ADVICE)
        time.sleep(_POLL_SECONDS)
    found = "does not answer" if server.poll() is None else f"ended with {server.returncode}"
    words = log.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS:].strip()
    raise RefusedError(f"MENS_ENGINE: the server {found}. {_ADVICE} Its last words:\n{words}")


def _find_loaded_name(url: str) -> str | None:
    """Return the name that a server gives its model; None while it cannot complete."""
    import httpx2  # noqa: PLC0415 - most processes need no network

    try:
        models = httpx2.get(f"{url}/models", timeout=_PROBE_SECONDS)
        if models.status_code != httpx2.codes.OK:
            return None
        name = str(models.json()["data"][0]["id"])
        probe = {"model": name, "prompt": [0], "max_tokens": 1, "temperature": 0}
        tried = httpx2.post(f"{url}/{PATH}", json=probe, timeout=_PROBE_SECONDS)
    except (httpx2.TransportError, ValueError, LookupError, TypeError):
        return None
    # Any other status comes for each prompt as well, where it is an error.
    return None if tried.status_code == httpx2.codes.SERVICE_UNAVAILABLE else name


def complete_prompts(
    endpoints: Sequence[Endpoint],
    prompts: Sequence[ForeignPrompt],
    decoding: Decoding,
    at_once: int,
    done: Callable[[int], None],
) -> list[Completion]:
    """Let servers of one model share the prompts: each takes the next one as soon as it has room.

    `done` takes the number of tokens of each completion, in one thread at a time; the order is that of the prompts.

    Raises:
        RefusedError: A server turns a prompt down, dies, or does not say what is needed.
    """
    import httpx2  # noqa: PLC0415 - most processes need no network

    free: SimpleQueue[tuple[Endpoint, httpx2.Client]] = SimpleQueue()
    one_at_a_time = Lock()

    def work(prompt: ForeignPrompt) -> Completion:
        endpoint, client = free.get()
        try:
            reply = _request_completion(endpoint, client, prompt, decoding)
        finally:
            free.put((endpoint, client))
        with one_at_a_time:
            done(reply.num_tokens)
        return reply

    with ExitStack() as stack:
        limits = httpx2.Limits(max_connections=at_once)
        clients = [stack.enter_context(httpx2.Client(timeout=_COMPLETION_SECONDS, limits=limits)) for _ in endpoints]
        for _ in range(at_once):
            for pair in zip(endpoints, clients, strict=True):
                free.put(pair)
        pool = stack.enter_context(ThreadPoolExecutor(at_once * len(endpoints)))
        return [*pool.map(work, prompts)]  # after a failure no other begins


def _request_completion(
    endpoint: Endpoint, client: "httpx2.Client", prompt: ForeignPrompt, decoding: Decoding
) -> Completion:
    content: dict[str, Any] = {
        "model": endpoint.name,
        "prompt": list(prompt.ids),
        "max_tokens": decoding.max_new_tokens,
        "temperature": decoding.temperature,
    }
    if decoding.temperature > 0:
        # Servers cut the tail of the distribution in ways of their own unless they are told not to.
        drawn = {"seed": decoding.seed, "ids": list(prompt.ids), "sample": prompt.sample}
        seed = int(key_of(drawn)[:8], 16) % _SEEDS  # the same every time
        content |= {"top_p": decoding.top_p, "top_k": 0, "min_p": 0.0, "seed": seed}
    if decoding.num_samples > 1:
        content["logprobs"] = 1
    response = endpoint.post(client, PATH, content, lambda: inf)
    assert response is not None, "there is time for all"  # noqa: S101 - our own impossibility
    try:
        completion = _Completion.model_validate_json(response.content)
    except ValidationError as error:
        raise RefusedError(f"{endpoint.url}: no text completion ({errors_in(error)}). {_ADVICE}") from error
    choice = completion.choices[0]
    likelihood = choice.logprobs.mean if choice.logprobs is not None and decoding.num_samples > 1 else None
    if decoding.num_samples > 1 and likelihood is None and completion.usage.completion_tokens:
        raise RefusedError(f"{endpoint.url}: does not say how likely its tokens are, which num_samples > 1 needs.")
    return Completion(
        task=prompt.task,
        sample=prompt.sample,
        text=choice.text,
        num_tokens=completion.usage.completion_tokens,
        stopped=choice.finish_reason == "stop",
        likelihood=likelihood,
    )
