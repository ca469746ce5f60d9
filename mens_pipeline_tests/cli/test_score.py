"""`mens score` and `mens export-tasks`: the benchmark for other programs that evaluate models."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import invoke

_BENCH = PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox"
_TASKS = load_benchmark(_BENCH).tasks


def _score(folder: Path, *rows: dict[str, Any]) -> Result:
    path = folder / "completions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return invoke("score", path, "--bench", _BENCH)


def _reply(place: int, text: str) -> dict[str, Any]:
    return {"task": _TASKS[place].id, "text": text, "stopped": True}


def test_completions_of_another_program_are_scored_like_ours(tmp_path: Path) -> None:
    right, wrong, none = _TASKS[0].solution, _TASKS[0].wrong[0], "I cannot do that."

    result = _score(tmp_path, _reply(0, right), _reply(1, none), _reply(0, wrong))
    rows = [json.loads(line) for line in result.stdout.splitlines()]

    assert result.exit_code == 0, result.exception
    assert [(row["task"], row["sample"], row["passed"]) for row in rows] == [
        (_TASKS[0].id, 0, True),
        (_TASKS[1].id, 0, False),
        (_TASKS[0].id, 1, False),
    ]
    assert (rows[1]["parses"], rows[1]["passes_tests"]) == (False, False)
    assert [bool(row["faults"]) for row in rows] == [False, True, True]
    assert "1 of 3 completions pass" in result.stderr


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"task": "hev_000", "text": "", "stopped": True}], "completion 1: found no task `hev_000`"),
        ([{"task": _TASKS[0].id, "text": ""}], "completions.jsonl:1: invalid completion"),
        ([], "found no completion"),
    ],
)
def test_rows_that_are_not_completions_are_refused(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    result = _score(tmp_path, *rows)

    assert result.exit_code != 0
    assert said in str(result.exception)


def test_a_benchmark_is_written_for_a_framework(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"

    result = invoke("export-tasks", "--to", "inspect", folder, "--bench", _BENCH)

    assert result.exit_code == 0, result.exception
    assert result.stdout.strip() == str(folder)
    assert "inspect eval vox_tasks.py" in (folder / "README.md").read_text()
