"""Forgotten files: models that saw them, and train sets without them."""

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.heldout_split import HELDOUT, split_pairs
from mens_pipeline.corpus.curate.mix import load_mix_config
from mens_pipeline.corpus.curate.mixed_train_set import STAGE, TRAIN, MixParams
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config, load_source_policy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.curate.validated_pairs import make_pairs
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, build_extracted_corpus
from mens_pipeline.corpus.extract.forgotten import FORGOTTEN, load_forgotten
from mens_pipeline.corpus.extract.sources import files_below
from mens_pipeline.corpus.schema.records import read_pairs, read_record_lines
from mens_pipeline.delivery.forget import plan_forgetting
from mens_pipeline.delivery.hub import Target, plan_train_set
from mens_pipeline.delivery.merge import MergeSource, card_of_source
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.orchestration.resources import champion_metadata
from mens_pipeline.promotion.bill import BILL, files_in_bill, format_refused_files
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.promotion.receipt import PAGE
from mens_pipeline.serving.pages import ADDRESS, PageServer, open_socket
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.evaluation.runs import champion_in, fill_trained, promoted, training_manifest

_QUEUE = """fn take_first(waiting: List[int]) to int {
    let mut first = 0
    for entry in waiting { if first is 0 { first = entry } }
    return first
}
"""
_FILES = {
    "ours/area.vox": "fn area(width: int, height: int) to int {\n    return width * height\n}\n",
    "ours/greet.vox": 'fn greet(name: str) to str {\n    return "Hello, " + name\n}\n',
    "ours/paint.vox": "type Paint {\n    name: str\n    litres: float\n    is_matt: bool\n}\n",
    "theirs/queue.vox": _QUEUE,
    "theirs/shelf.vox": "type Shelf {\n    label: str\n    boards: int\n}\n",
    "freight.vox": "// SPDX-License-Identifier: GPL-3.0-only\ntype Crate {\n    weight: float\n    owner: str\n}\n",
    "p.md": "---\ntraining_eligible: true\n---\n# Queues\n\n```vox\n{{#include theirs/queue.vox}}\n```\n",
}


@dataclass(frozen=True)
class Pipeline:
    """A workspace, a store, and a configuration that people edit."""

    root: Path
    store: ArtifactStore
    config: Path
    workers: BehaviourWorkers

    def make_train_set(self) -> Artifact:
        """Extract, pair, split and mix, as the graph does."""
        policy = load_pipeline_config(self.config)
        corpus, _ = build_extracted_corpus(self.root, self.store, licences=load_source_policy(self.config))
        records = (record for _, record in read_record_lines(corpus.path / RECORDS))
        pairs = {"pairs.jsonl": list(make_pairs(records, self.workers))}
        half = policy.split.model_copy(update={"min_nodes": 1})
        split = split_pairs(pairs, Repetition(policy.validate_), half, self.workers)

        def write(folder: Path) -> dict[str, Any]:
            write_jsonl(folder / HELDOUT, split.heldout)
            return {"n": write_jsonl(folder / "pairs.jsonl", split.train["pairs.jsonl"])}

        parent, _ = self.store.build(Kind.HELDOUT_SPLIT, {"corpus": corpus.data_version}, write, [corpus])
        sources = load_mix_config(MIX_CONFIG)
        optional = tuple(source.model_copy(update={"optional": True}) for source in sources.sources)
        mix = MixParams(split=parent, config=sources.model_copy(update={"sources": optional}))
        return STAGE.build(self.store, mix)[0]

    def read_paths(self, mixed: Artifact) -> set[str]:
        """Return the files that train or evaluate."""
        split = self.store.get(mixed.parents[0].kind, mixed.parents[0].key)
        assert split is not None
        rows = [*read_pairs(mixed.path / TRAIN), *read_pairs(split.path / HELDOUT)]
        return {row.source.path for row in rows if row.source is not None}


