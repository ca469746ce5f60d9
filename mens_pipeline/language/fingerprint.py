"""A hash that changes whenever the syntax does.

The grammar is what the lexer and the parser do, so their source is what is hashed: every line of it that is not a
comment, a docstring or blank. A table, a rule or a message that changes makes a new fingerprint; an explanation that
changes does not. Being a hash of text, it is the same on every machine and every version of Python.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_LANGUAGE: Final = Path(__file__).parent
GRAMMAR_FILES: Final = ("vocabulary.py", "taxonomy.py", "lexer.py", "ast/*.py", "parser/*.py")
"""The files that decide which texts are Vox and what they mean."""


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
    """Return the lines of a Python module that decide what it does.

    Returns:
        Its lines without comments on lines of their own, docstrings, strings that document a constant, and blanks.
    """
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
