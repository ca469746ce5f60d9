"""Run commands in this process."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from mens_pipeline.cli.main import app, main
from mens_pipeline.errors import MensError

# Otherwise each call builds all commands again, which takes longer than most of them.
pytest.MonkeyPatch().setattr("typer.testing._get_command", cache(get_command))


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refusal(result: Result, kind: type[MensError] = MensError) -> str:
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def run_main(*arguments: object, folder: Path, variables: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Run the whole program in this process, for tests of exit codes and messages, without loading it again.

    An error for which it would print a traceback is raised.
    """
    words = [str(argument) for argument in arguments]
    stdout, stderr = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["mens", *words])
        for name, value in {"PYTHONSAFEPATH": "1", **(variables or {})}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
    return CompletedProcess(words, int(ended.value.code or 0), stdout.getvalue(), stderr.getvalue())
