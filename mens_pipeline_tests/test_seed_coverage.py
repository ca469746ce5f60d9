"""`docs/seed-coverage.md` names code and tests that exist."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT

_NUM_ITEMS = 79
_PAGE = PROJECT_ROOT / "docs" / "seed-coverage.md"
_ROW = re.compile(r"^\| (?P<number>\d+) \| (?P<item>.+?) \| (?P<where>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
_FILE = re.compile(r"`([\w/.-]+\.py)`")
_TEST = re.compile(r"`([\w/.-]+\.py)::(\w+)`")


@dataclass(frozen=True)
class _Item:
    """One row of the page."""

    number: int
    where: str
    tests: str

    @property
    def files(self) -> list[str]:
        """The modules it names."""
        return _FILE.findall(self.where)

    @property
    def functions(self) -> list[tuple[str, str]]:
        """The tests it names, as file and function."""
        return _TEST.findall(self.tests)


_ITEMS = [
    _Item(int(row["number"]), row["where"], row["tests"]) for row in _ROW.finditer(_PAGE.read_text(encoding="utf-8"))
]


@cache
def _functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_item_has_its_row() -> None:
    """In order, each once; no line of the table is passed over."""
    lines = [line for line in _PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)]

    assert [item.number for item in _ITEMS] == list(range(1, _NUM_ITEMS + 1))
    assert len(lines) == _NUM_ITEMS


@pytest.mark.parametrize("item", _ITEMS, ids=lambda item: str(item.number))
def test_what_a_row_names_is_there(item: _Item) -> None:
    """Modules by their files, tests by the functions in them; every row names a test that pytest would find."""
    roots = PROJECT_ROOT / "mens_pipeline", PROJECT_ROOT / "mens_pipeline_tests"
    pages = re.findall(r"\b(docs/[\w-]+\.md)", item.where)

    assert all(any((root / name).is_file() for root in roots) for name in item.files), item.files
    assert all((PROJECT_ROOT / page).is_file() for page in pages), pages
    assert item.files or pages or "`Makefile`" in item.where
    assert item.functions
    for name, function in item.functions:
        assert function.startswith("test_")
        assert function in _functions_of(roots[1] / name), f"{name}::{function}"


def test_nothing_else_is_named() -> None:
    """A name that is written some other way would not be checked."""
    for item in _ITEMS:
        assert re.sub(r"`[^`]+`(, )?", "", item.tests) == "", item.tests
        assert len(re.findall("`[^`]+`", item.tests)) == len(item.functions)
