"""A benchmark as an environment of other frameworks, with its real scorer."""

import asyncio
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mens_pipeline.delivery.environment import write_environment
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.benchmark import Benchmark, load_benchmark
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.openai_server import Served, completion, serving

_COMMANDS = {
    "inspect": "inspect eval vox_tasks.py --model openai-api/here/some --limit 3 --display=plain"
    " --log-dir=logs --log-format=json",
    "verifiers": "vf-eval vox-tasks -n 3 --env.agent.harness.id null --env.agent.runtime.type subprocess --no-push"
    " -m some --client.base-url {url} --client.api-key-var HERE_API_KEY -o logs",
}
_JUDGE = shlex.join([sys.executable, "-m", "mens_pipeline.cli"])


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return load_benchmark(PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox")


@pytest.fixture
def judge(benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    write_environment(benchmark, "inspect", tmp_path / "tasks")
    monkeypatch.setenv("VOX_JUDGE", _JUDGE)
    spec = importlib.util.spec_from_file_location("vox_judge", tmp_path / "tasks" / "vox_judge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("framework", ["inspect", "verifiers"])
def test_an_environment_is_complete_and_its_prompts_have_no_hidden_tests(
    framework: str, benchmark: Benchmark, tmp_path: Path
) -> None:
    write_environment(benchmark, framework, tmp_path / "new" / "tasks")
    folder = tmp_path / "new" / "tasks"
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]

    assert load_benchmark(folder / "benchmark").digest == benchmark.digest
    assert [row["id"] for row in rows] == [task.id for task in benchmark.tasks]
    assert all("@test" in (folder / "benchmark" / row["tests"]).read_text() for row in rows)
    assert "@test" not in (folder / "prompts.jsonl").read_text()
    assert benchmark.digest in (folder / "README.md").read_text()
    compile((folder / "vox_tasks.py").read_text(), "vox_tasks.py", "exec")
    with pytest.raises(ConfigurationError, match="already exists"):
        write_environment(benchmark, framework, folder)


@pytest.mark.slow
def test_the_scorer_calls_mens(judge: ModuleType, benchmark: Benchmark) -> None:
    task = benchmark.tasks[0]

    async def score_all() -> list[dict[str, Any]]:
        replies = ((f"```vox\n{task.solution}```", True), (task.wrong[0], True), (task.solution, False))
        return list(await asyncio.gather(*(judge.score_reply(task.id, *reply) for reply in replies)))

    good, wrong, unended = asyncio.run(score_all())

    assert good == {
        "task": task.id, "sample": 0, "passed": True, "parses": True, "resolves": True, "passes_tests": True,
        "faults": [],
    }  # fmt: skip
    assert (wrong["passed"], wrong["parses"], wrong["passes_tests"]) == (False, True, False)
    assert wrong["faults"]
    assert (unended["passed"], unended["faults"]) == (False, ["It was cut off."])


def test_an_error_of_mens_does_not_count_against_a_completion(
    judge: ModuleType, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework gets an error instead of a score of zero; also if `mens` is missing."""
    with pytest.raises(RuntimeError, match="found no task `hev_000`"):
        asyncio.run(judge.score_reply("hev_000", "", stopped=True))
    monkeypatch.setenv("VOX_JUDGE", "no-such-command")
    with pytest.raises(FileNotFoundError):
        asyncio.run(judge.score_reply(benchmark.tasks[1].id, "", stopped=True))


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(_COMMANDS))
def test_the_framework_runs_the_environment(framework: str, benchmark: Benchmark, tmp_path: Path) -> None:
    command = shlex.split(_COMMANDS[framework])
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not on the path")
    folder = tmp_path / "tasks"
    write_environment(benchmark, framework, folder)
    wrong = benchmark.tasks[1]
    replies = {task.spec.description: task.solution for task in benchmark.tasks}
    replies[wrong.spec.description] = wrong.wrong[0]

    def complete(content: dict[str, Any], _number: int) -> Served:
        text = content["messages"][-1]["content"]
        return _complete(replies[text if isinstance(text, str) else text[0]["text"]], is_streamed=content.get("stream"))

    with serving(complete) as server:
        environment = {
            **os.environ, "PYTHONPATH": f".:{PROJECT_ROOT}", "HERE_API_KEY": "none", "HERE_BASE_URL": server.url,
            "VOX_JUDGE": _JUDGE,
        }  # fmt: skip
        words = [word.format(url=server.url) for word in command]
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    assert done.returncode == 0, done.stdout + done.stderr
    assert _read_passes(framework, folder) == {task.id: float(task is not wrong) for task in benchmark.tasks[:3]}


def _complete(text: str, *, is_streamed: bool | None) -> Served:
    whole = completion(text)
    whole.body["model"] = "some"
    if not is_streamed:
        return whole
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    event = {**whole.body, "object": "chat.completion.chunk", "choices": [choice]}
    body = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode()
    return Served(body=body, headers={"Content-Type": "text/event-stream"})


def _read_passes(framework: str, folder: Path) -> dict[str, float]:
    if framework == "inspect":
        (log,) = (folder / "logs").glob("*.json")
        samples = json.loads(log.read_text())["samples"]
        return {found["id"]: found["scores"]["mens"]["value"]["passed"] for found in samples}
    (path,) = (folder / "logs").rglob("traces.jsonl")
    traces = [json.loads(line)["traces"][0] for line in path.read_text().splitlines()]
    return {trace["task"]["data"]["name"]: trace["rewards"]["passed"]["score"] for trace in traces}
