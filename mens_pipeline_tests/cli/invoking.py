"""Commands in this process, as tests give them."""

from typer.testing import CliRunner, Result

from mens_pipeline.cli.main import app
from mens_pipeline.errors import MensError


def invoke(*arguments: object) -> Result:
    """Run a command.

    Args:
        arguments: Its words.
    """
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refusal(result: Result) -> str:
    """The message of a command that was refused.

    Args:
        result: What came of it.
    """
    assert isinstance(result.exception, MensError), result.output
    return str(result.exception)
