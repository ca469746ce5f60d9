"""Requests of hostile shape to the endpoints at a cursor, and two hundred streams that nobody reads."""

import gc
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from mens_pipeline.inference.generation import Syntax
from mens_pipeline.serving.generation import PendingCompletion
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import Running, running

pytestmark = pytest.mark.slow

_NUM_STREAMS: Final = 200
_AT_ONCE: Final = 8
_MOST_TOKENS: Final = 12
_SETTLE_SECONDS: Final = 20.0
_MEGABYTE: Final = 1_000_000
_SERVERS_FAULT: Final = 500
_REFUSED: Final = 400
_BUSY: Final = 429

_FIELDS: Final[dict[str, tuple[str, str, str]]] = {
    "/infill": ("input_prefix", "input_suffix", "n_predict"),
    "/completion": ("prompt", "input_suffix", "n_predict"),
    "/v1/fim/completions": ("prompt", "suffix", "max_tokens"),
    "/v1/completions": ("prompt", "suffix", "max_tokens"),
    "/api/generate": ("prompt", "suffix", "options"),
    "/v1/feedback": ("id", "accepted", "id"),
}
"""Path -> fields of the text before and after a cursor, and of a limit."""
_TEXTS: Final = (
    "",
    "\x00",
    "fn f() {" * 50,
    "(" * 500,
    "let a = 1" + " + 1" * 200,
    '"',
    "\ufeff\u2028\u202e",
    "<|im_end|><|im_start|>system\n<issue_start><fim_prefix>",
    "\r\n\t" * 500,
    "\U0010ffff" * 50,
    "let x = ",
)
_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    2**63,
    10**4_000,
    1e308,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    ["x"] * 2_000,
    "x" * 2_000,
)
_OPTIONS: Final = (
    "seed",
    "temperature",
    "top_p",
    "stop",
    "stream",
    "model",
    "n",
    "best_of",
    "samplers",
    "input_extra",
    "raw",
)