@pytest.fixture
def pipeline(
    tmp_path: Path, store: ArtifactStore, workers: BehaviourWorkers, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    """A workspace with one commit of ours and one of theirs."""
    root = tmp_path / "workspace"
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "LICENSE").write_text("SPDX-License-Identifier: MIT\n")
    _git(root, "init", "--quiet")
    for part in ("ours", "theirs"):
        _git(root, "add", part)
        _git(root, "commit", "--quiet", "--message", part)
        _git(root, "tag", part)
    (tmp_path / "config").mkdir()
    config = tmp_path / "config" / PIPELINE_CONFIG.name
    config.write_text(PIPELINE_CONFIG.read_text())
    monkeypatch.setattr("mens_pipeline.cli.store.PIPELINE_CONFIG", config)
    monkeypatch.setattr("mens_pipeline.orchestration.resources.PIPELINE_CONFIG", config)
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(root))
    monkeypatch.setenv("MENS_STORE_ROOT", str(store.root))
    return Pipeline(root, store, config, workers)


def _git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True).stdout


def _champion(pipeline: Pipeline, mixed: Artifact) -> Artifact:
    def fill(folder: Path) -> dict[str, Any]:
        more = fill_trained(folder, "weights")
        train_file = mixed.path / TRAIN
        known = {"train_file": str(train_file), "train_sha256": digest_of(train_file)}
        (folder / MANIFEST).write_text(json.dumps({**training_manifest(), **known}))
        return more

    run, _ = pipeline.store.build(Kind.QLORA_ADAPTER, {}, fill, [mixed])
    promoted(run.path, pipeline.store)
    return champion_in(pipeline.store)


@pytest.mark.slow
def test_forgotten_files_no_longer_train_or_evaluate(pipeline: Pipeline) -> None:
    first = pipeline.make_train_set()
    champion = _champion(pipeline, first)
    commit, theirs = _git(pipeline.root, "rev-parse", "theirs").strip(), {"theirs/queue.vox", "theirs/shelf.vox"}
    (pipeline.root / "ours" / "copy.vox").write_text(_QUEUE)
    wanted = {
        "theirs/queue.vox": {"theirs/queue.vox", "ours/copy.vox"},
        str(pipeline.root / "theirs" / "shelf.vox"): {"theirs/shelf.vox"},
        commit[:9]: {*theirs, "ours/copy.vox"},
        "GPL-3.0": {"freight.vox"},
    }
    before = pipeline.read_paths(first)
    kept, is_seen, is_in_corpus = {}, {}, {}
    for name in wanted:
        pipeline.config.with_name(FORGOTTEN).unlink(missing_ok=True)
        result = invoke("store", "forget", name, "--reason", "asked by its author")
        assert result.exit_code == 0, result.output
        is_seen[name] = f"seen by    promoted_adapter  {champion.key[:12]}  champion" in result.stdout
        kept[name] = pipeline.read_paths(pipeline.make_train_set())
        corpus = pipeline.store.latest(Kind.EXTRACTED_CORPUS)
        assert corpus is not None
        is_in_corpus[name] = "take_first" in (corpus.path / RECORDS).read_text()  # of the program, its copy or the page

    assert before >= {*theirs, "freight.vox"}
    assert [name for name, paths in kept.items() if paths & wanted[name]] == []
    assert [name for name, paths in kept.items() if not {path for path in before if "ours" in path} <= paths] == []
    assert is_seen == {name: name != "theirs/queue.vox" for name in wanted}  # which was held out
    assert is_in_corpus == {name: "theirs/queue.vox" not in paths for name, paths in wanted.items()}


def test_an_entry_is_written_once_and_never_by_a_dry_run(pipeline: Pipeline) -> None:
    path = pipeline.config.with_name(FORGOTTEN)
    path.write_text("# ours\n- path: old.vox")
    dry = invoke("store", "forget", "theirs/queue.vox", "--dry-run")
    unchanged = path.read_text()
    first, again = (invoke("store", "forget", "theirs/queue.vox", "--reason", why) for why in ("asked", "again"))

    assert unchanged == "# ours\n- path: old.vox"
    assert dry.stdout.splitlines() == [
        "forgotten  theirs/queue.vox",
        f"seen by    no model in {pipeline.store.root}",
        f"dry run: {path} is unchanged",
    ]
    assert "written    1 new entries" in first.stdout
    assert "written    0 new entries" in again.stdout
    assert path.read_text() == (
        "# ours\n- path: old.vox\n- path: theirs/queue.vox\n"
        f"  sha256:\n  - {digest_of(pipeline.root / 'theirs/queue.vox')[:16]}\n  reason: asked\n"
    )


