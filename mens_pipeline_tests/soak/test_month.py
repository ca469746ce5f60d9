"""The month itself: two of its nights, its reading of the output of a run, and its page."""

import subprocess
import sys
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.soak import month
from mens_pipeline_tests.soak.month import HEADING, Row, draw, pass_nights, show, write
from mens_pipeline_tests.soak.month_nights import NIGHTS, Night

_PAGE = f"# A page\n\nWords.\n\n{HEADING}\n\nof last year\n\n## Figures\n\nothers\n"


def _row(outcome: str = "promoted", *wrong: str, line: str = "all made") -> Row:
    return Row(Night("3 new programs", "promoted"), outcome, line, (30.2, 20.0), (5.0, 1.0, 600.0), wrong)


@pytest.mark.nightly
def test_nights_end_as_expected(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    nights = [next(night for night in NIGHTS if night.is_full), NIGHTS[0]]
    rows = pass_nights(tmp_path, nights, is_mounted=False, week=2)

    assert [row.outcome for row in rows] == ["failed", "promoted"]
    assert [row.wrong for row in rows] == [(), ()]


@pytest.mark.parametrize(
    ("output", "code", "is_other", "expected"),
    [
        ("reused      9/9 stages\n", 0, False, ("unchanged", "9/9 stages reused")),
        ("", 0, True, ("promoted", "all made")),
        ("start: qlora_adapter\n", -9, False, ("killed", "killed")),
        ("18:00:00  x\ninterrupted; run it again\n", 130, False, ("interrupted", "interrupted; run it again")),
        ("interrupted; run it again\n", 1, False, ("failed", "")),
        (
            "18:00:00  promoted_adapter: withdrawn by a rollback: not promoted; ab stays\nverdict     passed\n",
            1,
            False,
            ("refused", "withdrawn by a rollback: not promoted; ab stays"),
        ),
        ("verdict     refused, policy ci\n            parse_rate: 0/9\n", 1, False, ("refused", "parse_rate: 0/9")),
        ("verdict     undecided, not promoted\n            a\n", 1, False, ("undecided", "a")),
        ("18:00:00  x: why (run 12-ab of whole_graph failed)\n", 1, False, ("failed", "x: why")),
        ("mens: /store: No space left on device.\n", 1, False, ("failed", "/store: No space left on device.")),
        (
            "Error: Invalid value: /nowhere: no such folder.\n",
            2,
            False,
            ("failed", "Invalid value: /nowhere: no such folder."),
        ),
        ("Traceback\n", 1, False, ("failed", "")),
    ],
)
def test_reads_the_outcome_of_a_run(output: str, code: int, is_other: bool, expected: tuple[str, str]) -> None:  # noqa: FBT001
    assert month._read(output, code, is_other=is_other) == expected  # noqa: SLF001 - the function under test


def test_a_month_has_thirty_nights() -> None:
    assert len(NIGHTS) == 30
    assert {night.outcome for night in NIGHTS} == month._COLOURS.keys() - {"undecided"}  # noqa: SLF001 - the colours of the chart


def test_the_process_that_starts_nights_loads_no_heavy_modules() -> None:
    """The reported peak memory of a child is never below that of its parent."""
    names = "{'torch', 'transformers', 'dagster'} & {*sys.modules}"
    command = [sys.executable, "-c", f"import sys, {month.__name__}; sys.exit(' '.join({names}) or 0)"]
    assert subprocess.run(command, check=False, cwd=PROJECT_ROOT).returncode == 0


def test_names_unexpected_results() -> None:
    assert show([_row(), _row()]).startswith("All 2 nights ended as expected.\n\n| night |")
    assert "Unexpected:\n\n- Night 2: no line says why.\n\n" in show([_row(), _row("failed", "no line says why")])
    assert "| 1 | 3 new programs | promoted | a / b | 30 | 20 | 5 | 1 | 600 |" in show([_row(line="a | b")])


def test_a_month_replaces_an_older_one(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.md", tmp_path / "month.svg"
    page.write_text(_PAGE)
    rows = [_row(), _row("failed"), _row("killed")]
    for _ in range(2):
        write(page, picture, rows, "`make month`.")

    assert page.read_text().startswith(f"# A page\n\nWords.\n\n{HEADING}\n\n![How nights ended")
    assert page.read_text().endswith("| 600 |\n\n## Figures\n\nothers\n")
    assert "last year" not in page.read_text()
    assert picture.read_text() == draw(rows)
    assert picture.read_text().count("<title>3 new programs</title>") == 3
    with pytest.raises(SystemExit, match="no heading `## A month`"):
        write(tmp_path / "month.svg", picture, rows, "")
