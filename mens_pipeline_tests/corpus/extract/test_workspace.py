"""A workspace becomes records, with an account of every file."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.extract import workspace as workspace_module
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.corpus.extract.extractors import extract_vox
from mens_pipeline.corpus.extract.workspace import (
    MAX_FILE_BYTES,
    FileOutcome,
    build_outcome,
    extract_workspace,
    extraction_report,
    page_records,
    with_commit,
)
from mens_pipeline.corpus.schema.account import Account, Drop, Unit
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceFile
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.corpus.large_program import write_large_program
from mens_pipeline_tests.corpus.rows import records_of
from mens_pipeline_tests.speed import assert_below, assert_linear


def _accounts() -> dict[Unit, Account[DropReason]]:
    return {unit: Account() for unit in Unit}


def _extract(root: Path) -> tuple[list[ExtractedRecord], list[Drop], dict[Unit, Account[DropReason]]]:
    accounts = _accounts()
    outcomes = list(extract_workspace(root))
    for outcome in outcomes:
        outcome.count(accounts)
    records = [ExtractedRecord.model_validate_json(line) for outcome in outcomes for line in outcome.lines]
    return records, [drop for outcome in outcomes for drop in outcome.drops], accounts


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
    records, drops, accounts = _extract(workspace)
    programs = accounts[Unit.VOX_FILE]

    for account in accounts.values():
        account.check()
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
    assert (programs.seen, programs.kept, accounts[Unit.OTHER_FORMAT].seen) == (6, 1, 1)
    assert [record.source.path for record in records] == ["golden/a.vox"] * 3 + ["docs/in.md"]
    assert extraction_report(accounts, 4, {})["units"]["vox_file"]["dropped"]["link"] == 2


def test_an_unreadable_file_is_counted(workspace: Path) -> None:
    def delete_the_next(file: SourceFile) -> None:
        if file.path == "golden/a.vox":
            (workspace / "golden" / "bad.vox").unlink()

    accounts = _accounts()
    outcomes = {outcome.path: outcome for outcome in extract_workspace(workspace, known=delete_the_next)}
    for outcome in outcomes.values():
        outcome.count(accounts)
    (drop,) = outcomes["golden/bad.vox"].drops

    assert (drop.reason, drop.detail) == (DropReason.UNREADABLE, "No such file or directory")
    accounts[Unit.VOX_FILE].check()


def test_a_page_with_an_include_does_not_stand_alone(workspace: Path) -> None:
    (workspace / "docs" / "out.md").write_text("# Page\n\n```vox\n{{#include ../golden/a.vox}}\n```\n")
    outcomes = {outcome.path: outcome.stands_alone for outcome in extract_workspace(workspace)}

    assert {path for path, stands_alone in outcomes.items() if not stands_alone} == {"docs/out.md"}


def test_a_known_file_is_not_extracted(workspace: Path) -> None:
    found = list(extract_workspace(workspace))
    known = FileOutcome("golden/bad.vox", "00", ("known",), {Unit.VOX_FILE: 1}, (), licence="unknown")
    again = list(extract_workspace(workspace, known=lambda file: known if file.path == known.path else None))

    assert [known if outcome.path == known.path else outcome for outcome in found] == again


@pytest.mark.nightly
def test_the_number_of_workers_does_not_change_the_records(tmp_path: Path) -> None:
    for folder in ("golden", "docs"):
        shutil.copytree(PROJECT_ROOT / "data" / folder, tmp_path / folder)
    for folder in ("agentic", "core"):
        write_large_program(tmp_path / "golden" / folder / "large.vox")
    alone, *others = (list(extract_workspace(tmp_path, "c0ffee", pool=Pool(workers))) for workers in (1, 2, 3))

    assert [alone, alone] == others
    assert sum(len(outcome.lines) for outcome in alone) > 1000


def test_a_large_workspace_is_extracted_by_several_processes(tmp_path: Path) -> None:
    for number in range(4):
        write_large_program(tmp_path / f"{number}.vox")

    alone, together = (list(extract_workspace(tmp_path, pool=Pool(workers))) for workers in (1, 2))

    assert alone == together
    assert [len(outcome.lines) for outcome in alone] == [1] * 4


def test_a_program_with_very_many_declarations_is_extracted_in_linear_time(tmp_path: Path) -> None:
    """Each has a separate record; if all have one name, each would need all others."""

    def write(line: str, num_declarations: int) -> Path:
        folder = tmp_path / f"{line[:7]} {num_declarations}"
        folder.mkdir()
        (folder / "a.vox").write_text("".join(line.format(number) for number in range(num_declarations)))
        return folder

    found = {}

    def extract(folder: Path) -> None:
        (outcome,) = extract_workspace(folder)
        found[folder] = (len(outcome.lines), len(outcome.drops))

    many, same = (write(line, 10_000) for line in ("fn f{0}() {{ }}\n", "fn f() {{ }}\n"))

    assert_linear(extract, lambda size: many if size == 10_000 else write("fn f{0}() {{ }}\n", size), 10_000)
    assert_below(lambda: extract(same), 2, lambda: extract(many))
    assert (found[many], found[same]) == ((10_000, 0), (0, 1))


def test_a_missing_workspace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="Name a Vox workspace"):
        _extract(tmp_path / "nowhere")


_OUTCOME = FileOutcome(
    path="p.md",
    blob="00",
    lines=('{"a": 1}', '{"b": 2}'),
    kept={Unit.PAGE: 1, Unit.BLOCK: 2},
    drops=(Drop(Unit.SECTION, "p.md", 4, DropReason.TOO_SHORT, "few words"),),
    stands_alone=False,
)


def test_an_outcome_survives_json() -> None:
    assert build_outcome(json.loads(json.dumps(_OUTCOME.account())), _OUTCOME.lines) == _OUTCOME


def test_an_outcome_is_counted_with_its_drops() -> None:
    accounts = {unit: Account[DropReason]() for unit in Unit}
    _OUTCOME.count(accounts)

    assert (accounts[Unit.BLOCK].kept, accounts[Unit.SECTION].seen, accounts[Unit.SECTION].kept) == (2, 1, 0)
    for account in accounts.values():
        account.check()


def test_only_the_commit_of_the_source_is_replaced() -> None:
    header = '// ---\n// commit: null\n// title: "\\"commit\\":null"\n// ---\n'
    (record,) = records_of(f'{header}fn f() to str {{ return "\\"commit\\":null" }}\n')
    line = record.model_dump_json()
    stamped = type(record).model_validate_json(with_commit(line, "c0ffee"))

    assert stamped.source.commit == "c0ffee"
    assert (stamped.text, stamped.metadata) == (record.text, record.metadata)
    assert with_commit(with_commit(line, "c0ffee"), None) == line


_PAGE = "---\ntraining_eligible: true\n---\n```vox\nfn {name}() {{ }}\n```\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A workspace with pages in a folder and in a folder below it."""
    root = tmp_path / "workspace" / "docs"
    (root / "adr").mkdir(parents=True)
    (root.parent / "examples.ssot.v1.yaml").write_text("doc_roots: [docs]\n")
    (root.parent / "a.vox").write_text("fn included() { }\n")
    (root / "one.md").write_text(_PAGE.format(name="one"))
    (root / "adr" / "two.md").write_text(_PAGE.format(name="two"))
    (root / "adr" / "three.md").write_text("---\ntraining_eligible: true\n---\n```vox\n{{#include ../../a.vox}}\n```\n")
    (root / "out.md").write_text("# Not opted in\n")
    (root / "link.md").symlink_to(root / "one.md")
    return root


