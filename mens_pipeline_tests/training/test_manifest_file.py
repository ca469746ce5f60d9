"""What a stranger wrote in place of a manifest is refused with its place, before anything else is done."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.manifest_file import read_manifest
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base


def _changed(at: tuple[str, ...], value: Any) -> str:
    """A manifest with another value in one place."""
    manifest = manifest_about(described_base())
    part = manifest
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = value
    return json.dumps(manifest)


def _without(*at: str) -> str:
    """A manifest that lacks one value."""
    manifest = manifest_about(described_base())
    part = manifest
    for key in at[:-1]:
        part = part[key]
    del part[at[-1]]
    return json.dumps(manifest)


def test_what_training_writes_is_read(tmp_path: Path) -> None:
    """All of it, also what nobody checks."""
    manifest = manifest_about(described_base(), libraries={"torch": "2"}, n_layers=30)
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))

    assert read_manifest(tmp_path / MANIFEST) == manifest


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "backend is nothing, expected qlora"),
        ("null", "backend is nothing"),
        ('{"backend": ["lora"]}', r"backend is \['lora'\]"),
        ('{"backend": "qlora"}', "name: Field required; base_model: Field required; .* and 6 more"),
        (_changed(("name",), "../../home/x"), "name: String should match"),
        (_changed(("name",), "x" * 129), "name: String should match"),
        (_changed(("base_model",), "HuggingFaceTB"), "base_model: Input should be"),
        (_changed(("base_model", "path"), 3), r"base_model\.path: Input should be a valid string"),
        (_changed(("base_model", "path"), ""), r"base_model\.path: String should have at least 1"),
        (_changed(("base_model", "path"), "a\0b"), r"base_model\.path: String should match"),
        (_changed(("base_model", "sha256"), "A" * 64), r"base_model\.sha256: String should match"),
        (_changed(("recipe", "target_modules"), [["q"]]), r"recipe\.target_modules\."),
        (_changed(("result", "seconds"), "9"), r"result\.seconds: Input should be a valid number"),
        (_changed(("result", "train_loss"), float("nan")), r"result\.train_loss: Input should be a finite number"),
        (_changed(("result", "longest"), 7.5), r"result\.longest: Input should be a valid integer"),
        (_changed(("result", "longest"), -1), r"result\.longest: Input should be greater"),
        (_changed(("system_prompt",), None), "system_prompt: Input should be a valid string"),
        (_without("base_model", "architecture"), r"base_model\.architecture: Field required"),
        (_without("result", "compute_dtype"), r"result\.compute_dtype: Field required"),
        (_without("train_file"), "train_file: Field required"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    """With the place in the file, and what to do."""
    (tmp_path / MANIFEST).write_text(content)

    with pytest.raises(RefusedError, match=rf"{MANIFEST}: .*{problem}.*Name the folder of a complete run"):
        read_manifest(tmp_path / MANIFEST)


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """So is a folder in its place."""
    with pytest.raises(RefusedError, match="No such file or directory"):
        read_manifest(tmp_path / MANIFEST)
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(RefusedError, match="Is a directory"):
        read_manifest(tmp_path / MANIFEST)
