"""All reasons why something does not train are in one file, and each of them is used."""

import ast
import inspect
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

import mens_pipeline
from mens_pipeline.corpus.schema import reasons
from mens_pipeline.corpus.schema.reasons import NotShown, RejectReason, SplitReason
from mens_pipeline.training.recipe import Recipe

_PACKAGE = Path(mens_pipeline.__file__).parent
_REASONS = Path(reasons.__file__)
_CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(reasons, inspect.isclass)
    if issubclass(kind, StrEnum) and kind is not StrEnum
}


@cache
def _nodes() -> tuple[tuple[Path, ast.AST], ...]:
    paths = (path for path in _PACKAGE.rglob("*.py") if path != _REASONS and _PACKAGE / "language" not in path.parents)
    return tuple((path, node) for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.slow
def test_no_other_module_declares_reasons_to_drop() -> None:
    elsewhere = [
        f"{path.name}: {node.name}"
        for path, node in _nodes()
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in node.bases)
        and (ast.get_docstring(node) or "").startswith("Why ")
    ]
    counted = {
        node.slice.id
        for _, node in _nodes()
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Account"
        and isinstance(node.slice, ast.Name)
    }

    assert not elsewhere
    assert counted - {"Reason"} <= _CLASSES.keys()
    assert len(counted) > 8


def test_every_reason_is_used() -> None:
    given = {
        (node.value.id, node.attr)
        for _, node in _nodes()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _CLASSES
    }
    given |= {("SplitReason", reason.name) for reason in RejectReason if str(reason) in set(map(str, SplitReason))}
    idle = [f"{name}.{reason.name}" for name, kind in _CLASSES.items() for reason in kind]

    assert [reason for reason in idle if tuple(reason.split(".")) not in given] == []


def test_rows_that_are_not_shown_name_the_setting_that_leaves_them_out() -> None:
    assert {setting for reason in NotShown for setting in reason.settings} <= Recipe.model_fields.keys()
