"""A workspace to records, with nothing unaccounted for."""

import shutil
import time
from pathlib import Path

import pytest

from mens_pipeline.corpus.extract.file_outcome import FileOutcome
from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.extract.workspace import MAX_FILE_BYTES, extract_workspace
from mens_pipeline.corpus.schema.drops import Drop, DropReason, Tally, Unit
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.corpus.large_program import write_large_program


def _extract(root: Path) -> tuple[list[ExtractedRecord], list[Drop], Tally]:
    tally = Tally()
    outcomes = list(extract_workspace(root))
    for outcome in outcomes:
        outcome.count(tally)
    records = [ExtractedRecord.model_validate_json(line) for outcome in outcomes for line in outcome.lines]
    return records, [drop for outcome in outcomes for drop in outcome.drops], tally


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


@pytest.mark.seed_row(2)
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


def test_an_unreadable_file_is_counted(workspace: Path) -> None:
    """A file that vanishes after it was listed is dropped, not fatal."""

    def lose_the_next(file: SourceFile) -> None:
        if file.path == "golden/a.vox":
            (workspace / "golden" / "bad.vox").unlink()

    tally = Tally()
    outcomes = {outcome.path: outcome for outcome in extract_workspace(workspace, known=lose_the_next)}
    for outcome in outcomes.values():
        outcome.count(tally)
    (drop,) = outcomes["golden/bad.vox"].drops

    assert (drop.reason, drop.detail) == (DropReason.UNREADABLE, "No such file or directory")
    assert tally.adds_up()


def test_a_tally_that_does_not_add_up_says_so() -> None:
    """The check can fail."""
    tally = Tally()
    tally.keep(Unit.PAGE)
    assert tally.adds_up()
    tally.seen[Unit.PAGE] += 1

    assert not tally.adds_up()


def test_a_page_that_includes_does_not_stand_alone(workspace: Path) -> None:
    """Whatever its fate; programs and other pages do."""
    (workspace / "docs" / "out.md").write_text("# Page\n\n```vox\n{{#include ../golden/a.vox}}\n```\n")
    outcomes = {outcome.path: outcome.stands_alone for outcome in extract_workspace(workspace)}

    assert {path for path, stands_alone in outcomes.items() if not stands_alone} == {"docs/out.md"}


def test_what_is_known_is_not_extracted(workspace: Path) -> None:
    """It takes its place among the others."""
    found = list(extract_workspace(workspace))
    known = FileOutcome("golden/bad.vox", "00", ("known",), {Unit.VOX_FILE: 1}, ())
    again = list(extract_workspace(workspace, known=lambda file: known if file.path == known.path else None))

    assert [known if outcome.path == known.path else outcome for outcome in found] == again


def test_the_seed_data_is_the_same_whatever_the_number_of_workers(tmp_path: Path) -> None:
    """Several batches, one process or more: the same outcomes in the same order, and every seed record is there."""
    for folder in ("golden", "docs"):
        shutil.copytree(PROJECT_ROOT / "data" / folder, tmp_path / folder)
    for folder in ("agentic", "core"):
        write_large_program(tmp_path / "golden" / folder / "large.vox")
    alone, *others = (list(extract_workspace(tmp_path, "c0ffee", workers=workers)) for workers in (1, 2, 3))

    assert [alone, alone] == others
    assert sum(len(outcome.lines) for outcome in alone) > 1000


def test_a_large_workspace_is_worked_on_by_several_processes(tmp_path: Path) -> None:
    """More than two batches of the real size."""
    for number in range(4):
        write_large_program(tmp_path / f"{number}.vox")

    alone, together = (list(extract_workspace(tmp_path, workers=workers)) for workers in (1, 2))

    assert alone == together
    assert [len(outcome.lines) for outcome in alone] == [1] * 4


@pytest.mark.parametrize(("line", "num_records"), [("fn f{0}() {{ }}\n", 20_000), ("fn f() {{ }}\n", 0)])
def test_a_program_with_very_many_declarations_is_extracted_in_seconds(
    tmp_path: Path, line: str, num_records: int
) -> None:
    """Each has a record of its own; where all have one name each would need all others, which is too much."""
    (tmp_path / "a.vox").write_text("".join(line.format(number) for number in range(20_000)))
    start = time.process_time()
    (outcome,) = extract_workspace(tmp_path)

    assert time.process_time() - start < 30
    assert len(outcome.lines) == num_records
    assert len(outcome.drops) == (num_records == 0)


def test_a_missing_workspace_is_an_error(tmp_path: Path) -> None:
    """It is never an empty one."""
    with pytest.raises(SourceNotFoundError, match="Name a Vox workspace"):
        _extract(tmp_path / "nowhere")
