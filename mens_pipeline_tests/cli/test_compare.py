"""`mens compare` of several models."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mens_pipeline.evaluation.benchmark import Benchmark, load_benchmark
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import invoke
from mens_pipeline_tests.openai_server import completion, serving

_BENCH = PROJECT_ROOT / "data" / "heldout_bench"
_TASKS = benchmark_tasks(load_benchmark(_BENCH))


def _try(name: str, writes: Callable[[int, Task], str], folder: Path = _BENCH) -> None:
    known = {task.prompt: writes(number, task) for number, task in enumerate(_TASKS)}
    with serving(lambda content, _number: completion(known[content["messages"][-1]["content"]])) as server:
        tried = invoke("eval-local", "--endpoint", server.url, "--model", name, "--bench", str(folder), "--json")
    assert tried.exit_code == 0, tried.exception


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with trials: all tasks solved, half, none, and all but one of ten."""
    folder = tmp_path_factory.mktemp("tried")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        _try("all", lambda _number, task: task.reference)
        _try("half", lambda number, task: task.reference if number % 2 else "no <b>Vox</b>")
        _try("none", lambda _number, _task: "I cannot.")
        few_tasks = _write_smaller_bench(folder / "some", load_benchmark(_BENCH))
        _try("few", lambda number, task: task.reference if number else "fn", few_tasks)
    return folder / "build" / "endpoint"


def _write_smaller_bench(folder: Path, benchmark: Benchmark) -> Path:
    manifest = json.loads((benchmark.folder / "manifest.json").read_text())
    manifest["benchmarks"] = manifest["benchmarks"][:10]
    for task in benchmark.tasks[:10]:
        for name in task.spec.files():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(benchmark.folder / name, folder / name)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _compare(tried: Path, *names: str) -> tuple[dict[str, Any], Result]:
    page = tried / "page.html"
    result = invoke("compare", *(str(tried / name) for name in names), "-o", str(page), "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout), result


def _find_cells(board: dict[str, Any], label: str) -> dict[str, Any]:
    (row,) = (row for row in board["rows"] if row["label"] == label)
    return dict(zip(board["models"], row["cells"], strict=True))


def test_models_are_ranked_with_intervals_and_paired_differences(tried: Path) -> None:
    """Each against the first, by the exact test over the same tasks; the others are sorted by rate."""
    board, _ = _compare(tried, "none", "half", "all")
    cells = _find_cells(board, "pass@1")

    assert list(cells) == ["none", "all", "half"]
    assert [cell["rate"]["numerator"] for cell in cells.values()] == [0, len(_TASKS), len(_TASKS) // 2]
    assert cells["half"]["rate"]["low"] < cells["half"]["rate"]["value"] < cells["half"]["rate"]["high"]
    assert cells["none"]["difference"] is None
    assert cells["all"]["difference"]["value"] == 1
    assert cells["half"]["difference"]["p_value"] < 0.001
    assert cells["half"]["difference"]["num_tasks"] == len(_TASKS)
    assert cells["half"]["difference"]["tone"] == "good"
    page = (tried / "page.html").read_text()
    assert "b&gt;Vox&lt;/b&gt;" in page
    assert "<b>Vox</b>" not in page


def test_only_tasks_that_all_models_completed_count(tried: Path) -> None:
    board, result = _compare(tried, "all/trial_completions.jsonl", "few")

    assert board["num_tasks"] == 10
    for row in board["rows"]:
        for cell in row["cells"]:
            assert cell["rate"] is None or cell["rate"]["denominator"] <= 10
            assert cell["difference"] is None or cell["difference"]["num_tasks"] == cell["rate"]["denominator"]
    assert [cell["rate"]["numerator"] for cell in _find_cells(board, "pass@1").values()] == [10, 9]
    assert f"all completed {len(_TASKS)} tasks; only the 10 that all completed count." in result.stderr


def test_prints_a_table(tried: Path) -> None:
    result = invoke("compare", str(tried / "half"), str(tried / "all"), "-o", str(tried / "page.html"))
    lines = [re.split(r" {2,}", line) for line in result.stdout.splitlines()]

    assert lines[0] == ["suite", "figure", "half", "all", "less half"]
    assert lines[1][0] == "benchmark"
    assert ["pass@1", "+50.0 points (p < 0.001)"] in [[line[1], line[-1]] for line in lines]


def test_rejects_input_that_it_cannot_compare(tried: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    (tmp_path / "wrong.jsonl").write_text('{"model": "adapter"}\n')
    both.mkdir()
    for name in ("trial_completions.jsonl", "scored_completions.jsonl"):
        (both / name).write_text("")
    one = str(tried / "all")

    assert "Name at least two" in invoke("compare", one).output
    for second, said in (
        (one, "found two models called all"),
        (str(tmp_path / "wrong.jsonl"), "wrong.jsonl:1: invalid scored completion"),
        (str(both), "Name one"),
    ):
        result = invoke("compare", one, second, "-o", str(tmp_path / "page.html"))
        assert result.exit_code != 0
        assert said in str(result.exception)
    assert not (tmp_path / "page.html").exists()
