"""Every command explains itself, and quickly."""

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.settings import PROJECT_ROOT

_COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a typer application is a group


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_has_help_and_is_in_the_readme(command: str) -> None:
    """What exists is documented."""
    result = CliRunner().invoke(app, [command, "--help"])

    assert result.exit_code == 0
    assert "Exit code 0" in result.stdout
    assert f"mens {command}" in (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")


def test_no_arguments_show_the_commands() -> None:
    """A lone `mens` is a question."""
    result = CliRunner().invoke(app, [])

    assert all(command in result.stdout + result.stderr for command in _COMMANDS)


def test_the_version_is_that_of_the_package() -> None:
    """`mens --version` prints it."""
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == "0.1.0"


def test_help_loads_no_heavy_library() -> None:
    """Dagster and the deep learning stack wait until a command needs them."""
    code = (
        "import sys, mens_pipeline.cli.main; print(sorted({'dagster', 'torch', 'yaml', 'pydantic'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
