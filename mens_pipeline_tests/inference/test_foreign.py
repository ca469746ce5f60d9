"""Servers of a merged model, which answer in place of our own loop: llama.cpp's, and our own."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.endpoint import Endpoint
from mens_pipeline.inference.foreign import ForeignPrompt, complete_prompts, start_servers
from mens_pipeline.inference.generate import generate
from mens_pipeline.inference.generation import COMPLETIONS, Completion, Decoding, ForeignEngine, Request, Syntax
from mens_pipeline.inference.prepare import Conditions, Model, PreparedGeneration, generate_all, prepare_generation
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, TELEMETRY, WEIGHTS, Adapter
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.openai_server import Served
from mens_pipeline_tests.openai_server import serving as listening

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

_LLAMA: Final = f"{sys.executable} -m mens_pipeline_tests.inference.llama_server {{folder}} {{port}}"
_MENS: Final = (
    f"{sys.executable} -m mens_pipeline.cli serve --model {{folder}} --port {{port}} --device cpu --decoding free"
)
_PEFT: Final = f"{sys.executable} -m mens_pipeline_tests.inference.peft_server {{folder}} {{port}} {{lora_modules}}"
_REQUESTS: Final = tuple(Request(task=f"t{n}", prompt=f"Write a function f{n}.") for n in range(6))


def _completions(run: Path, work: Path, decoding: Decoding, engine: ForeignEngine | None = None) -> list[Completion]:
    """What the child writes for a job, in this process."""
    conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), work / "lock", engine)
    prepared = prepare_generation("adapter", Adapter.open(run), _REQUESTS, conditions, work)
    generate(prepared.job)
    last = json.loads((work / TELEMETRY).read_text().splitlines()[-1])["payload"]
    assert last["num_done"] == last["num_answers"]
    return list(read_models(work / COMPLETIONS, Completion))


@pytest.mark.slow
@pytest.mark.parametrize(("command", "copies"), [(_LLAMA, 2), (_MENS, 1)], ids=["llama.cpp", "mens serve"])
def test_an_engine_writes_the_answers_of_our_loop(trained: Path, tmp_path: Path, command: str, copies: int) -> None:
    """Token by token; prompts go out as the ids that the model was trained on, and two servers share them."""
    decoding = Decoding(max_new_tokens=24)
    ours = _completions(trained, tmp_path / "ours", decoding)
    theirs = _completions(
        trained, tmp_path / "theirs", decoding, ForeignEngine(command=command, copies=copies, at_once=2)
    )

    assert theirs == ours
    assert not (tmp_path / "theirs" / "served").exists()


@pytest.mark.slow
def test_second_tries_stay_with_our_loop(trained: Path, tmp_path: Path) -> None:
    """The parser steers what no server can; the first tries are those of the engine."""
    decoding = Decoding(max_new_tokens=24, syntax=Syntax.FALLBACK)
    ours = _completions(trained, tmp_path / "ours", decoding)
    theirs = _completions(trained, tmp_path / "theirs", decoding, ForeignEngine(command=_LLAMA))

    assert any(completion.constrained for completion in ours)
    assert theirs == ours


@pytest.mark.slow
@pytest.mark.parametrize("command", [_LLAMA, _MENS], ids=["llama.cpp", "mens serve"])
def test_samples_of_an_engine_differ_and_say_how_likely_they_are(trained: Path, tmp_path: Path, command: str) -> None:
    """So that one of them can be chosen; the same seed gives the same ones."""
    decoding = Decoding(max_new_tokens=16, num_samples=2, temperature=1.0)
    engine = ForeignEngine(command=command, at_once=1)
    first, second = (_completions(trained, tmp_path / name, decoding, engine) for name in ("first", "second"))

    assert first == second
    assert [(completion.task, completion.sample) for completion in first] == [
        (r.task, n) for r in _REQUESTS for n in (0, 1)
    ]
    assert len({completion.text for completion in first}) > len(_REQUESTS)
    assert all(completion.likelihood is not None and completion.likelihood < 0 for completion in first)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantization", "served"),
    [("bf16", ["serving base adapter-0"]), ("nf4", ["serving base", "serving base adapter-0"])],
)
def test_one_server_writes_for_a_base_and_its_adapters(
    trained: Path, tmp_path: Path, quantization: str, served: list[str]
) -> None:
    """For all of their prompts; an adapter that was trained in four bits has a base of its own, with these values."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - comes with the deep learning stack

    run = tmp_path / "run"
    shutil.copytree(trained, run)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["recipe"]["quantization"] = quantization
    (run / MANIFEST).write_text(json.dumps(manifest))
    weights = run / ADAPTER / WEIGHTS  # so that it writes something else than its base does
    save_file({name: value * 60 for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    decoding = Decoding(max_new_tokens=24)
    asked: dict[str, tuple[Model, tuple[Request, ...]]] = {
        "base": ("base", _REQUESTS[:3]), "adapter": ("adapter", _REQUESTS[:4]), "more": ("adapter", _REQUESTS[4:]),
    }  # fmt: skip
    written, logs = list[dict[str, list[Completion]]](), list[str]()

    def launch(prepared: PreparedGeneration) -> int:
        code = do_here(prepared.job_path)
        log = prepared.job.run_dir / "engine.log"
        logs.extend(log.read_text().splitlines() if log.is_file() else ())
        return code

    for engine in (None, ForeignEngine(command=_PEFT, at_once=2)):
        work = tmp_path / str(len(written))
        conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), work / "lock", engine)
        jobs = {
            name: prepare_generation(model, Adapter.open(run), requests, conditions, work / name)
            for name, (model, requests) in asked.items()
        }
        made = generate_all(jobs, ArtifactStore(work / "store"), launch)
        written.append({name: [*read_models(one.path / COMPLETIONS, Completion)] for name, one in made.items()})

    assert written[0] == written[1]
    assert len({one.text for one in written[0]["adapter"]}) > 1
    assert written[0]["base"] != written[0]["adapter"][:3]
    assert sorted(line for line in logs if line.startswith("serving")) == served


