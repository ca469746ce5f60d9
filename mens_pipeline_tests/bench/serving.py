"""Line completions and tokens a second over HTTP: our server, the same with the library's modules, and llama.cpp.

`python -m mens_pipeline_tests.bench.serving [MODEL_OR_RUN] [--programs data/golden] [--lines 99] [--threads 2]`

MODEL_OR_RUN is a run of `mens train` or a merged model; without one the untrained CPU base is served, of which no exact
line is to be expected. All servers run at once and are asked in turns, so that other work on the machine meets all of
them: compare the figures of one run. A line completion goes on from at most 1,500 characters before a cursor within a
line, and stops at the end of the line; cursors of a program come from top to bottom, as one types. CPU seconds are
those of the server's process.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import httpx

from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.generation import EvaluatedModel, Syntax
from mens_pipeline.inference.prepare import evaluated_model
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.chat import TEMPLATE
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.serving import server
from mens_pipeline.serving.completions import Defaults
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.served_model import merged_model
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.bench.ratios import note

_PREFIX: Final = 1_500
"""Characters before the cursor that are sent at most."""
_LINE_TOKENS: Final = 32
_TOKENS: Final = 64
_CLIENTS: Final = (1, 4, 8)
_CONTEXT: Final = 2_048
_OURS, _BEFORE = "mens serve", "library's modules"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a program: what stands before it, and the rest of its line."""

    prefix: str
    rest: str


