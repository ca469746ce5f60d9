"""`mens grammar` as a person meets it."""

import sys
from pathlib import Path

import pytest

from mens_pipeline.cli.main import main
from mens_pipeline.language.grammar.export import GRAMMAR_FILE, GrammarFormat, grammar_text
from mens_pipeline_tests.cli.invoking import invoke


def test_the_committed_grammar_is_printed() -> None:
    """Without options it is that of `.vox` files, for llguidance."""
    result = invoke("grammar")

    assert result.exit_code == 0
    assert result.stdout == GRAMMAR_FILE.read_text(encoding="utf-8")


def test_a_grammar_is_written(tmp_path: Path) -> None:
    """In the other notation, for `.vox.ui` files, into a file."""
    file = tmp_path / "vox.gbnf"
    result = invoke("grammar", "--format", "gbnf", "--ui", "-o", file)
    text = grammar_text(GrammarFormat.GBNF, is_ui=True)

    assert (result.exit_code, result.stdout) == (0, "")
    assert file.read_text(encoding="utf-8") == text
    assert result.stderr == f"{file}: gbnf grammar of .vox.ui files, {len(text.splitlines())} lines\n"


def test_an_unknown_format_is_misuse() -> None:
    result = invoke("grammar", "--format", "bnf")

    assert result.exit_code == 2
    assert "'lark', 'gbnf'" in result.stderr


def test_a_file_that_cannot_be_written_is_misuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["mens", "grammar", "-o", str(tmp_path / "file" / "vox.lark")])
    with pytest.raises(SystemExit) as ending:
        main()

    assert ending.value.code == 2
    assert capsys.readouterr().err.endswith("Name a file in a folder you may write.\n")
