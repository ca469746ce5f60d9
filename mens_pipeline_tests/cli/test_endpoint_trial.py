"""`mens eval-local --endpoint`: another model answers the benchmark, over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import invoke
from mens_pipeline_tests.openai_server import Served, completion, serving

_BENCH = PROJECT_ROOT / "data" / "heldout_bench"
_TASKS = benchmark_tasks(load_benchmark(_BENCH))
_REFERENCES = {task.prompt: task.reference for task in _TASKS}


def _try(url: str, *more: str) -> Result:
    return invoke("eval-local", "--endpoint", url, "--model", "org/some-model", "--json", *more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the replies."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "build" / "endpoint" / "org_some-model"


def test_a_model_with_all_solutions_passes_all(folder: Path) -> None:
    with serving(lambda content, _number: completion(f"```vox\n{_REFERENCES[_read_question(content)]}```")) as server:
        result = _try(server.url)
        scores = json.loads(result.stdout)

    assert scores["parse_rate"]["numerator"] == scores["pass_at"]["1"]["numerator"] == len(_TASKS)
    assert scores["test_rate"]["numerator"] == scores["test_rate"]["denominator"] > 0
    assert {request["content"]["model"] for request in server.requests} == {"org/some-model"}
    assert len((folder / "trial_completions.jsonl").read_text().splitlines()) == len(_TASKS)


def test_completed_tasks_are_not_requested_again(folder: Path) -> None:
    attempts = [True]

    def fail(content: dict[str, Any], number: int) -> Served:
        is_answered = number < 40 or len(attempts) > 1
        return (
            completion(_REFERENCES[_read_question(content)]) if is_answered else Served(403, {"error": "no more money"})
        )

    with serving(fail) as server:
        failed = _try(server.url)
        kept = len((folder / "replies.jsonl").read_text().splitlines())
        server.requests.clear()
        attempts.append(True)
        again = _try(server.url)

    assert failed.exit_code != 0
    assert "no more money" in str(failed.exception)
    assert kept == 40
    assert again.exit_code == 0, again.exception
    assert len(server.requests) == len(_TASKS) - kept


@pytest.mark.slow
def test_vox_can_be_described_to_a_model(folder: Path) -> None:
    with serving(lambda content, _number: completion(_REFERENCES[_read_question(content)])) as server:
        assert _try(server.url).exit_code == _try(server.url, "--describe").exit_code == 0

    plain, described = (server.requests[place]["content"]["messages"][0]["content"] for place in (0, -1))
    assert described.startswith(plain)
    assert "Vox is a young programming language" in described
    assert len(server.requests) == 2 * len(_TASKS)
    assert folder.is_dir()


def _read_question(content: dict[str, Any]) -> str:
    return str(content["messages"][-1]["content"])
