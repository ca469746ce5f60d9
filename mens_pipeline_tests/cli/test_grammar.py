"""`mens grammar`."""

from pathlib import Path

from mens_pipeline.language.grammar.export import GRAMMAR_FILE, GrammarFormat, grammar_text
from mens_pipeline_tests.cli.invoking import invoke


def test_the_committed_grammar_is_printed() -> None:
    result = invoke("grammar")

    assert result.exit_code == 0
    assert result.stdout == GRAMMAR_FILE.read_text(encoding="utf-8")


def test_a_grammar_is_written(tmp_path: Path) -> None:
    file = tmp_path / "vox.gbnf"
    result = invoke("grammar", "--format", "gbnf", "--ui", "-o", file)
    text = grammar_text(GrammarFormat.GBNF, is_ui=True)

    assert (result.exit_code, result.stdout) == (0, "")
    assert file.read_text(encoding="utf-8") == text
    assert result.stderr == f"{file}: gbnf grammar of .vox.ui files, {len(text.splitlines())} lines\n"
