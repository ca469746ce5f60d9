"""The grammar fingerprint changes with the syntax, and with nothing else."""

import shutil
from pathlib import Path

import pytest

import mens_pipeline.language
from mens_pipeline.language.grammar import GRAMMAR_FILES, grammar_fingerprint, rules

_LANGUAGE = Path(mens_pipeline.language.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the language package that a test may change."""
    return Path(shutil.copytree(_LANGUAGE, tmp_path / "language"))


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")

    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_same_rules_have_the_same_fingerprint(copy: Path) -> None:
    """A copy elsewhere has the same fingerprint: 64 hexadecimal digits."""
    assert grammar_fingerprint(copy) == grammar_fingerprint()
    assert len(bytes.fromhex(grammar_fingerprint())) == 32


@pytest.mark.seed_row(74)
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("vocabulary.py", '"migrate", ', '"migrate", "trait", '),
        ("vocabulary.py", '"*": (13, 14, "Mul")', '"*": (11, 12, "Mul")'),
        ("vocabulary.py", '"reviewer": _ID', '"reviewer": _STRING'),
        ("taxonomy.py", 'Construct("url", "Url", "url", 4)', 'Construct("url", "Url", "url", 5)'),
        ("lexer.py", 'r"[ \\t]+"', 'r"[ \\t\\f]+"'),
        ("parser/expressions.py", 'if self.take_word("key"):', 'if self.take_word("by"):'),
        ("parser/expressions.py", '"loop": StatementParser._loop,', ""),
        ("ast/nodes.py", "    mutable: bool\n", ""),
    ],
    ids=["keyword", "precedence", "decorator key", "taxonomy", "lexer", "rule", "statement", "tree"],
)
def test_a_change_of_syntax_changes_the_fingerprint(copy: Path, file: str, old: str, new: str) -> None:
    _replace(copy / file, old, new)

    assert grammar_fingerprint(copy) != grammar_fingerprint()


def test_comments_and_advice_do_not_change_the_fingerprint(copy: Path) -> None:
    for pattern in GRAMMAR_FILES:
        for path in copy.glob(pattern):
            text = path.read_text(encoding="utf-8")
            _, rest = text.split('"""\n', 1)
            path.write_text('"""Another docstring,\nlonger."""\n\n# A comment.\n' + rest, encoding="utf-8")
    _replace(copy / "explanations.py", '"Write `and`."', '"Use `and`."')

    assert grammar_fingerprint(copy) == grammar_fingerprint()


def test_rules_exclude_comments_and_docstrings() -> None:
    head = '"""Doc."""\n\n# why\nX = "a"  # kept: it shares its line\n"""About X."""\n'
    module = head + '\n\ndef f():\n    """Doc."""\n    return X\n'

    assert rules(module) == ['X = "a"  # kept: it shares its line', "def f():", "    return X"]
