"""Measure completions while a person types forty lines of a held-out file, with our engine and with llama.cpp.

`python -m mens_pipeline_tests.bench.completion RUN [--file FILE.vox] [--lines 40] [--threads 2] [--window 512]`

RUN is a run of `mens train` that was trained on holes. The person pauses at the start of a line, and at a space about
one and two thirds into it. Each pause requests the rest of the line, with the text after the forty lines as the suffix.
Requests alternate between `mens serve` and llama.cpp's own `/infill`, with the same weights and no checks. So other
work on the machine affects both: compare rows of one run. CPU seconds are those of the server's process; they estimate
the latency on an idle machine.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from mens_pipeline.inference.prepare import evaluated_model
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.models.chat import TEMPLATE
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.machine import machine_name

_LINE_TOKENS: Final = 32
_DEFAULT_FILE: Final = Path("data/golden/agentic/actor_auction_room.vox")


@dataclass(frozen=True, slots=True)
class Pause:
    """A point at which the person waits: the text before and after it, and the rest of the line."""

    prefix: str
    suffix: str
    rest: str


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    url: str
    process: subprocess.Popen[bytes]

    def count_cpu_seconds(self) -> float:
        """Return the CPU seconds that its process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Measured:
    """Latencies of one server, in seconds, and its pieces."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)


def main() -> None:
    options = _options()
    load_settings()  # registers the cache, to find a base recorded on another machine
    pauses = [*choose_pauses(options.file.read_text(encoding="utf-8"), options.lines)]
    print(machine_name(), f"{options.threads} threads, load {os.getloadavg()[0]:.1f}", sep=", ")
    print(f"{options.file}: {len(pauses)} pauses in {options.lines} lines, a window of {options.window} tokens")
    with tempfile.TemporaryDirectory(prefix="mens-bench-") as place, ExitStack() as stack:
        run = _set_window(options.run, Path(place) / "run", options.window)
        merged = merge_run(run, Path(place) / "merged")
        serve = f"mens_pipeline.cli serve --run-dir {run} --device cpu --show-all --port {{port}}"
        llama = f"mens_pipeline_tests.inference.llama_server {merged} {{port}} --type q8_0 --slots 1 --context 2048"
        commands = {"mens serve": serve, "llama.cpp itself": f"{llama} --threads {options.threads}"}
        servers = [stack.enter_context(running(name, line, options.threads)) for name, line in commands.items()]
        measured = [Measured() for _ in servers]
        for pause in pauses:
            for server, found in zip(servers, measured, strict=True):
                _ask(server, pause, found)
        for server, found in zip(servers, measured, strict=True):
            print(_format_row(server.name, pauses, found))


def choose_pauses(program: str, num_lines: int) -> Iterator[Pause]:
    """Yield the pauses of a person who types `num_lines` lines in the middle of a program."""
    lines = program.splitlines(keepends=True)
    first = max(0, (len(lines) - num_lines) // 2)
    typed = lines[first : first + num_lines]
    suffix = "".join(lines[first + len(typed) :])
    for number, line in enumerate(typed):
        before, text = "".join(lines[: first + number]), line.rstrip("\n")
        indent = len(text) - len(text.lstrip())
        words = [place for place in range(indent + 1, len(text)) if text[place] == " "]
        thirds = [word for third in (1, 2) if (word := _find_after(words, third * len(text) // 3)) is not None]
        for place in sorted({indent, *thirds} if text.strip() else ()):
            yield Pause(before + text[:place], "\n" + suffix, text[place:])


def _find_after(words: list[int], place: int) -> int | None:
    return next((word for word in words if word >= place), None)


def _ask(server: Server, pause: Pause, found: Measured) -> None:
    body: dict[str, Any] = {"input_prefix": pause.prefix, "input_suffix": pause.suffix, "prompt": ""}
    body |= {"n_predict": _LINE_TOKENS, "temperature": 0, "stop": ["\n"], "cache_prompt": True}
    begin, cpu_begin = time.monotonic(), server.count_cpu_seconds()
    reply = httpx.post(f"{server.url}/infill", json=body, timeout=600).raise_for_status().json()
    found.seconds.append(time.monotonic() - begin)
    found.cpu_seconds.append(server.count_cpu_seconds() - cpu_begin)
    found.pieces.append(reply["content"])


def _format_row(name: str, pauses: list[Pause], found: Measured) -> str:
    seconds, num = sorted(found.seconds), len(pauses)
    answered = [*zip(pauses, found.pieces, strict=True)]
    stand = sum(read_surroundings(pause.prefix, pause.suffix).accept(piece) for pause, piece in answered if piece)
    exact = sum(pause.rest.split() == piece.split() for pause, piece in answered)
    return (
        f"{name:<20} p50 {median(seconds):.2f} s, p95 {seconds[int(0.95 * num)]:.2f} s; CPU p50 "
        f"{median(found.cpu_seconds):.2f} s, p95 {sorted(found.cpu_seconds)[int(0.95 * num)]:.2f} s; "
        f"shown {sum(map(bool, found.pieces))}/{num}, stand {stand}, exact {exact}"
    )


def _set_window(run: Path, folder: Path, window: int) -> Path:
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints"))
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    manifest["recipe"]["infill_window"] = window
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def merge_run(run: Path, folder: Path) -> Path:
    """Write the merged model of a run, and return its folder."""
    from transformers import AutoTokenizer

    from mens_pipeline.inference.model import load_evaluated, save_merged  # noqa: PLC0415 - takes long

    evaluated = evaluated_model("adapter", Adapter.open(run), resolve_device(DeviceChoice.CPU))
    save_merged(load_evaluated(evaluated), evaluated.base_path, folder)
    tokenizer = AutoTokenizer.from_pretrained(evaluated.base_path)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def running(name: str, module: str, threads: int) -> Iterator[Server]:
    """Start a server, `module` with its arguments and `{port}`, and wait until it responds; stop it after the block."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["env", f"OMP_NUM_THREADS={threads}", sys.executable, "-m", *module.format(port=port).split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            found = Server(name, f"http://127.0.0.1:{port}", process)
            _await_answer(found)
            yield found
        finally:
            process.terminate()
            process.wait(60)


def _await_answer(server: Server) -> None:
    body = {"model": "mens", "prompt": "fn", "max_tokens": 1, "temperature": 0}
    while True:
        try:
            httpx.post(f"{server.url}/v1/completions", json=body, timeout=600).raise_for_status()
        except (httpx.TransportError, httpx.HTTPStatusError):
            if server.process.poll() is not None:
                raise RuntimeError(f"{server.name}: ended with {server.process.returncode}") from None
            time.sleep(0.5)
        else:
            return


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of `mens train` that was trained on holes")
    parser.add_argument("--file", type=Path, default=_DEFAULT_FILE, help="a program outside the train set")
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--window", type=int, default=512, help="tokens around the cursor")
    return parser.parse_args()


if __name__ == "__main__":
    main()
