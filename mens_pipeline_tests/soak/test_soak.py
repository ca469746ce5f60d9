"""A short soak: its parts find no faults, and would find existing ones."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline_tests.soak import fuzz, kills
from mens_pipeline_tests.soak.__main__ import HEADING, PAGE, table, write
from mens_pipeline_tests.soak.calls import calls
from mens_pipeline_tests.soak.clients import clients
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.full_disks import full_disks
from mens_pipeline_tests.soak.processes import Command
from mens_pipeline_tests.soak.terminations import terminations


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("part", "budget"),
    [
        (fuzz.front_end, Budget(3600, 500)),
        (fuzz.files, Budget(3600, 1_000)),
        (clients, Budget(5, 1)),
        (full_disks, Budget(3600, 2)),
        pytest.param(calls, Budget(3600, sys.maxsize), marks=pytest.mark.timeout(3600)),
        (terminations, Budget(3600, 5)),
        (kills.merging, Budget(3600, 1)),
        (kills.serving, Budget(3600, 2)),
    ],
    ids=["front end", "files", "clients", "full disks", "calls", "terminations", "merging", "serving"],
)
@pytest.mark.filterwarnings("default")
def test_a_part_finds_no_faults(part: Callable[[Budget, Path], list[Figure]], budget: Budget, tmp_path: Path) -> None:
    (figure,) = part(budget, tmp_path)

    assert figure.wrong == ()


def test_finds_an_exception_that_is_not_a_refusal() -> None:
    def judge(content: bytes) -> None:
        content.decode()

    figure = fuzz._fuzz("bytes", [("text: ", judge, [b"abc" * 9])], Budget(60, 200))  # noqa: SLF001 - the function under test

    assert [line.split(":")[:2] for line in figure.wrong] == [["text", " UnicodeDecodeError in test_soak.py"]]
    assert figure.value.startswith("200 in ")


@pytest.mark.nightly
def test_finds_another_outcome_after_a_kill(tmp_path: Path) -> None:
    outcomes = iter(["one", "another"])
    commands = iter([["--help"], ["--help"], ["--help"], ["--help"], ["--help"]])

    def command(_place: Path) -> Command:
        return Command(next(commands, ["no-such-command"]), {})

    figure = kills._compare_killed(  # noqa: SLF001 - the function under test
        "kill -9", Budget(60, 1), tmp_path, command, lambda _place: {"file": next(outcomes)}
    )

    assert len(figure.wrong) == 1
    assert "differs in file" in figure.wrong[0]


def test_figures_replace_older_ones(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\nWords.\n\n{HEADING}\n\nold\n")
    write(page, [Figure("kills", "3 of 3"), Figure("noise", "9", ("a `line`\nof it",))], 2.0)
    text = page.read_text()

    assert text.startswith(f"# A page\n\nWords.\n\n{HEADING}\n\n`make soak`")
    assert "old" not in text
    assert "| kills | 3 of 3 | 0 |\n| noise | 9 | 1 |" in text
    assert text.endswith("What was wrong:\n\n- noise: `a line of it`\n")
    assert HEADING in PAGE.read_text()
    assert table([Figure("kills", "3 of 3")]).count("\n") == 2
