"""`docs/security.md` says which test shows what: each of them is there, and each test of this folder is named."""

import ast
import re

import pytest

from mens_pipeline.settings import PROJECT_ROOT

_TESTS = PROJECT_ROOT / "mens_pipeline_tests"
_DOCUMENT = (PROJECT_ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", _DOCUMENT)))
_MODULES = sorted(set(re.findall(r"`((?:language|corpus|training|evaluation|delivery|cli)/[\w/]+\.py)`", _DOCUMENT)))


def _tests_in(file: str) -> set[str]:
    tree = ast.parse((_TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(("file", "name"), _NAMED, ids=lambda value: value)
def test_a_named_test_is_there(file: str, name: str) -> None:
    """A defence is as good as what shows it."""
    assert name in _tests_in(file)


@pytest.mark.parametrize("module", _MODULES)
def test_a_named_module_is_there(module: str) -> None:
    """Whoever reads of a defence finds it."""
    assert (PROJECT_ROOT / "mens_pipeline" / module).is_file()


def test_many_are_named() -> None:
    """The document was read as it is written."""
    assert len(_NAMED) > 50
    assert len(_MODULES) > 15
