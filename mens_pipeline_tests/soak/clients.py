"""Many clients of one server: some leave early, and some send malformed requests."""

import json
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2

from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline_tests.serving.running import Running, running
from mens_pipeline_tests.serving.talkative import write_talkative
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.noise import mutate

if TYPE_CHECKING:
    from collections.abc import Callable

_CLIENTS: Final = 50
_FINE: Final = frozenset({200, 400, 404, 405, 408, 413, 429, 501, 504})
"""A completion, a refusal with a reason, or a lack of room or time."""


def clients(budget: Budget, folder: Path) -> list[Figure]:
    """Send requests to a server of a tiny model."""
    counts: Counter[str] = Counter()
    wrong: dict[str, None] = {}
    with running(write_talkative(folder / "model"), ServerLimits(4, 20_000, 20.0, 64)) as server:
        before = _measure_memory()
        threads = [threading.Thread(target=_simulate, args=(server, n, budget, counts, wrong)) for n in range(_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = server.post("/v1/chat/completions", **_request(random.Random(0))).status_code
        if after != 200:
            wrong[f"afterwards it answers with {after}"] = None
        details = [line for line in server.lines if "Traceback" in line or " 500 " in line]
    wrong.update(dict.fromkeys(details[:5]))
    seconds = f"{_CLIENTS} clients for {budget.spent:.0f} s"
    value = ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items()))
    memory = f"memory of the process {before} MB before, {_measure_memory()} MB after"
    return [Figure(f"`mens serve` with {seconds}", f"{value}; {memory}", tuple(wrong))]


def _simulate(server: Running, number: int, budget: Budget, counts: Counter[str], wrong: dict[str, None]) -> None:
    dice = random.Random(number)
    ways: list[Callable[[Running, random.Random], str]] = [_complete, _complete, _abandon, _corrupt, _interrupt, _check]
    while budget.spent < budget.seconds:
        way = dice.choice(ways)
        try:
            found = way(server, dice)
        except (OSError, httpx2.HTTPError) as error:
            wrong[f"{way.__name__[1:]}: {type(error).__name__}: {error}"] = None
            return
        counts[found] += 1
        code = found.rpartition(" ")[2]
        if code.isdecimal() and int(code) not in _FINE:
            wrong[found] = None


def _request(dice: random.Random) -> dict[str, Any]:
    content = f"Write program {dice.randrange(10**6)}."
    return {"model": "mens", "messages": [{"role": "user", "content": content}], "max_tokens": dice.randint(1, 40)}


def _complete(server: Running, dice: random.Random) -> str:
    completion = server.post("/v1/chat/completions", **_request(dice))
    if completion.status_code == 429:
        time.sleep(dice.random())
    return f"requests answered with {completion.status_code}"


def _abandon(server: Running, dice: random.Random) -> str:
    with (
        server.http() as client,
        client.stream("POST", "/v1/chat/completions", json={**_request(dice), "stream": True}) as completion,
    ):
        next(completion.iter_bytes(), b"")
    return "streams abandoned after their first bytes"


def _corrupt(server: Running, dice: random.Random) -> str:
    path = dice.choice(("/v1/chat/completions", "/v1/completions", "/api/generate", "/api/chat", "/check", "/api/show"))
    with server.http() as client:
        completion = client.post(path, content=mutate(json.dumps(_request(dice)).encode(), dice))
    return f"corrupted requests answered with {completion.status_code}"


def _interrupt(server: Running, dice: random.Random) -> str:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        text = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 400\r\n\r\n{{"
        connection.sendall(text.encode()[: dice.randrange(1, len(text))])
        time.sleep(dice.random())
    return "connections closed halfway"


def _check(server: Running, dice: random.Random) -> str:
    completion = server.post("/check", source=f"fn f{dice.randrange(99)}() to int {{ 1 }}")
    return f"programs checked with {completion.status_code}"


def _measure_memory() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))
