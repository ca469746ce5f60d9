"""The table of durations: its changes by a run, and the order of tests that it gives."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.durations import NIGHTLY, TABLE, Line, Recorder, read_table, slowest_first, write_table

_SLOW, _FAST = "tests/test_slow.py", "tests/test_fast.py"


def _make_recorder(folder: Path, *seconds: tuple[str, str, float]) -> Recorder:
    (folder / "tests").mkdir(exist_ok=True)
    recorder = Recorder(folder / "table.tsv", folder)
    phases: tuple[Literal["setup", "call"], ...] = ("setup", "call")
    for file, test, duration in seconds:
        (folder / file).touch()
        for phase in phases:
            place = (file, 1, test)
            keywords: dict[str, Any] = {"measured": 1} if file == _FAST else {"nightly": 1} if test == "test_n" else {}
            recorder.pytest_runtest_logreport(
                pytest.TestReport(f"{file}::{test}", place, keywords, "passed", None, phase, duration=duration / 2)
            )
    return recorder


def test_a_passing_run_writes_the_durations_of_files(tmp_path: Path) -> None:
    table = tmp_path / "table.tsv"
    ran = _make_recorder(
        tmp_path, (_SLOW, "test_a", 4), (_SLOW, "test_b[x]", 10.2), (_FAST, "test_c", 2), ("tests/x", "d", 0.1)
    )
    ran.pytest_sessionfinish(pytest.ExitCode.TESTS_FAILED)
    assert not table.exists()
    ran.pytest_sessionfinish(pytest.ExitCode.OK)

    assert table.read_text().splitlines()[1:] == [f"14\t10\tplain\t{_SLOW}\ttest_b", f"2\t2\tmeasured\t{_FAST}\ttest_c"]
    assert read_table(table) == {(_SLOW, "plain"): Line(14, 10, "test_b"), (_FAST, "measured"): Line(2, 2, "test_c")}


def test_a_table_changes_only_for_a_reason(tmp_path: Path) -> None:
    table = tmp_path / "table.tsv"
    old = {
        (_SLOW, "plain"): Line(14, 10, "test_b"),
        (_FAST, "measured"): Line(2, 2, "test_c"),
        ("gone.py", "plain"): Line(9, 9, "x"),
    }
    write_table(table, old)
    (tmp_path / "tests").mkdir()
    (tmp_path / _FAST).touch()
    _make_recorder(tmp_path, (_SLOW, "test_b", 12)).pytest_sessionfinish(pytest.ExitCode.OK)
    assert read_table(table) == {key: line for key, line in old.items() if key[0] != "gone.py"}

    _make_recorder(tmp_path, (_SLOW, "test_b", 7)).pytest_sessionfinish(pytest.ExitCode.OK)
    assert read_table(table)[_SLOW, "plain"] == Line(7, 7, "test_b")

    _make_recorder(tmp_path, (_SLOW, "test_n", 7)).pytest_sessionfinish(pytest.ExitCode.OK)
    assert read_table(table).keys() == {(_SLOW, "nightly"), (_FAST, "measured")}, "all its tests are nightly now"


def _make_item(file: str, name: str, *markers: str) -> Any:
    return SimpleNamespace(path=Path("/", file), name=name, keywords={name, *markers})


def test_workers_begin_with_the_slowest_files() -> None:
    lines = {
        (_SLOW, "plain"): Line(14, 10, "b"),
        (_FAST, "measured"): Line(2, 2, "a"),
        (_FAST, "nightly"): Line(99, 99, "d"),
    }
    items = [_make_item(_FAST, "a", "measured"), _make_item(_SLOW, "b"), _make_item(_SLOW, "c")]
    slowest_first(items, Path("/"), lines)
    assert [item.name for item in items] == ["b", "c", "a"]

    items.append(_make_item(_FAST, "d", "nightly", "slow"))
    slowest_first(items, Path("/"), lines)
    assert [item.name for item in items] == ["a", "d", "b", "c"]


def test_make_check_needs_at_most_a_quarter_of_an_hour() -> None:
    """By the committed table: two workers share what `make check` runs, and three minutes are for tools and start-up.

    If you add a slow test, speed up another one, or mark it `nightly` if a push does not need it.
    """
    seconds = {key: line.seconds for key, line in read_table(TABLE).items() if key[1] != NIGHTLY}

    assert sum(seconds.values()) <= 2 * (15 - 3) * 60


def test_a_check_writes_the_table_only_on_request() -> None:
    """A slow machine would change the table between two parts of one check, and fail its own sum."""

    def read_commands(*words: str) -> str:
        outer = {"MAKEFLAGS", "MAKEOVERRIDES", "DURATIONS"}
        environment = {name: value for name, value in os.environ.items() if name not in outer}
        printing = ["make", "-n", "check", *words]
        return subprocess.run(
            printing, cwd=PROJECT_ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert "--durations-table" not in read_commands()
    assert read_commands("DURATIONS=table.tsv").count("--durations-table table.tsv") == 2
