"""The extracted corpus as an artifact."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.extract.extracted_corpus import (
    RECORDS,
    REPORT,
    STAGE,
    TELEMETRY,
    ExtractionParams,
    Reuse,
    build_extracted_corpus,
)
from mens_pipeline.corpus.extract.sources import tree_fingerprint
from mens_pipeline.corpus.schema.records import FILES, read_record_lines
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore, Draft
from mens_pipeline_tests.corpus.checkouts import commit_all, git, make_checkout, write_files

_PAGE = "---\ntraining_eligible: true\n---\n```vox\n{}\n```\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two programs, one of them rejected, and three pages, one of which includes a program."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text('fn a() to str { return "ä" }\n\nfn b() { a() }\n\nfn c() { }\n')
    (root / "bad.vox").write_text("fn (\n")
    (root / "i.md").write_text(_PAGE.format("{{#include a.vox}}"))
    (root / "p.md").write_text(_PAGE.format("fn p() { }"))
    (root / "q.md").write_text("# Not opted in\n")
    return root


def _contents(corpus: Artifact) -> dict[str, bytes]:
    return {name: (corpus.path / name).read_bytes() for name in (RECORDS, FILES, REPORT)}


def _extract_cold(root: Path, folder: Path) -> dict[str, bytes]:
    return _contents(build_extracted_corpus(root, ArtifactStore(folder))[0])


def _rows(corpus: Artifact, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (corpus.path / name).read_text(encoding="utf-8").splitlines()]


def test_an_unchanged_workspace_is_not_extracted_again(workspace: Path, store: ArtifactStore) -> None:
    first, first_reuse = build_extracted_corpus(workspace, store)
    second, second_reuse = build_extracted_corpus(workspace, store)

    assert (first_reuse, second_reuse) == (Reuse(extracted=5), Reuse(is_whole=True))
    assert second == first
    assert store.read_pointer("extracted_corpus", "latest") == first.key
    assert first.manifest["num_records"] == len(_rows(first, RECORDS)) == 6
    assert json.loads((first.path / REPORT).read_text())["units"] == first.manifest["units"]
    assert first.manifest["units"]["vox_file"] == {"seen": 2, "kept": 1, "dropped": {"rejected": 1}}


def test_the_index_holds_the_place_of_the_records_of_each_file(workspace: Path, store: ArtifactStore) -> None:
    corpus, _ = build_extracted_corpus(workspace, store)
    data = (corpus.path / RECORDS).read_bytes()
    position = 0
    for account in _rows(corpus, FILES):
        records = data[account["start"] : account["end"]].decode().splitlines()
        assert account["start"] == position
        assert {json.loads(record)["source"]["path"] for record in records} == ({account["path"]} if records else set())
        position = account["end"]

    assert position == len(data)


@pytest.mark.seed_row(35)
def test_a_new_file_is_extracted_and_a_deleted_file_is_dropped(
    workspace: Path, store: ArtifactStore, tmp_path: Path
) -> None:
    build_extracted_corpus(workspace, store)
    (workspace / "i.md").unlink()
    (workspace / "p.md").unlink()
    (workspace / "b.vox").write_text("fn new() { }\n")
    corpus, reuse = build_extracted_corpus(workspace, store)

    assert reuse == Reuse(known=3, extracted=1)
    assert _contents(corpus) == _extract_cold(workspace, tmp_path / "cold")
    assert [row["path"] for row in _rows(corpus, FILES)] == ["a.vox", "b.vox", "bad.vox", "q.md"]


_CHANGES: dict[str, Callable[[Path], object]] = {
    "a page is edited": lambda root: (root / "p.md").write_text(_PAGE.format("fn edited() { }")),
    "a file is renamed": lambda root: (root / "p.md").rename(root / "r.md"),
    "an included file is edited": lambda root: (root / "a.vox").write_text("fn other() { }\n"),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_only_changed_files_and_pages_with_includes_are_extracted(
    workspace: Path, store: ArtifactStore, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    build_extracted_corpus(workspace, store)
    change(workspace)
    corpus, reuse = build_extracted_corpus(workspace, store)

    assert reuse == Reuse(known=3, extracted=2)
    assert _contents(corpus) == _extract_cold(workspace, tmp_path / "cold")


@pytest.mark.parametrize("place", [".gitattributes", "../.gitattributes", "../.git/info/attributes"])
def test_a_change_of_attributes_is_noticed(workspace: Path, store: ArtifactStore, tmp_path: Path, place: str) -> None:
    make_checkout(workspace.parent, {})
    (workspace / "g.vox").write_text("// Generated by a tool.\nfn g() { }\n")
    build_extracted_corpus(workspace, store)
    (workspace / place).write_text("*.vox -linguist-generated\n")

    assert _contents(build_extracted_corpus(workspace, store)[0]) == _extract_cold(workspace, tmp_path / "cold")


def test_another_commit_is_stamped_on_known_records(workspace: Path, store: ArtifactStore, tmp_path: Path) -> None:
    make_checkout(workspace, {})
    build_extracted_corpus(workspace, store)
    for words in (("status",), ("commit", "-q", "--amend", "-m", "y")):
        commit_all(workspace)
        git(workspace, *words)
        commit = git(workspace, "rev-parse", "HEAD")
        corpus, reuse = build_extracted_corpus(workspace, store)
        assert reuse == Reuse(known=4, extracted=1)
        assert _contents(corpus) == _extract_cold(workspace, tmp_path / commit)
        assert {row["source"]["commit"] for row in _rows(corpus, RECORDS)} == {commit}


def test_a_commit_of_other_files_changes_nothing(workspace: Path, store: ArtifactStore) -> None:
    make_checkout(workspace, {})
    commit = commit_all(workspace)
    first, _ = build_extracted_corpus(workspace, store)
    (workspace / "lib.rs").write_text("fn main() {}")
    newer = commit_all(workspace)
    second, reuse = build_extracted_corpus(workspace, store)

    assert newer != commit
    assert second == first
    assert reuse.is_whole
    assert {row["source"]["commit"] for row in _rows(first, RECORDS)} == {commit}


@pytest.mark.parametrize(
    ("differing", "reuse"),
    [*((rule, Reuse(extracted=5)) for rule in ("code", "roots")), ("sources", Reuse(known=4, extracted=1))],
)
def test_other_rules_extract_everything(
    workspace: Path, store: ArtifactStore, tmp_path: Path, differing: str, reuse: Reuse
) -> None:
    before, _ = build_extracted_corpus(workspace, ArtifactStore(tmp_path / "before"))
    with store.writing(
        Kind.EXTRACTED_CORPUS, {**STAGE.inputs(ExtractionParams.pin(workspace)), differing: "another"}
    ) as draft:
        shutil.copytree(before.path, draft.path, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
    (made,) = (path for path in (store.root / Kind.EXTRACTED_CORPUS).iterdir() if path.is_dir())
    latest = store.get(Kind.EXTRACTED_CORPUS, made.name)
    assert latest is not None
    store.point("latest", latest)

    assert build_extracted_corpus(workspace, store)[1] == reuse


@pytest.mark.seed_row(42)
def test_another_negative_root_extracts_everything(workspace: Path, store: ArtifactStore, tmp_path: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "a.vox").rename(workspace / "sub" / "a.vox")
    (workspace / "i.md").write_text(_PAGE.format("{{#include sub/a.vox}}"))
    before, _ = build_extracted_corpus(workspace, store)
    (workspace / "examples.ssot.v1.yaml").write_text("negative_roots: [sub]\n")
    corpus, reuse = build_extracted_corpus(workspace, store)

    assert reuse == Reuse(extracted=4)
    assert _contents(corpus) == _extract_cold(workspace, tmp_path / "cold")
    assert (before.manifest["num_records"], corpus.manifest["num_records"]) == (6, 1)
    assert {drop["reason"] for drop in json.loads((corpus.path / REPORT).read_text())["drops"]} == {
        *("negative_root", "rejected", "not_opted_in")
    }


def test_a_deleted_corpus_is_extracted_again(workspace: Path, store: ArtifactStore) -> None:
    corpus, _ = build_extracted_corpus(workspace, store)
    (corpus.path / "manifest.json").unlink()
    again, reuse = build_extracted_corpus(workspace, store)

    assert (again, reuse) == (corpus, Reuse(extracted=5))


class _SlowStore(ArtifactStore):
    """A slow store: meanwhile somebody edits the workspace."""

    @contextmanager
    def writing(
        self, kind: str, inputs: Mapping[str, Any], parents: Sequence[Artifact] = (), seen: Any = None
    ) -> Iterator[Draft]:
        with super().writing(kind, inputs, parents, seen) as draft:
            (self.root.parent / "workspace" / "a.vox").write_text("fn edited() { }\n")
            yield draft


def test_a_workspace_that_changes_while_it_is_read_is_refused(workspace: Path, tmp_path: Path) -> None:
    """The inputs would not match the corpus; nothing is left."""
    store = _SlowStore(tmp_path / "store")
    with pytest.raises(RefusedError, match=r"sources changed since the workspace was pinned\. Run again"):
        build_extracted_corpus(workspace, store)
    assert store.read_pointer("extracted_corpus", "latest") is None
    assert list((store.root / "extracted_corpus").iterdir()) == []


def test_a_missing_workspace_is_an_error(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="Name a Vox workspace"):
        build_extracted_corpus(tmp_path / "nowhere", store)
    assert list((store.root / "extracted_corpus").iterdir()) == []


@pytest.mark.seed_row(60)
def test_telemetry_is_extracted_with_the_workspace(workspace: Path, store: ArtifactStore, tmp_path: Path) -> None:
    database = tmp_path / "telemetry.db"
    query = TelemetryQuery.model_validate({"url": f"sqlite:///{database}"})
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE AgentTelemetry (query, optimal_response)")
        connection.execute("INSERT INTO AgentTelemetry VALUES ('Write f for ada@firm.de', 'fn f() { }')")
        connection.commit()
        (workspace / "i.md").unlink()
        without, _ = build_extracted_corpus(workspace, store)
        corpus, reuse = build_extracted_corpus(workspace, store, telemetry=query)
        _, again = build_extracted_corpus(workspace, store, telemetry=query)
        connection.execute("INSERT INTO AgentTelemetry VALUES ('Write g', 'fn g() { }')")
        connection.commit()
        more, _ = build_extracted_corpus(workspace, store, telemetry=query)

    assert (without.path / TELEMETRY).read_bytes() == b""
    assert without.manifest["telemetry"] is None
    assert [row["prompt"] for row in _rows(corpus, TELEMETRY)] == ["Write f for REDACTED_EMAIL"]
    assert (corpus.manifest["telemetry"]["table"], corpus.manifest["telemetry"]["kept"]) == ("AgentTelemetry", 1)
    assert (reuse, again) == (Reuse(known=4), Reuse(is_whole=True))
    assert len(_rows(more, TELEMETRY)) == 2
    assert len({without.key, corpus.key, more.key}) == 3


def test_links_and_missing_files_change_the_fingerprint(workspace: Path) -> None:
    program = workspace / "a.vox"
    keys = [tree_fingerprint(workspace, [program])]
    content = program.read_text()
    program.unlink()  # after it was listed
    keys.append(tree_fingerprint(workspace, [program]))
    (workspace / "elsewhere").write_text(content)
    program.symlink_to(workspace / "elsewhere")
    keys.append(tree_fingerprint(workspace, [program]))

    assert len(set(keys)) == 3


def test_a_full_extraction_gives_the_same_bytes(workspace: Path, store: ArtifactStore) -> None:
    first, _ = build_extracted_corpus(workspace, store)
    before = _contents(first)
    again, reuse = build_extracted_corpus(workspace, store, full=True)

    assert reuse == Reuse(extracted=5)
    assert _contents(again) == before
    assert again == first


def test_a_full_extraction_corrects_a_wrong_corpus_and_reports_it(workspace: Path, store: ArtifactStore) -> None:
    with store.writing(Kind.EXTRACTED_CORPUS, STAGE.inputs(ExtractionParams.pin(workspace))) as draft:
        (draft.path / TELEMETRY).write_text("wrong\n")
    corpus, reuse = build_extracted_corpus(workspace, store, full=True)

    assert reuse == Reuse(extracted=5, differs=True)
    assert (corpus.path / TELEMETRY).read_bytes() == b""


def test_the_checkouts_of_a_workspace_are_pinned(tmp_path: Path, store: ArtifactStore) -> None:
    root = tmp_path / "root"
    own = make_checkout(root, {"a.vox": "fn a() { }\n"})
    first = make_checkout(root / "nested", {"n.vox": "fn n() { }\n"})
    before, _ = build_extracted_corpus(root, store)
    (root / "nested" / "p.md").write_text("# Page\n")
    second = commit_all(root / "nested")
    (root / "nested" / "p.md").write_text("# Page\n")
    after, reuse = build_extracted_corpus(root, store)

    def commits(corpus: Artifact) -> list[str | None]:
        return [record.source.commit for _, record in read_record_lines(corpus.path / RECORDS)]

    assert (commits(before), commits(after)) == ([own, first], [own, second])
    assert (reuse.known, reuse.extracted) == (2, 1)
    assert [found["folder"] for found in after.inputs["checkouts"]] == [".", "nested"]
    assert json.loads((after.path / REPORT).read_text())["checkouts"] == after.inputs["checkouts"]


def test_included_files_change_the_corpus(tmp_path: Path, store: ArtifactStore) -> None:
    write_files(tmp_path / "root", {"a.vox": "fn a() { }\n", "vendor/v.vox": "fn v() { }\n"})
    without, _ = build_extracted_corpus(tmp_path / "root", store)
    (tmp_path / "root" / "vendor" / "v.vox").write_text("fn w() { }\n")
    same, reuse = build_extracted_corpus(tmp_path / "root", store)
    included, _ = build_extracted_corpus(tmp_path / "root", store, include=("vendor",))

    assert (same.key, reuse.is_whole) == (without.key, True)
    assert [corpus.manifest["num_records"] for corpus in (without, included)] == [1, 2]