def test_what_an_engine_wrote_is_kept_apart(trained: Path, tmp_path: Path) -> None:
    """By its command and by how many servers there are; answers of our loop keep their key."""

    def inputs(engine: ForeignEngine | None) -> dict[str, Any]:
        conditions = Conditions(Decoding(), resolve_device(DeviceChoice.CPU), tmp_path / "lock", engine)
        prepared = prepare_generation("adapter", Adapter.open(trained), _REQUESTS, conditions, tmp_path / "work")
        return prepared.inputs.model_dump()

    ours, one, two = (
        inputs(None),
        inputs(ForeignEngine(command=_LLAMA)),
        inputs(ForeignEngine(command=_LLAMA, copies=2)),
    )
    assert "engine" not in ours
    assert len({str(found) for found in (ours, one, two)}) == 3


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/nowhere/vllm serve {folder} {port}", "MENS_ENGINE: /nowhere/vllm: No such file or directory"),
        (
            f"{sys.executable} -c 'raise SystemExit(\"no GPU here\")' {{folder}} {{port}}",
            "ended with 1(.|\n)*no GPU here",
        ),
    ],
)
def test_an_engine_that_does_not_start_says_why(tmp_path: Path, command: str, words: str) -> None:
    """With its last words, and what to do."""
    with (
        pytest.raises(RefusedError, match=words) as caught,
        start_servers(ForeignEngine(command=command), tmp_path, tmp_path / "log"),
    ):
        pass
    assert "Correct MENS_ENGINE, or unset it" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"choices": []}, "no text completion"),
        ({"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}, "how likely"),
    ],
)
def test_an_engine_that_says_too_little_is_refused(body: dict[str, Any], words: str) -> None:
    """Nothing is made up in its place."""
    decoding = Decoding(num_samples=2, temperature=0.5)
    with listening(lambda _content, _number: Served(body=body)) as server:
        prompts = [ForeignPrompt("t", 0, (1, 2, 3))]
        with pytest.raises(RefusedError, match=words):
            complete_prompts([Endpoint(server.url, "m")], prompts, decoding, 1, lambda _tokens: None)
    assert server.requests[0]["path"] == "/v1/completions"
    assert server.requests[0]["content"]["prompt"] == [1, 2, 3]
