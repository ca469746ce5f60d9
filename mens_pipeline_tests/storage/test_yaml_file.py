"""Untrusted YAML: documents within the limits are read, others are refused before they are built."""

from typing import Any

import pytest
import yaml

from mens_pipeline.storage.yaml_file import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, YamlLimitError, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: [1, 2.5, true, null, x]", {"a": [1, 2.5, True, None, "x"]}),
        ("a: &x [1]\nb: *x\nc: {<<: {d: 2}}", {"a": [1], "b": [1], "c": {"d": 2}}),
        ("a: 9223372036854775807", {"a": 2**63 - 1}),
        ("a: 9223372036854775808\nb: -0x" + "f" * 5000, {"a": "9223372036854775808", "b": "-0x" + "f" * 5000}),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
        ("a: [" + "x," * (MAX_NODES - 3) + "]", None),
    ],
    ids=["empty", "plain", "aliases", "largest", "beyond", "deepest", "most"],
)
def test_documents_within_the_limits_are_read(text: str, value: Any) -> None:
    read = parse_yaml(text, allow_aliases=True)

    assert value is None or read == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x" * (MAX_CHARACTERS + 1), "characters, more than"),
        ("[" * (MAX_DEPTH + 1), "levels"),
        ("- " * (MAX_DEPTH + 1) + "x", "levels"),
        ("a: [" + "x," * MAX_NODES + "]", "values"),
    ],
)
def test_documents_beyond_the_limits_are_refused(text: str, problem: str) -> None:
    with pytest.raises(YamlLimitError, match=problem):
        parse_yaml(text, allow_aliases=True)


@pytest.mark.threat("W5")
def test_aliases_count_as_the_values_that_they_repeat() -> None:
    """A hundred times a hundred times a hundred are a million, and a recursive value is endless; a scalar is one."""
    small = "a: &a x\nb: &b [" + "*a," * 99 + "]\nc: [" + "*b," * 99 + "]\n"

    assert len(parse_yaml(small, allow_aliases=True)["c"]) == 99
    for text in (small.replace("c: [", "c: &c [") + "d: [" + "*c," * 99 + "]\n", "a: &a [*a]", "a: &a {b: *a}"):
        with pytest.raises(YamlLimitError, match="values"):
            parse_yaml(text, allow_aliases=True)


def test_aliases_are_refused_unless_allowed() -> None:
    with pytest.raises(YamlLimitError, match="aliases"):
        parse_yaml("a: &a x\nb: *a", allow_aliases=False)


@pytest.mark.parametrize(
    "text", ["a: !!bool maybe", "a: !!python/name:os.system", "a: [", "a: *b", "a: !!timestamp soon", 'a: !!int ""']
)
def test_tags_and_malformed_yaml_are_refused(text: str) -> None:
    with pytest.raises((yaml.YAMLError, YamlLimitError)):
        parse_yaml(text, allow_aliases=True)
