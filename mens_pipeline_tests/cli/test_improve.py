"""`mens improve`: how it is called."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.errors import RefusedError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rounds", "0"), "greater than or equal to 1"),
        (("--minutes", "0"), "greater than or equal to 0.01"),
    ],
)
def test_misuse_is_told_before_anything_is_asked(options: tuple[str, ...], message: str) -> None:
    """Exit code 2 and what is wrong."""
    result = CliRunner().invoke(app, ["improve", *options])

    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("\u2502", " ").split())


def test_without_an_adapter_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal, not a traceback."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    result = CliRunner().invoke(app, ["improve"])

    assert isinstance(result.exception, RefusedError)
    assert "Run `mens run` first" in str(result.exception)
