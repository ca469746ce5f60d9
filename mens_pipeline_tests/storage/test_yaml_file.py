"""YAML of strangers: what is read, and what is refused before anything is made of it."""

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
def test_honest_documents_are_read(text: str, value: Any) -> None:
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
def test_dishonest_documents_are_refused(text: str, problem: str) -> None:
    with pytest.raises(YamlLimitError, match=problem):
        parse_yaml(text, allow_aliases=True)


@pytest.mark.threat("W5")
def test_aliases_count_as_what_they_stand_for() -> None:
    """A hundred of a hundred of a hundred are a million, and what contains itself is endless; scalars count as one."""
    small = "a: &a x\nb: &b [" + "*a," * 99 + "]\nc: [" + "*b," * 99 + "]\n"

    assert len(parse_yaml(small, allow_aliases=True)["c"]) == 99
    for text in (small.replace("c: [", "c: &c [") + "d: [" + "*c," * 99 + "]\n", "a: &a [*a]", "a: &a {b: *a}"):
        with pytest.raises(YamlLimitError, match="values"):
            parse_yaml(text, allow_aliases=True)


def test_headers_have_no_aliases() -> None:
    with pytest.raises(YamlLimitError, match="aliases"):
        parse_yaml("a: &a x\nb: *a", allow_aliases=False)


@pytest.mark.parametrize(
    "text", ["a: !!bool maybe", "a: !!python/name:os.system", "a: [", "a: *b", "a: !!timestamp soon", 'a: !!int ""']
)
def test_what_is_no_plain_value_is_no_yaml(text: str) -> None:
    with pytest.raises((yaml.YAMLError, YamlLimitError)):
        parse_yaml(text, allow_aliases=True)
