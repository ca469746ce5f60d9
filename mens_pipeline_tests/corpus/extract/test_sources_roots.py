"""Folders of a workspace that never train."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.sources import find_source_roots
from mens_pipeline.errors import ConfigurationError

_FILE = "examples.ssot.v1.yaml"


@pytest.mark.seed_row(42)
def test_roots_apply_to_the_folders_below_them(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    examples = tmp_path / "repository" / "examples"
    (workspace / "golden").mkdir(parents=True)
    (examples / "inventory" / "deep").mkdir(parents=True)
    (workspace / _FILE).write_text("golden_roots: [golden]\nnegative_roots: [negative]\n")
    (examples / _FILE).write_text("schema_version: 1\nnegative_roots: [examples/inventory]\n")

    assert find_source_roots(workspace / "golden").is_negative(workspace / "negative" / "n.vox")
    assert not find_source_roots(workspace / "golden").is_negative(workspace / "negatives" / "n.vox")
    assert find_source_roots(examples / "inventory" / "deep").is_negative(examples / "inventory" / "deep" / "x.vox")
    assert not find_source_roots(tmp_path).is_negative(workspace / "negative" / "n.vox")


@pytest.mark.seed_row(42)
def test_golden_roots_select_golden_programs(tmp_path: Path) -> None:
    for name, golden in (("given", "[golden, more]"), ("none", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / _FILE).write_text(f"golden_roots: {golden}\nnegative_roots: [golden/bad]\n")
    given, none = (find_source_roots(tmp_path / name) for name in ("given", "none"))
    paths = ("golden/a.vox", "more/b/c.vox.ui", "page.md", "sandbox/a.vox", "goldens/a.vox", "golden/bad/a.vox")

    assert [given.is_golden(tmp_path / "given" / path) for path in paths] == [True, True, True, False, False, False]
    assert [none.is_golden(tmp_path / "none" / path) for path in paths] == [True, True, True, True, True, False]


def test_other_roots_are_ignored(tmp_path: Path) -> None:
    (tmp_path / _FILE).write_text("sandbox_roots: 3\ndoc_roots: {a: 1}\nnegative_roots: [negative]\n")
    roots = find_source_roots(tmp_path)

    assert roots.fingerprint() == "negative; golden "
    assert not roots.is_negative(tmp_path / "elsewhere" / "a.vox")


def test_the_fingerprint_depends_only_on_the_roots(tmp_path: Path) -> None:
    fingerprints = []
    for name, roots in (("a", "[x, y/z]"), ("b", "[y/z, x]"), ("c", "[x]"), ("d", "[]\ngolden_roots: [g, f]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / _FILE).write_text(f"negative_roots: {roots}\n")
        fingerprints.append(find_source_roots(tmp_path / name).fingerprint())
    (tmp_path / "e").mkdir()

    assert fingerprints == ["x y/z; golden ", "x y/z; golden ", "x; golden ", "; golden f g"]
    assert find_source_roots(tmp_path / "e").fingerprint() == "none"


@pytest.mark.parametrize(
    "content", [b"a: [", b"negative_roots: 3\n", b"- a\n", b"\xff", b"a: 2001-13-45\n", b"[" * 1200]
)
def test_an_invalid_roots_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / _FILE).write_bytes(content)

    with pytest.raises(ConfigurationError, match="Correct the file"):
        find_source_roots(tmp_path)


@pytest.mark.parametrize(
    "key", ["negative", "negatives", "negative_root", "Negative_Roots", "negatve_roots", "golden", "goldn_roots"]
)
def test_a_misspelt_key_of_roots_is_an_error(tmp_path: Path, key: str) -> None:
    (tmp_path / _FILE).write_text(f"{key}: [negative]\n")

    with pytest.raises(ConfigurationError, match=f"{key}: unknown key. Did you mean `(negative|golden)_roots`"):
        find_source_roots(tmp_path)