@dataclass(slots=True)
class Server:
    """A server that runs, and what it was measured at; times in seconds."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    num_tokens: int = 0
    rates: dict[int, float] = field(default_factory=dict)

    def complete(self, prompt: str, max_tokens: int, stop: Sequence[str] = ()) -> tuple[str, int]:
        """Return the most likely completion of a text, and its number of tokens."""
        body = {"model": "mens", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        response = httpx.post(
            f"{self.url}/v1/completions", json=body | ({"stop": [*stop]} if stop else {}), timeout=600
        )
        response.raise_for_status()
        return response.json()["choices"][0]["text"], response.json()["usage"]["completion_tokens"]

    def complete_line(self, cursor: Cursor) -> None:
        """Complete a line, and keep what it took."""
        begin, cpu_begin = time.monotonic(), self.count_cpu_seconds()
        text, num_tokens = self.complete(cursor.prefix, _LINE_TOKENS, ["\n"])
        self.seconds.append(time.monotonic() - begin)
        self.cpu_seconds.append(self.count_cpu_seconds() - cpu_begin)
        self.texts.append(text)
        self.num_tokens += num_tokens

    def serve_clients(self, num_clients: int, prompts: Sequence[str]) -> None:
        """Let clients ask at once, each for its share of the prompts, and keep the tokens a second of all."""
        begin = time.monotonic()
        with ThreadPoolExecutor(num_clients) as pool:
            num_tokens = sum(pool.map(lambda prompt: self.complete(prompt, _TOKENS)[1], prompts))
        self.rates[num_clients] = num_tokens / (time.monotonic() - begin)

    def count_cpu_seconds(self) -> float:
        """Return the CPU seconds of its process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = _options()
    if options.serve:
        _serve(options.model, options.serve, Path(options.times), is_before=options.before)
        return
    programs = [path.read_text(encoding="utf-8") for path in sorted(options.programs.rglob("*.vox"))]
    cursors = choose_cursors(programs, options.lines)
    print(machine_name(), f"{options.threads} threads, load {os.getloadavg()[0]:.1f}", sep=", ")
    with tempfile.TemporaryDirectory(prefix="mens-bench-") as place:
        folder = merged_folder(options.model, Path(place) / "merged")
        times = Path(place) / "times.json"
        with ExitStack() as stack:
            servers = [stack.enter_context(each) for each in _start(folder, times, options.threads)]
            for each in servers:
                each.complete(cursors[0].prefix, 1)
            for cursor in cursors:
                for each in servers:
                    each.complete_line(cursor)
            asleep, num_line_seconds = servers[0], sum(servers[0].seconds)
            os.kill(asleep.process.pid, signal.SIGUSR1)
            for num_clients in _CLIENTS:
                share = max(1, options.share // num_clients) * num_clients
                prompts = [cursor.prefix[:400] for cursor in (cursors * share)[:share]]
                for each in servers:
                    each.serve_clients(num_clients, prompts)
        print(*_table(servers, cursors), sep="\n")
        print(*_parts(json.loads(times.read_text(encoding="utf-8")), num_line_seconds), sep="\n")
    ours, before = servers[:2]
    note("serving, one user, line completions beside the library's modules", sum(before.seconds) / sum(ours.seconds))


def choose_cursors(programs: Sequence[str], num: int) -> list[Cursor]:
    """Choose places within lines, up to three in a program from top to bottom; the same each time."""
    dice = random.Random(1)  # noqa: S311 - it decides nothing that is secret
    cursors: list[Cursor] = []
    for program in dice.sample(programs, len(programs)):
        starts = [
            match for match in range(1, len(program)) if program[match - 1].isalnum() and program[match] in " (:."
        ]
        for place in sorted(dice.sample(starts, min(3, len(starts)))):
            rest = program[place:].split("\n", 1)[0]
            cursors.append(Cursor(program[max(0, place - _PREFIX) : place], rest))
    return cursors[:num]


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="a run of `mens train`, or a merged model")
    parser.add_argument("--programs", type=Path, default=Path("data/golden"), help="a folder of .vox files")
    parser.add_argument("--lines", type=int, default=99)
    parser.add_argument("--share", type=int, default=8, help="completions for each number of clients, all together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--times", help=argparse.SUPPRESS)
    parser.add_argument("--before", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def merged_folder(given: Path | None, folder: Path) -> Path:
    """Return a merged model: the given one, else that of a run, or of the base that nobody trained for Vox."""
    if given is not None and (given / "config.json").is_file():
        return given
    from transformers import AutoTokenizer

    from mens_pipeline.inference.model import load_evaluated, save_merged  # noqa: PLC0415 - takes long

    if given is not None:
        scored = evaluated_model("adapter", Adapter.open(given), resolve_device(DeviceChoice.CPU))
    else:
        print(f"{SMOLLM2}, untrained: no line of Vox is to be expected of it")
        base = find_base_model(SMOLLM2, None, load_settings().cache_root / "base_models").path
        scored = EvaluatedModel(
            base_path=base,
            adapter_path=None,
            quantization="none",
            double_quant=False,
            trained_in="float32",
            device="cpu",
            compute_dtype="float32",
        )
    save_merged(load_evaluated(scored), scored.base_path, folder)
    tokenizer = AutoTokenizer.from_pretrained(scored.base_path)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def _start(folder: Path, times: Path, threads: int) -> Iterator[Any]:
    own = f"{__spec__.name} {folder} --times {times} --serve"
    llama = "mens_pipeline_tests.inference.llama_server"
    rest = f"--threads {threads} --slots {max(_CLIENTS)} --context {_CONTEXT}"
    yield running(_OURS, f"{own} {{port}}", threads)
    yield running(_BEFORE, f"{own} {{port}} --before", threads)
    for kind in ("f16", "q8_0"):
        yield running(f"llama.cpp, {kind}", f"{llama} {folder} {{port}} --type {kind} {rest}", threads)


@contextmanager
def running(name: str, module: str, threads: int) -> Iterator[Server]:
    """Start a server, `module` with its arguments and `{port}`, and wait until it answers; it ends with the block."""
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


def _await_answer(found: Server) -> None:
    while True:
        try:
            found.complete("fn", 1)
        except (httpx.TransportError, httpx.HTTPStatusError):
            if found.process.poll() is not None:
                raise RuntimeError(f"{found.name}: ended with {found.process.returncode}") from None
            time.sleep(0.5)
        else:
            return


class _Clock:
    """Seconds of the parts of our server, and how often each was done; what is called within a part belongs to it."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}
        self._is_running = False

    def measured(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_running:
            return function(*args, **kwargs)
        self._is_running, begin = True, time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            part = self.parts.setdefault(name, [0.0, 0.0])
            part[0] += time.monotonic() - begin
            part[1] += 1
            self._is_running = False


class _TimedModel:
    def __init__(self, model: Any, clock: _Clock) -> None:
        self._model, self._clock = model, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **given: Any) -> Any:
        name = "model, prompts" if given["input_ids"].shape[1] > 1 else "model, one token"
        return self._clock.measured(name, self._model, **given)


def _serve(folder: Path, port: int, times: Path, *, is_before: bool) -> None:
    clock, load = _Clock(), server.load

    def load_timed(*given: Any) -> Any:
        loaded = load(*given)
        return type(loaded)(_TimedModel(loaded.model, clock), loaded.stop, loaded.tokenizer)

    def timed(function: Any) -> Any:
        return lambda *args, **kwargs: clock.measured("choosing", function, *args, **kwargs)

    signal.signal(signal.SIGUSR1, lambda *_: times.write_text(json.dumps(clock.parts)) and None)
    limits = ServerLimits(max(_CLIENTS), 1_000_000, 600.0, 1_024)
    address = server.resolve_address("127.0.0.1", port)
    with ExitStack() as stack:
        stack.enter_context(patch.object(server, "load", load_timed))
        stack.enter_context(patch.object(Sampler, "choose", timed(Sampler.choose)))
        stack.enter_context(patch.object(Sampler, "choose_each", timed(Sampler.choose_each)))
        stack.enter_context(patch.object(Constraint, "choose", timed(Constraint.choose)))
        if is_before:
            stack.enter_context(patch("mens_pipeline.inference.dense_model.speed_up", lambda model, _num_rows: model))
        served = merged_model(folder, resolve_device(DeviceChoice.CPU))
        defaults = Defaults(Syntax.FREE)
        server.ModelServer(served, address, server.access_to(address, None, ""), limits, defaults, print).run()


def _table(servers: Sequence[Server], cursors: Sequence[Cursor]) -> Iterator[str]:
    clients = "".join(f"{f'{num} clients':>12}" for num in _CLIENTS)
    title = f"{len(cursors)} line completions"
    yield f"{title:<24}{'median':>8}{'p95':>8}{'CPU s':>8}{'tokens/s':>10}{'exact':>7}{clients}"
    for each in servers:
        seconds = sorted(each.seconds)
        exact = sum(text.rstrip() == cursor.rest.rstrip() for text, cursor in zip(each.texts, cursors, strict=True))
        yield (
            f"{each.name:<24}{median(seconds):>8.2f}{seconds[int(0.95 * len(seconds))]:>8.2f}"
            f"{median(each.cpu_seconds):>8.2f}{each.num_tokens / sum(seconds):>10.1f}{exact:>7}"
            + "".join(f"{each.rates[num]:>12.1f}" for num in _CLIENTS)
        )
    ours, before = servers[:2]
    same = sum(a == b for a, b in zip(ours.texts, before.texts, strict=True))
    yield f"the same line by {_OURS} and by the {_BEFORE}: {same}/{len(cursors)}"
    yield f"seconds and tokens/s of one user, then tokens/s of completions of {_TOKENS} tokens by so many clients"


def _parts(parts: dict[str, list[float]], total: float) -> Iterator[str]:
    yield f"where the {total:.1f} s of {_OURS} go:"
    for name, (seconds, times) in sorted(parts.items()):
        yield f"  {name:<20}{seconds / total:>7.1%}{1000 * seconds / times:>9.1f} ms each, {times:.0f} times"
    yield f"  {'all else':<20}{1 - sum(seconds for seconds, _ in parts.values()) / total:>7.1%}"


if __name__ == "__main__":
    main()
