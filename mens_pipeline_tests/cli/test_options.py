"""Options of commands, from the fields of a model."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mens_pipeline.cli.options import REQUIRED, Options, argument, option, read_values, switch, take_options


class _Options(Options):
    source: Path = argument("What is read.", metavar="IN")
    output: Path = option(REQUIRED, "Where it goes.", "-o", "--output", metavar="FILE")
    rank: int | None = option(None, "lora_r.", field="lora_r", ge=1, le=64)
    curriculum: bool | None = option(None, "Easy rows first.", field="curriculum")
    dry_run: bool = switch("Look, write nothing.")
    as_json: bool = switch("One JSON document.", "--json")


def _run(*arguments: str) -> tuple[int, str, list[_Options]]:
    seen: list[_Options] = []
    app = typer.Typer(rich_markup_mode=None)
    app.command()(take_options(_Options)(seen.append))
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output, seen


def test_fields_are_options_with_their_names_types_and_defaults() -> None:
    code, _, [options] = _run("a.vox", "-o", "b.jsonl", "--json")
    assert code == 0
    assert options == _Options(source=Path("a.vox"), output=Path("b.jsonl"), as_json=True)


def test_only_given_options_set_fields_of_another_model() -> None:
    _, _, [options] = _run("a.vox", "-o", "b", "--rank", "16", "--no-curriculum")
    assert read_values(options) == {"--rank": ("lora_r", 16), "--curriculum": ("curriculum", False)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.vox",), "--output"),
        (("-o", "b"), "IN"),
        (("a.vox", "-o", "b", "--rank", "65"), "less than or equal to 64"),
        (("a.vox", "-o", "b", "--no-dry-run"), "--no-dry-run"),
    ],
)
def test_arguments_that_do_not_fit_the_fields_are_misuse(arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2 and a line that names the option; the command is not called."""
    code, output, seen = _run(*arguments)
    assert code == 2
    assert message in output
    assert not seen


def test_the_help_describes_the_fields() -> None:
    _, output, _ = _run("--help")
    assert "Look, write nothing." in output
    assert "range" in output