def _encode_body(fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": "mens", **fields}).encode()


def _make_bodies(random: Random, path: str) -> dict[str, Callable[[], bytes]]:
    before, after, limit = _FIELDS[path]
    fields = {before: random.choice(_TEXTS), after: random.choice(_TEXTS), **({} if limit == "options" else {limit: 4})}
    fields |= {"options": {"num_predict": 4}, "stream": random.random() < 0.3} if limit == "options" else {}
    return {
        "texts": lambda: _encode_body(fields),
        "binary": lambda: random.randbytes(random.randrange(1, 400)),
        "megabyte": lambda: _encode_body({**fields, before: random.choice(("x", "(", "\n", "let")) * _MEGABYTE}),
        "half a surrogate": lambda: _encode_body({**fields, before: random.choice(("\ud800", "a\udfffb"))}),
        "half of UTF-8": lambda: _encode_body(fields)[:-1] + b', "x": "\xc3"}',
        "no prefix": lambda: _encode_body({name: value for name, value in fields.items() if name != before}),
        "wrong type": lambda: _encode_body({**fields, random.choice((before, after, limit)): random.choice(_VALUES)}),
        "wrong option": lambda: _encode_body({**fields, random.choice(_OPTIONS): random.choice(_VALUES)}),
        "nested": lambda: b"[" * random.choice((5, 300, 50_000)),
        "nested field": lambda: _encode_body(fields)[:-1] + b', "z": ' + b'{"a":' * 150 + b"1" + b"}" * 151,
        "cut off": lambda: _encode_body(fields)[: random.randrange(len(_encode_body(fields)))],
        "not an object": lambda: json.dumps(random.choice(_VALUES)).encode(),
        "not a number": lambda: (
            _encode_body(fields)[:-1]
            + random.choice(
                (b', "seed": NaN}', b', "seed": 1e999}', b', "seed": -0}', b', "seed": ' + b"9" * 5_000 + b"}")
            )
        ),
    }


@pytest.fixture(scope="module")
def infill(infill_run: Path) -> Iterator[Running]:
    """A server that accepts bodies of more than a megabyte."""
    with running(infill_run, ServerLimits(4, 4 * _MEGABYTE, 60.0, _MOST_TOKENS), syntax=Syntax.FALLBACK) as server:
        yield server


def _count_open(server: Running) -> float:
    figures = server.figures()
    return figures["mens_completions_waiting"] + figures["mens_completions_written"]


def _count_held() -> int:
    gc.collect()
    return sum(type(each) is PendingCompletion for each in gc.get_objects())


def _assert_nothing_is_left(server: Running, num_held: int) -> None:
    """Wait until no completion is open, and no more are held than before."""
    until = time.monotonic() + _SETTLE_SECONDS
    # Each of the two engines keeps the prompt that it read last.
    while (_count_open(server) or _count_held() > num_held + 2) and time.monotonic() < until:
        time.sleep(0.1)
    assert _count_open(server) == 0
    assert _count_held() <= num_held + 2


def _count_statuses(server: Running, skip: int) -> Counter[str]:
    return Counter(line.split(" in ")[0].rsplit(" ", 1)[1] for line in server.lines[skip:] if " in " in line)


@pytest.mark.parametrize("num_requests", [250, pytest.param(1_000, marks=pytest.mark.nightly)])
def test_hostile_requests_do_not_break_the_server(infill: Running, num_requests: int) -> None:
    num_held, num_lines = _count_held(), len(infill.lines)
    random = Random(32)  # noqa: S311 - the same requests each time
    requests: list[tuple[str, str, bytes]] = []
    while len(requests) < num_requests:
        for path in _FIELDS:
            shapes = _make_bodies(random, path)
            requests += [(path, name, make()) for name, make in shapes.items()]
    requests = random.sample(requests, num_requests)

    def ask(one: tuple[str, str, bytes]) -> tuple[str, str, int, str]:
        path, name, body = one
        reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
        return path, name, reply.status_code, reply.text

    with infill.http() as client, ThreadPoolExecutor(_AT_ONCE) as pool:
        replies = list(pool.map(ask, requests))

    wrong = [reply[:3] for reply in replies if reply[2] >= _SERVERS_FAULT]
    assert not wrong
    assert not [line for line in infill.lines[num_lines:] if "Traceback" in line]
    statuses = Counter(reply[2] for reply in replies)
    assert min(statuses[200], statuses[400]) > num_requests / 10
    for path, name, status, text in replies:
        if status >= _REFUSED:
            error = json.loads(text)["error"]
            message = error if isinstance(error, str) else error["message"]
            assert message, (path, name)
            assert len(message) < 2_000, (path, name)
    _assert_nothing_is_left(infill, num_held)


def test_abandoned_streams_free_their_resources(infill: Running) -> None:
    num_held, num_lines, num_threads = _count_held(), len(infill.lines), threading.active_count()

    def abandon(number: int) -> int:
        path = ("/infill", "/v1/fim/completions", "/v1/completions", "/api/generate")[number % 4]
        before, after, limit = _FIELDS[path]
        body: dict[str, Any] = {"model": "mens", before: "// ", after: "\n", "stream": True}
        if limit == "options":
            body |= {"options": {"num_predict": _MOST_TOKENS, "temperature": 1.0}}
        else:
            body |= {limit: _MOST_TOKENS, "temperature": 1.0, "seed": number}
        until = time.monotonic() + _SETTLE_SECONDS
        while True:
            with client.stream("POST", path, json=body) as reply:
                if number % 3 == 0:
                    next(reply.iter_bytes(), b"")
            # A slow machine notices late that nobody reads the earlier streams, and says that it is busy.
            if reply.status_code != _BUSY or time.monotonic() > until:
                return reply.status_code
            time.sleep(0.1)

    with infill.http() as client, ThreadPoolExecutor(_AT_ONCE) as pool:
        statuses = Counter(pool.map(abandon, range(_NUM_STREAMS)))

    assert set(statuses) == {200}
    _assert_nothing_is_left(infill, num_held)
    assert sum(_count_statuses(infill, num_lines).values()) >= _NUM_STREAMS
    # Threads that check and encode stay for the next request; the web framework limits their number.
    assert threading.active_count() <= num_threads + 40
    assert infill.post("/infill", input_prefix="// ", input_suffix="\n", n_predict=4).status_code == 200
