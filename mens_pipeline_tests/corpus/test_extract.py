"""A workspace to records, with nothing unaccounted for."""

import json
import subprocess
from pathlib import Path

import pytest

from mens_pipeline.corpus.drops import Drop, DropReason, Tally, Unit
from mens_pipeline.corpus.extract import MAX_FILE_BYTES, commit_of, extract_workspace
from mens_pipeline.corpus.jsonl import write_jsonl
from mens_pipeline.corpus.records import ExtractedRecord
from mens_pipeline.corpus.source_roots import find_source_roots
from mens_pipeline.errors import ConfigurationError, SourceNotFoundError
from mens_pipeline.settings import PROJECT_ROOT


def _extract(root: Path) -> tuple[list[ExtractedRecord], list[Drop], Tally]:
    tally = Tally()
    drops: list[Drop] = []
    return list(extract_workspace(root, tally, drops.append)), drops, tally


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with one of everything."""
    root = tmp_path / "workspace"
    for folder in ("golden", "negative", "docs", "cache"):
        (root / folder).mkdir(parents=True)
    (root / "examples.ssot.v1.yaml").write_text("golden_roots: [golden]\nnegative_roots: [negative]\n")
    (root / "golden" / "a.vox").write_text("fn a() { }\nfn b() { }\n")
    (root / "golden" / "bad.vox").write_text("fn (")
    (root / "golden" / "large.vox").write_text(" " * (MAX_FILE_BYTES + 1))
    (root / "golden" / "nul.vox").write_bytes(b"fn a() { }\0")
    (root / "golden" / "link.vox").symlink_to(root / "golden" / "a.vox")
    (root / "golden" / "folder.vox").mkdir()
    (root / "golden" / "broken.vox").symlink_to(root / "nowhere")
    (root / "negative" / "n.vox").write_text("fn a() { }\n")
    (root / "docs" / "in.md").write_text("---\ntraining_eligible: true\n---\n## S\n\nw\n\n```vox\nfn a() { }\n```\n")
    (root / "docs" / "out.md").write_text("# Page\n")
    (root / "cache" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    (root / "cache" / "c.vox").write_text("fn c() { }\n")
    return root


def test_everything_seen_is_kept_or_dropped_with_a_reason(workspace: Path) -> None:
    """Counts add up for each unit, and caches are not entered."""
    records, drops, tally = _extract(workspace)

    assert tally.adds_up()
    assert {(drop.path.split("/")[-1], drop.reason) for drop in drops} == {
        ("bad.vox", DropReason.REJECTED),
        ("large.vox", DropReason.TOO_LARGE),
        ("nul.vox", DropReason.NOT_TEXT),
        ("link.vox", DropReason.LINK),
        ("broken.vox", DropReason.LINK),
        ("n.vox", DropReason.NEGATIVE_ROOT),
        ("out.md", DropReason.NOT_OPTED_IN),
        ("in.md", DropReason.TOO_SHORT),
    }
    assert (tally.seen[Unit.VOX_FILE], tally.kept[Unit.VOX_FILE]) == (7, 1)
    assert [record.source.path for record in records] == ["golden/a.vox"] * 3 + ["docs/in.md"]
    assert tally.reasons(Unit.VOX_FILE)["link"] == 2


def test_an_unreadable_file_is_counted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be read is dropped, not fatal."""
    real = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "a.vox":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    _, drops, tally = _extract(workspace)

    assert (DropReason.UNREADABLE, "Permission denied") in {(drop.reason, drop.detail) for drop in drops}
    assert tally.adds_up()


def test_a_tally_that_does_not_add_up_says_so() -> None:
    """The check can fail."""
    tally = Tally()
    tally.keep(Unit.PAGE)
    assert tally.adds_up()
    tally.seen[Unit.PAGE] += 1

    assert not tally.adds_up()


def test_two_extractions_of_the_seed_data_are_the_same_bytes(tmp_path: Path) -> None:
    """Same workspace, same file; every seed record is there."""
    for name in ("first.jsonl", "second.jsonl"):
        assert write_jsonl(tmp_path / name, _extract(PROJECT_ROOT / "data")[0]) > 1000

    assert (tmp_path / "first.jsonl").read_bytes() == (tmp_path / "second.jsonl").read_bytes()


def test_a_missing_workspace_is_an_error(tmp_path: Path) -> None:
    """It is never an empty one."""
    with pytest.raises(SourceNotFoundError, match="Name a Vox workspace"):
        _extract(tmp_path / "nowhere")


def test_roots_govern_the_folders_below_them(workspace: Path, tmp_path: Path) -> None:
    """A folder deep in a workspace obeys its file, also one in `examples/`; without a file nothing is negative."""
    examples = tmp_path / "repository" / "examples"
    (examples / "inventory" / "deep").mkdir(parents=True)
    (examples / "examples.ssot.v1.yaml").write_text("schema_version: 1\nnegative_roots: [examples/inventory]\n")

    assert find_source_roots(workspace / "golden").is_negative(workspace / "negative" / "n.vox")
    assert find_source_roots(examples / "inventory" / "deep").is_negative(examples / "inventory" / "deep" / "x.vox")
    assert not find_source_roots(tmp_path).is_negative(workspace / "negative" / "n.vox")


@pytest.mark.parametrize("content", ["a: [", "negative_roots: 3\n", "- a\n", b"\xff"])
def test_a_roots_file_that_does_not_fit_is_an_error(tmp_path: Path, content: str | bytes) -> None:
    """The rule that keeps negative examples out is never skipped quietly."""
    path = tmp_path / "examples.ssot.v1.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(ConfigurationError, match="Correct the file"):
        find_source_roots(tmp_path)


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    """A failure leaves the old file and no rest."""
    path = tmp_path / "out" / "records.jsonl"
    records, _, _ = _extract(PROJECT_ROOT / "data" / "docs")
    write_jsonl(path, records[:2])

    def failing() -> list[ExtractedRecord]:
        raise SourceNotFoundError("gone")

    with pytest.raises(SourceNotFoundError, match="gone"):
        write_jsonl(path, (record for _ in (1,) for record in failing()))
    assert len(path.read_text().splitlines()) == 2
    assert [file.name for file in path.parent.iterdir()] == ["records.jsonl"]
    assert ExtractedRecord.model_validate(json.loads(path.read_text().splitlines()[0])) == records[0]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The message says what to do."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="Name a file in a folder you may write"):
        write_jsonl(tmp_path / "file" / "out.jsonl", [])


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None outside a checkout, before the first commit, and without git."""
    assert commit_of(tmp_path) is None
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    assert commit_of(tmp_path) is None
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
    assert len(str(commit_of(tmp_path))) == 40
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) is None
