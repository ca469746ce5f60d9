"""Every command explains itself, and quickly."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.cli.invoking import invoke


def _leaves(command: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, child in command.commands.items():
        if isinstance(child, TyperGroup):
            yield from _leaves(child, (*path, name))
        else:
            yield (*path, name)


_GROUP = typer.main.get_command(app)
assert isinstance(_GROUP, TyperGroup)
_COMMANDS = sorted(_leaves(_GROUP))
_REFERENCE = (PROJECT_ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_every_command_has_help_and_is_in_the_reference(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--help")

    assert result.exit_code == 0
    assert "Exit code 0" in result.stdout
    assert not re.search(r"\.\.\.\W+\.\.\.", result.stdout), "a repeated argument has its own dots"
    assert f"## `mens {' '.join(command)}`\n" in _REFERENCE


def test_no_arguments_show_the_commands() -> None:
    result = invoke()

    assert all(command[0] in result.stdout + result.stderr for command in _COMMANDS)


def test_the_version_is_that_of_the_package() -> None:
    found = invoke("--version").stdout.strip()

    assert re.fullmatch(r"0\.1\.0( \(commit [0-9a-f]{12}\))?", found)
    assert ("commit" in found) == (PROJECT_ROOT / ".git").exists()


def test_an_image_shows_the_commit_that_it_was_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mens_pipeline.settings.PROJECT_ROOT", tmp_path)
    found = {}
    for commit in ("0123456789abcdef" * 2 + "01234567", "", "main"):
        monkeypatch.setenv("MENS_COMMIT", commit)
        found[commit[:4]] = invoke("--version")

    assert found["0123"].stdout == "0.1.0 (commit 0123456789ab)\n"
    assert found[""].stdout == "0.1.0\n"
    assert "MENS_COMMIT" in str(found["main"].exception)


def test_commands_are_grouped_by_use() -> None:
    shown = invoke("--help").stdout

    assert re.findall(r"^(\S.*):$", shown, re.MULTILINE) == [
        "Options",
        *("Try", "Run", "Evaluate", "Use", "Inspect", "From scratch (a side branch)"),
    ]


def test_the_shell_completes_commands_and_options() -> None:
    found = [
        CliRunner().invoke(
            app, [], prog_name="mens", env={"_MENS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": place}
        )
        for typed, place in (("mens che", "1"), ("mens store pa", "2"), ("mens run --pre", "2"))
    ]

    assert [result.stdout.split() for result in found] == [["check"], ["pages"], ["--preset"]]


def test_no_list_of_commands_cuts_a_sentence() -> None:
    groups = {path[0] for path in _COMMANDS if len(path) > 1}
    shown = {name: invoke(name, "--help").stdout for name in groups}
    shown["mens"] = invoke("--help").stdout

    assert {"store", "scratch", "corpus", "telemetry"} <= {*shown}
    assert [name for name, text in shown.items() if re.search(r"\w\.\.\.$", text, re.MULTILINE)] == []


@pytest.mark.seed_row(66)
def test_help_loads_no_heavy_library() -> None:
    """Dagster and the deep learning stack wait until a command needs them; pydantic, 0.1 s, describes the options."""
    code = "import sys, mens_pipeline.cli.main; print(sorted({'dagster', 'torch', 'yaml'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
