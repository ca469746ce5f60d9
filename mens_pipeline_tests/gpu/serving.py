"""Serve an adapter with `mens serve`, and request code at a cursor and completions, one by one and many at once.

`python -m mens_pipeline_tests.gpu.serving HELDOUT.jsonl RUN [--device cuda] [--requests 24]`
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx2

from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline_tests.bench.machine import machine_name

_CLIENTS: Final = 8
_TOKENS: Final = 32
_READY: Final = re.compile(r"ready: .* at (http\S+)/v1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heldout", type=Path)
    parser.add_argument("run", type=Path, help="a run of `mens train`")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=24)
    options = parser.parse_args()
    if not (options.run / "adapter").is_dir():
        sys.exit(f"{options.run}: no adapter. The part `training` leaves one.")
    pairs = list(read_pairs(options.heldout))[: options.requests]
    holes = [_hole(pair.response) for pair in pairs]
    questions = [[{"role": "user", "content": pair.prompt}] for pair in pairs]
    print(f"{machine_name()}; {len(pairs)} requests of a kind, {_TOKENS} tokens each at most")
    with serving(options.run, options.device) as client:

        def insert(hole: tuple[str, str]) -> tuple[int, bool]:
            return _ask(client, "/v1/completions", prompt=hole[0], suffix=hole[1])

        def complete(messages: list[dict[str, str]]) -> tuple[int, bool]:
            return _ask(client, "/v1/chat/completions", messages=messages)

        insert(holes[0])  # which also compiles kernels
        _measure("at a cursor", insert, holes)
        _measure("answers", complete, questions)


def _hole(program: str) -> tuple[str, str]:
    lines = program.splitlines(keepends=True)
    number = len(lines) // 2
    words = re.match(r"\s*\S*", lines[number])
    return "".join(lines[:number]) + (words[0] if words else ""), "\n" + "".join(lines[number + 1 :])


@contextmanager
def serving(run: Path, device: str) -> Iterator[httpx2.Client]:
    """Serve a run on a free port until the block ends."""
    start = time.monotonic()
    command = [sys.executable, "-m", "mens_pipeline.cli", "serve", "--run-dir", str(run)]
    limits = ["--device", device, "--port", "0", "--max-concurrent", str(_CLIENTS), "--timeout", "300"]
    with subprocess.Popen([*command, *limits], stderr=subprocess.PIPE, text=True) as server:
        try:
            said = []
            for line in server.stderr or ():
                said.append(line)
                if ready := _READY.search(line):
                    break
            else:
                sys.exit(f"mens serve ended with exit code {server.wait()}:\n{''.join(said[-20:])}")
            print(f"ready after {time.monotonic() - start:.0f} s")
            with httpx2.Client(base_url=ready[1], timeout=400) as client:
                yield client
        finally:
            server.terminate()


def _ask(client: httpx2.Client, path: str, **fields: Any) -> tuple[int, bool]:
    reply = client.post(path, json={"model": "mens", "max_tokens": _TOKENS, "temperature": 0, **fields})
    reply.raise_for_status()
    warning = reply.headers.get("X-Mens-Warning", "")
    if "was not trained for a suffix" in warning:
        sys.exit(f"{path}: {warning}")
    choice = reply.json()["choices"][0]
    return reply.json()["usage"]["completion_tokens"], bool(
        choice.get("text") or choice.get("message", {}).get("content")
    )


def _measure(name: str, ask: Callable[[Any], tuple[int, bool]], requests: list[Any]) -> None:
    seconds, texts = [], 0
    for request in requests:
        start = time.monotonic()
        texts += ask(request)[1]
        seconds.append(time.monotonic() - start)
    start = time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as clients:
        written = sum(tokens for tokens, _ in clients.map(ask, requests))
    rate = written / (time.monotonic() - start)
    in_order = sorted(seconds)
    slow = in_order[int(0.9 * len(in_order))]
    print(f"{name}: median {1000 * median(seconds):.0f} ms, p90 {1000 * slow:.0f} ms")
    print(f"  {texts} of {len(requests)} with a text")
    print(f"  {_CLIENTS} clients at once: {rate:.0f} tokens/s")


if __name__ == "__main__":
    main()
