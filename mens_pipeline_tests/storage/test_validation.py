"""Versions of formats, and messages about invalid documents."""

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ValidationError

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.validation import Versioned, errors_in, problem_in, read_document

_NEWER = "written by a newer version of mens-pipeline"


class _Third(Versioned):
    newest_format: ClassVar[int] = 3
    name: str = "a"


@pytest.mark.parametrize(
    ("content", "version"), [("{}", 1), ('{"format_version": 2}', 2), ('{"format_version": 3}', 3)]
)
def test_a_document_without_a_version_has_the_first(content: str, version: int) -> None:
    assert _Third.model_validate_json(content).format_version == version
    assert _Third().format_version == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"format_version": 4, "name": {}}', f"{_NEWER} (format 4, supported up to 3). Upgrade it."),
        ('{"age": 1}', f"{_NEWER} (unknown: age). Upgrade it."),
        ('{"age": 1, "name": 2}', "invalid thing (name: Input should be a valid string; age: unknown)"),
        ('{"format_version": "x"}', "invalid thing (format_version: Input should be a valid integer, unable to"),
        ("[]", "invalid thing (the document: Input should be an object). Delete it."),
    ],
)
def test_only_damaged_documents_are_advised_to_be_deleted(content: str, problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _Third.model_validate_json(content)
    assert problem_in(refused.value, "thing", "Delete it.").startswith(problem)


class _Outer(_Third):
    inner: _Third


def test_an_unknown_field_suggests_a_similar_one() -> None:
    """At any depth; without the model or a similar field, nothing is suggested."""
    with pytest.raises(ValidationError) as refused:
        _Outer.model_validate({"inner": {"nmae": 1}, "iner": 2, "age": 3})

    assert errors_in(refused.value, _Outer) == (
        "inner.nmae: unknown (did you mean `name`?); iner: unknown (did you mean `inner`?); age: unknown"
    )
    assert "mean" not in errors_in(refused.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, r"No such file or directory\. Make it again\."),
        ('{"name": 2}', r"invalid thing \(name: Input should be a valid string\)\. Make it again\."),
        ('{"format_version": 4}', rf"{_NEWER} \(format 4, supported up to 3\)\. Upgrade it\."),
    ],
    ids=["missing", "damaged", "newer"],
)
def test_an_unreadable_document_is_refused(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "thing.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RefusedError, match=rf"thing\.json: {problem}$"):
        read_document(path, _Third, "thing", "Make it again.")
    path.write_text('{"name": "b"}')
    assert read_document(path, _Third, "thing", "Make it again.").name == "b"
