"""The fingerprint of the grammar; `export` writes the grammar itself.

The fingerprint hashes the source of lexer and parser, without docstrings, blank lines and comment lines. It changes
with every table, rule and message, but not with documentation, machine or Python version.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_LANGUAGE: Final = Path(__file__).parents[1]
GRAMMAR_FILES: Final = ("vocabulary.py", "taxonomy.py", "lexer.py", "ast/*.py", "parser/*.py")
"""The files that define the texts of Vox and their meaning."""


@cache
def grammar_fingerprint(folder: Path = _LANGUAGE) -> str:
    """Return the fingerprint of the grammar: 64 hexadecimal digits (SHA-256)."""
    digest = hashlib.sha256()
    for pattern in GRAMMAR_FILES:
        for path in sorted(folder.glob(pattern)):
            digest.update(path.relative_to(folder).as_posix().encode())
            for line in rules(path.read_text(encoding="utf-8")):
                digest.update(b"\n" + line.encode())
    return digest.hexdigest()


def rules(source: str) -> list[str]:
    """Return the lines of a Python module without docstrings, blank lines and lines that are only a comment."""
    silent: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            silent.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return [
        line.rstrip()
        for number, line in lines
        if number not in silent and line.strip() and not line.lstrip().startswith("#")
    ]