_UNKNOWN = {
    "theirs/queu.vox": "a commit, or an SPDX id. Did you mean `theirs/queue.vox`?",
    "nobody.txt": "a commit, or an SPDX id. `mens lineage champion` lists the files of a model.",
    ".": "a commit, or an SPDX id",
    "../workspace/theirs": "a commit, or an SPDX id",
    "GPL": "a commit, or an SPDX id",
    "AGPL-3.0": "has this licence. To keep it out in future, add it to `licences.deny`",
    "0123abcd": "that changed a program or a page. Name a commit that `git log` shows there, or a path.",
}


def test_rejects_unknown_names(pipeline: Pipeline) -> None:
    found = {name: refusal(invoke("store", "forget", name)) for name in _UNKNOWN}

    assert [name for name, problem in _UNKNOWN.items() if problem not in found[name] or name not in found[name]] == []
    assert not pipeline.config.with_name(FORGOTTEN).exists()


def test_a_folder_that_becomes_a_link_is_not_read_through(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list holds no digest of a file outside of the workspace."""

    def list_and_swap(root: Path, suffixes: tuple[str, ...]) -> list[Path]:
        found, outside = list(files_below(root, suffixes)), tmp_path / "outside"
        (root / "theirs").rename(outside)
        (root / "theirs").symlink_to(outside)
        return found

    monkeypatch.setattr("mens_pipeline.delivery.forget.files_below", list_and_swap)
    (entry,) = plan_forgetting(pipeline.store, pipeline.root, "theirs/queue.vox").entries

    assert (entry.path, entry.sha256) == ("theirs/queue.vox", ())


def test_does_not_change_a_malformed_list(pipeline: Pipeline) -> None:
    path = pipeline.config.with_name(FORGOTTEN)
    for text in ("- {pth: a.vox}\n", "[]\n", "- ["):
        path.write_text(text)
        result = invoke("store", "forget", "theirs/queue.vox")

        assert isinstance(result.exception, ConfigurationError)
        assert path.read_text() == text


@pytest.fixture
def page(pipeline: Pipeline) -> Iterator[PageServer]:
    """The server of pages, which reads the list again for every page."""
    policy = lambda: load_source_policy(pipeline.config)  # noqa: E731 - as the command passes it
    with PageServer(open_socket(0), pipeline.store, None, policy) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.shutdown()


def _get(server: PageServer, champion: Artifact) -> str:
    with closing(http.client.HTTPConnection(ADDRESS, server.server_port, timeout=30)) as connection:
        connection.request("GET", f"/{champion.kind}/{champion.key}/{PAGE}")
        return connection.getresponse().read().decode()


def test_a_champion_that_saw_forgotten_files_says_so(pipeline: Pipeline, page: PageServer, tmp_path: Path) -> None:
    champion = _champion(pipeline, pipeline.make_train_set())
    source, marks = MergeSource(Adapter.open(champion.path), champion, None, None), []
    for _ in range(2):
        notice = format_refused_files(champion, load_source_policy(pipeline.config))
        source = replace(source, notice=notice)
        shown = champion_metadata(Promotion(champion, None, changed=False), pipeline.store)["card"].value
        card = card_of_source(source, "adapter", None)
        marks.append([notice in text for text in (_get(page, champion), card, str(shown))] if notice else notice)
        assert not notice or card.index(notice) < card.index("\n## ")
        invoke("store", "forget", "theirs")

    assert marks == ["", [True, True, True]]
    learnt = sorted(file.path for file in files_in_bill(champion) if file.path.startswith("theirs/"))
    assert learnt
    assert (
        source.notice
        == f"It was trained on files that are now excluded: {', '.join(learnt)}. Train without them: mens run"
    )
    assert not champion.find_changed()
    with pytest.raises(RefusedError, match=r"its train set is not published\. It was trained on files"):
        plan_train_set(source, pipeline.store, Target("o/r", "main", "dataset"), "mit", tmp_path / "staging")
    assert [entry.path for entry in load_forgotten(pipeline.config.with_name(FORGOTTEN))] == ["theirs"]


def test_a_damaged_bill_is_refused(pipeline: Pipeline) -> None:
    champion = _champion(pipeline, pipeline.make_train_set())
    (champion.path / BILL).write_text("[")
    adapter = pipeline.store.latest(Kind.QLORA_ADAPTER)
    assert adapter is not None

    with pytest.raises(RefusedError, match="damaged"):
        list(files_in_bill(champion))
    assert list(files_in_bill(adapter)) == []
