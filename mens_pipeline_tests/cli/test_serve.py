"""`mens serve`: its options and refusals, and how a real server starts and ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from mens_pipeline.cli import serve as serve_module
from mens_pipeline.cli.main import app
from mens_pipeline.errors import ConfigurationError, MensError, RefusedError
from mens_pipeline.jobs.device import Device, exclusive
from mens_pipeline.jobs.environment import training_environment
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.serving.served_model import adapter_model
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.every import every
from mens_pipeline_tests.serving.running import CPU, Running
from mens_pipeline_tests.serving.talkative import write_endless, write_run

_SECRET = "0123456789abcdef0123"  # noqa: S105 - of a server that lives as long as a test


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(training_environment()):
        monkeypatch.delenv(name)
    for name, value in training_environment().items():
        monkeypatch.setenv(name, value)


def _read_refusal(*arguments: str | Path, **environment: str | None) -> str:
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)], env=environment)
    assert isinstance(result.exception, MensError), result.output
    return str(result.exception)


def test_a_gpu_is_held_while_its_model_is_served(tmp_path: Path) -> None:
    """A run that needs the same memory is refused, with the name of the holder; CPUs are shared."""
    gpu, cores = Device("cuda", "a GPU", 16.0, has_bfloat16=True), Device("cpu", "cores", None, has_bfloat16=True)
    with serve_module._hold(gpu, tmp_path, 8080):  # noqa: SLF001 - the function under test
        message = rf"process {os.getpid()} \(mens serve, port 8080\) holds this device\. Wait for it to end"
        with pytest.raises(RefusedError, match=message), exclusive(tmp_path / "cuda.lock", 0):
            pass
        with serve_module._hold(cores, tmp_path, 8080), serve_module._hold(cores, tmp_path, 8081):  # noqa: SLF001
            assert not (tmp_path / "cpu.lock").exists()
    with exclusive(tmp_path / "cuda.lock", 0):
        pass


@pytest.mark.threat("N1")
@every(
    "case",
    [
        (("--host", "0.0.0.0"), {"MENS_SERVE_TOKEN": None}, "--host 0.0.0.0: other machines can reach this server"),  # noqa: S104 - it is refused
        (("--host", "0.0.0.0"), {"MENS_SERVE_TOKEN": None}, "openssl rand -hex 32"),  # noqa: S104 - likewise
        (("--token-env", "MY"), {"MY": None}, "MY: not set, a token needs 16. Set it to a secret"),
        (("--token-env", "MY"), {"MY": "short"}, "MY: has 5 characters, a token needs 16. Set it to a secret"),
        (("--run-dir", "a", "--model", "b"), {}, "--run-dir and --model: only one model is served"),
        (("--model", "a", "--candidate"), {}, "--model and --candidate: only one model is served"),
        (("--best-of", "5"), {}, "--best-of 5: the server runs at most 4 "),
        (("--best-of", "5"), {}, "Raise --max-concurrent"),
        ((), {}, "no adapter is promoted. Promote one with `mens promote`, serve the last"),
        (("--host", "no such host"), {}, "Use an address of this machine"),
    ],
    ids=itemgetter(2),
)
def test_refuses_a_model_or_address_that_it_cannot_serve(
    tmp_path: Path, case: tuple[tuple[str, ...], dict[str, str | None], str]
) -> None:
    """Other machines need a secret; it serves one model, at an address of this machine."""
    arguments, variables, said = case

    assert said in _read_refusal(*arguments, **{"MENS_STORE_ROOT": str(tmp_path), **variables})


def test_a_short_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_SERVE_TOKEN", "too short")

    with pytest.raises(ConfigurationError, match=r"MENS_SERVE_TOKEN: .*Correct or unset") as caught:
        load_settings()
    assert "too short" not in str(caught.value).replace("too_short", "")


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    model = write_endless(tmp_path / "endless")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = _read_refusal("--model", model, "--port", str(port))

    assert message.startswith(
        f"http://127.0.0.1:{port}: cannot listen on this address (Address already in use). Choose another"
    )


def test_missing_libraries_are_named_with_their_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(serve_module, "find_spec", {"torch": True, "transformers": True, "peft": True}.get)
    result = run_main("serve", folder=tmp_path)

    assert result.returncode == 2
    assert result.stderr.startswith("mens: fastapi, uvicorn: ")
    assert result.stderr.endswith('Run: pip install -c constraints.txt -e ".[serve,train]"\n')


class _Served:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("ready: "):
                self._is_ready.set()
        self._is_ready.set()

    def url(self) -> str:
        assert self._is_ready.wait(180)
        assert self.process.poll() is None, self.lines
        return self.lines[-1].split()[-1].removesuffix("/v1")

    def end(self, number: int = 0) -> int:
        if number:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


@contextmanager
def _serve(*arguments: str | Path, **environment: str) -> Iterator[_Served]:
    command = [sys.executable, "-m", "mens_pipeline.cli", "serve", "--port", "0", *map(str, arguments)]
    variables = {**training_environment(), **environment}
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as process:
        served = _Served(process)
        try:
            yield served
        finally:
            process.kill()


@pytest.mark.slow
def test_a_signal_ends_the_server_after_its_completions(tmp_path: Path) -> None:
    model = write_endless(tmp_path / "endless")
    messages = [{"role": "user", "content": "Go on."}]
    ask = {"model": "mens", "messages": messages, "max_tokens": 300, "stream": True, "decoding": "free"}
    with _serve("--model", model, "--max-new-tokens", "300", MENS_SERVE_TOKEN=_SECRET) as served:
        url = served.url()
        headers = {"Authorization": f"Bearer {_SECRET}"}
        with httpx2.stream("POST", f"{url}/v1/chat/completions", json=ask, headers=headers, timeout=60) as completion:
            lines = completion.iter_lines()
            first = next(lines)
            served.process.send_signal(signal.SIGTERM)
            rest = [first, *lines]
        code = served.end()

    assert code == 0
    assert rest[-2 if not rest[-1] else -1] == "data: [DONE]"
    assert '"finish_reason": "length"' in "".join(rest)
    log = "".join(served.lines)
    said = [line.split(" ")[0] for line in served.lines]
    assert [word for word in said if word != "loading:"] == ["device", "loading", "ready:", "POST"], log
    assert _SECRET not in log


@pytest.mark.nightly
def test_an_interrupt_ends_the_server(tmp_path: Path) -> None:
    with _serve("--model", write_endless(tmp_path / "endless")) as served:
        served.url()
        code = served.end(signal.SIGINT)

    assert code == 0
    assert len(served.lines) == 3


@pytest.mark.nightly
def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    model = write_endless(tmp_path / "endless")
    (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-1_000])
    with _serve("--model", model) as served:
        code = served.process.wait(120)
        served.end()

    assert code == 1
    assert served.lines[-1].startswith(f"mens: {model}: cannot be loaded (")
    assert not any("Traceback" in line for line in served.lines)


@pytest.mark.nightly
def test_the_real_model_writes_text(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    base = find_base_model(SMOLLM2, None, load_settings().cache_root / "base_models")
    run = write_run(tmp_path / "run", base.path, rank=1, is_neutral=True)
    messages: list[Any] = [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Which city is the capital of France?"},
    ]
    tokenizer = AutoTokenizer.from_pretrained(base.path)
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    with _serve("--run-dir", run, "--device", "cpu", "--decoding", "free") as served:
        with Running(served.url(), adapter_model(Adapter.open(run), CPU)).openai() as client:
            whole = client.chat.completions.create(model="mens", messages=messages, max_tokens=16)
            stream = client.chat.completions.create(model="mens", messages=messages, max_tokens=16, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        code = served.end(signal.SIGTERM)

    assert "Paris" in text
    assert text == whole.choices[0].message.content
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == len(tokenizer.encode(rendered, add_special_tokens=False))
    assert code == 0
