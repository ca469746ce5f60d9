"""Folders of a workspace, extracted into one file one by one."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.schema.records import read_records
from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.jsonl import open_rows


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with the folders of upstream; it is the working folder."""
    for name in ("examples/golden", "examples/bad", "docs/src"):
        (tmp_path / name).mkdir(parents=True)
    roots = "golden_roots: [examples/golden]\nnegative_roots: [examples/bad]\ndoc_roots: [docs/src]\n"
    (tmp_path / "examples" / "examples.ssot.v1.yaml").write_text(roots)
    (tmp_path / "examples" / "golden" / "a.vox").write_text("fn a() { }\n")
    (tmp_path / "examples" / "golden" / "b.vox").write_text("fn b() { }\n")
    page = "---\ntraining_eligible: true\n---\n## S\n\nw\n\n```vox\n{{#include ../../examples/golden/a.vox}}\n```\n"
    (tmp_path / "docs" / "src" / "p.md").write_text(page)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _extract(folder: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["corpus", "extract", folder, "-o", "out.jsonl", *options])


def _paths() -> list[str]:
    with open_rows(Path("out.jsonl")) as lines:
        return sorted({record.source.path for record in read_records(lines, Path("out.jsonl"))})


@pytest.mark.seed_row(3)
@pytest.mark.usefixtures("workspace")
def test_records_of_other_folders_are_kept() -> None:
    first = _extract("examples/golden/")
    second, third = _extract("docs/"), _extract("examples/golden/")

    assert first.exit_code == second.exit_code == third.exit_code == 0
    assert _paths() == ["docs/src/p.md", "examples/golden/a.vox", "examples/golden/b.vox"]
    assert first.stderr == ""
    assert "kept 2 records from other folders" in second.stderr
    assert "1 records from other folders" in third.stderr
    assert len(Path("out.jsonl").read_text().splitlines()) == 3


@pytest.mark.seed_row(35)
def test_records_of_changed_or_deleted_files_are_dropped(workspace: Path) -> None:
    (workspace / "examples" / "golden" / "wide.vox").write_text("fn wide() { }\n")
    _extract("examples/golden/")
    lines = Path("out.jsonl").read_text()
    others = [lines.replace("examples/golden/a.vox", name) for name in ("examples/bad/a.vox", "/a.vox", r"\u0000")]
    Path("out.jsonl").write_text("\n".join([lines, *others]))
    (workspace / "examples" / "bad" / "a.vox").write_text("fn a() { }\n")
    (workspace / "examples" / "golden" / "a.vox").write_text("fn changed() { }\n")
    (workspace / "examples" / "golden" / "wide.vox").write_text("fn wide() { }\n", encoding="utf-16")
    (workspace / "examples" / "golden" / "b.vox").unlink()
    result = _extract("docs/", "--report", "report.json")

    assert [line.split(" ")[1] + line.rpartition(":")[2] for line in result.stderr.splitlines()] == [
        *("6 gone", "5 changed", "1 negative_root")
    ]
    assert json.loads(Path("report.json").read_text())["other_folders"] == {
        "stayed": 0,
        "left": {"gone": 6, "changed": 5, "negative_root": 1},
    }
    assert _paths() == ["docs/src/p.md"]


@pytest.mark.seed_row(42)
def test_records_that_are_no_longer_golden_are_dropped(workspace: Path) -> None:
    """They would be held out; their folder has to be extracted again."""
    _extract("examples/golden/")
    (workspace / "examples" / "examples.ssot.v1.yaml").write_text("golden_roots: [elsewhere]\n")
    result = _extract("docs/")

    assert result.stderr.rpartition(": ")[2].strip() == "golden_root"
    assert _paths() == ["docs/src/p.md"]


@pytest.mark.parametrize("has_roots", [True, False])
def test_an_invalid_row_is_refused_and_kept(workspace: Path, *, has_roots: bool) -> None:
    _extract("examples/golden/")
    if not has_roots:
        (workspace / "examples" / "examples.ssot.v1.yaml").unlink()
    before = Path("out.jsonl").read_text() + "\n" + '{"prompt": "p"}\n'
    Path("out.jsonl").write_text(before)
    result = _extract("docs/")

    assert isinstance(result.exception, RefusedError)
    assert re.fullmatch(
        r"out\.jsonl:4: invalid extracted record \(.*\)\. Remove the row, or name another file to write\.",
        str(result.exception),
    )
    assert Path("out.jsonl").read_text() == before


def test_without_a_workspace_a_file_is_overwritten(workspace: Path) -> None:
    (workspace / "examples" / "examples.ssot.v1.yaml").unlink()
    _extract("examples/golden/")
    _extract("docs/")

    assert _paths() == []