@pytest.mark.seed_row(7)
def test_overlapping_folders_give_each_page_once(docs: Path) -> None:
    records = page_records([docs, docs / "adr"], set())

    assert [(record.source.path, record.text) for record in records] == [
        ("docs/one.md", "fn one() { }\n"),
        ("docs/adr/three.md", "fn included() { }\n"),
        ("docs/adr/two.md", "fn two() { }\n"),
    ]


def test_a_known_page_is_not_read_again(docs: Path) -> None:
    known = [record.source.blob for record in page_records([docs], set())]

    assert page_records([docs], known) == []


def test_a_folder_outside_a_workspace_is_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text(_PAGE.format(name="p"))

    assert [record.source.path for record in page_records([tmp_path], set())] == ["p.md"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="Name a folder of pages"):
        page_records([tmp_path / "nowhere"], set())


def test_a_folder_that_becomes_a_link_is_not_read_through(tmp_path: Path) -> None:
    for number, target in enumerate(("outside", "later")):
        case = tmp_path / str(number)
        later = case / "workspace" / "later"
        for folder, name in ((later, "x"), (case / "outside", "stranger")):
            (folder / "deep").mkdir(parents=True)
            (folder / "deep" / "b.vox").write_text(f"fn {name}() {{ }}\n")
        (later / "deep" / "a.vox").write_text("fn a() { }\n")

        def replace_by_link(_file: SourceFile, later: Path = later, target: Path = case / target) -> None:
            if not later.is_symlink():
                later.rename(later.with_name("moved"))
                later.symlink_to(later if target.name == "later" else target)

        outcomes = {outcome.path: outcome for outcome in extract_workspace(case / "workspace", known=replace_by_link)}
        (drop,) = outcomes["later/deep/b.vox"].drops
        assert drop.reason is DropReason.UNREADABLE
        assert "stranger" not in str(outcomes)


def test_a_file_that_takes_too_long_is_dropped_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = "".join(f"fn f{number}(a: int) to int {{\n    return a + {number}\n}}\n" for number in range(2_000))
    (tmp_path / "slow.vox").write_text(functions)
    (tmp_path / "z.vox").write_text("fn a() to int {\n    return 1\n}\n")
    monkeypatch.setattr(workspace_module, "_MOST_SECONDS", 0.02)
    with ThreadPoolExecutor(1) as thread:
        patient, _ = thread.submit(lambda: [*extract_workspace(tmp_path)]).result()

    def extract_slowly(file: SourceFile) -> Any:
        # Coverage does not trace this loop. A timer that fires inside coverage may leave its lock held.
        while file.path == "slow.vox":
            pass
        return extract_vox(file)

    monkeypatch.setattr(workspace_module, "extract_vox", extract_slowly)
    slow, quick = extract_workspace(tmp_path)

    assert [(drop.path, drop.reason) for drop in slow.drops] == [("slow.vox", DropReason.TOO_SLOW)]
    assert (slow.lines, slow.stands_alone, len(quick.lines) > 0) == ((), False, True)
    assert patient.lines
