"""Every regular expression on texts made to slow it down: time must be linear in length."""

import ast
import importlib
import re
import time
from collections import deque
from functools import cache
from itertools import product
from pathlib import Path

import pytest

import mens_pipeline
from mens_pipeline.corpus.telemetry.redaction import redact
from mens_pipeline.evaluation.judge import has_placeholder, is_refusal
from mens_pipeline.inference.generation import program_in
from mens_pipeline_tests.every import every

_ROOT = Path(mens_pipeline.__file__).parent
_LENGTH = 12_000
_SECONDS = 0.2
"""A linear pattern takes a thousandth of a second; a quadratic one half a second, an exponential one never ends."""

_ATOMS = (
    *" \t\naA0_-./\\\"'`<|[{(@:",
    "\r\n",
    *("=", "+", "*", "#", "a ", "a.", "a@", "0 ", "0.", "1:", "//\n", "// ", "```\n", "~~~\n", '"\\', "::", "a1b2"),
    *("-----", "-----BEGIN PRIVATE KEY-----", "eyJaaaaaa.", "<|", "I am ", "rest of the ", "e+", "0x", "{{#include "),
)
_HEADS = (
    *("", "//", "// @training_prompt:", "{{#include ", "```", "://a"),
    *("password=", 'secret: "', "bearer ", "a@", "/home/"),
)
_TAILS = ("", "!", "\n~")


@cache
def _find_patterns() -> dict[str, tuple[re.Pattern[str], frozenset[str]]]:
    """Every compiled pattern at the top of a module: its name -> the pattern, and the methods called on it.

    Those of the interpreter run in the sandbox, whose clock bounds them.
    """
    found = {}
    for path in sorted(_ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        name = ".".join(("mens_pipeline", *path.relative_to(_ROOT).with_suffix("").parts))
        if "interpreter" in name or not any(node.attr == "compile" for node in used):
            continue
        for variable, value in vars(importlib.import_module(name)).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                calls = {node.attr for node in used if isinstance(node.value, ast.Name) and node.value.id == variable}
                found[f"{name}.{variable}"] = value, frozenset(calls & {"match", "fullmatch"} or {"finditer"})
    return found


def _measure(pattern: re.Pattern[str], calls: frozenset[str], text: str) -> float:
    start = time.process_time()
    for call in calls:
        found = getattr(pattern, call)(text)
        if call == "finditer":
            deque(found, maxlen=0)
    return time.process_time() - start


def test_finds_the_patterns() -> None:
    assert len(_find_patterns()) > 35
    assert {"mens_pipeline.corpus.telemetry.redaction._EMAIL", "mens_pipeline.language.lexer._PIECES"} <= set(
        _find_patterns()
    )


@pytest.mark.threat("W8")
@pytest.mark.slow
@pytest.mark.parametrize(
    "heads", [_HEADS[:1], pytest.param(_HEADS[1:], marks=pytest.mark.nightly)], ids=["no head", "others"]
)
@every("name", _find_patterns)
def test_a_pattern_is_linear(name: str, heads: tuple[str, ...]) -> None:
    pattern, calls = _find_patterns()[name]
    slow = []
    for head, atom, tail in product(heads, _ATOMS, _TAILS):
        text = head + atom * (_LENGTH // len(atom)) + tail
        if _measure(pattern, calls, text) > _SECONDS and _measure(pattern, calls, text) > _SECONDS:
            slow.append((head, atom, tail))

    assert slow == []


@pytest.mark.threat("R6")
@pytest.mark.slow
@every("atom", _ATOMS, ids=repr)
def test_reads_texts_of_models_and_agents_in_linear_time(atom: str) -> None:
    text = (atom * 65_536)[:65_536]
    start = time.process_time()
    redact(text)
    program_in(text)
    is_refusal(text)
    has_placeholder(text)

    assert time.process_time() - start < 5
