"""Sensors that start runs, tick by tick."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml

from mens_pipeline.definitions import defs
from mens_pipeline.errors import SourceNotFoundError
from mens_pipeline.language import grammar_fingerprint
from mens_pipeline.orchestration.resources import ArtifactStoreResource, SourceWatch, VoxWorkspace
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore

_AT_ONCE = SourceWatch(settle_seconds=0.0)


class Ticks:
    """A sensor that is ticked as by the daemon: with the cursor of the previous tick."""

    def __init__(self, name: str, **resources: object) -> None:
        self.repository = defs().get_repository_def()
        self.sensor = self.repository.get_sensor_def(name)
        self.resources = resources
        self.cursor: str | None = None

    def tick(self, **changes: object) -> dg.RunRequest | str:
        """Return the run that one tick requests, or why it requests none."""
        resources = {**self.resources, **changes}
        with dg.build_sensor_context(cursor=self.cursor, resources=resources) as context:
            data = self.sensor.evaluate_tick(context)
        self.cursor = data.cursor
        if data.run_requests:
            (request,) = data.run_requests
            return request
        assert data.skip_message
        return data.skip_message


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace of one program and one page."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.vox").write_text("fn a() { }\n")
    (tmp_path / "workspace" / "p.md").write_text("# A page\n")
    return tmp_path / "workspace"


@pytest.fixture
def ticks(root: Path) -> Ticks:
    """The sensor of the workspace."""
    return Ticks("sources_changed", workspace=VoxWorkspace(root=str(root)), source_watch=_AT_ONCE)


def _edit(root: Path, text: str = "edited\n") -> None:
    for name in ("a.vox", "p.md"):
        (root / name).write_text(text)


def _run(outcome: dg.RunRequest | str) -> dg.RunRequest:
    assert isinstance(outcome, dg.RunRequest), outcome
    return outcome


def test_the_first_tick_starts_nothing(ticks: Ticks) -> None:
    found = "2 watched files"

    assert str(ticks.tick()).startswith(f"first check: {found} ")
    assert str(ticks.tick()) == f"no change in {found}"


@pytest.mark.seed_row(71)
def test_a_change_starts_one_run_of_the_whole_graph(root: Path, ticks: Ticks) -> None:
    ticks.tick()
    _edit(root)
    request = _run(ticks.tick())

    assert ticks.sensor.job_name == "whole_graph"
    assert request.tags["mens/job"] == ticks.sensor.name
    assert str(ticks.tick()).startswith("no change")


def test_a_change_and_its_reversal_start_two_runs(root: Path, ticks: Ticks) -> None:
    kept = root.with_name("kept")
    shutil.copytree(root, kept)
    ticks.tick()
    _edit(root)
    second = _run(ticks.tick())
    shutil.copytree(kept, root, dirs_exist_ok=True)
    third = _run(ticks.tick())

    assert second.run_key != third.run_key
    _edit(root)
    assert _run(ticks.tick()).run_key not in {second.run_key, third.run_key}


def test_a_reset_cursor_does_not_reuse_its_old_run_keys(
    root: Path, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster would skip them silently."""
    ticks.tick()
    _edit(root)
    before = _run(ticks.tick())
    ticks.cursor = None
    monkeypatch.setattr("time.time", lambda: 4_000_000_000.0)
    ticks.tick()
    (root / "b.vox").touch()
    (root / "q.md").touch()

    assert _run(ticks.tick()).run_key != before.run_key


@pytest.mark.parametrize("is_first", [True, False])
def test_half_a_checkout_starts_nothing(root: Path, ticks: Ticks, *, is_first: bool) -> None:
    if not is_first:
        ticks.tick()
    _edit(root)
    waiting = ticks.tick(source_watch=SourceWatch(settle_seconds=3600.0))

    assert "are still changing: a file was modified in the last 3600 s" in str(waiting)
    assert isinstance(ticks.tick(), str) is is_first


def _replace_unnoticed(path: Path, *, move: bool) -> None:
    """Give a file another content of the same size and modification time, in place or by moving a file onto it."""
    then = path.stat()
    written = path.with_name("new") if move else path
    written.write_bytes(path.read_bytes().swapcase())
    os.utime(written, ns=(then.st_atime_ns, then.st_mtime_ns))
    if move:
        written.replace(path)


def _git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


_WAYS: dict[str, Callable[[Path], object]] = {
    "edited in place": lambda root: (root / "a.vox").write_text("fn abc() { }\n"),
    "a page edited": lambda root: (root / "p.md").write_text("# Another\n"),
    "written in place, with the same size and time": lambda root: _replace_unnoticed(root / "a.vox", move=False),
    "moved over, with the same size and time": lambda root: _replace_unnoticed(root / "a.vox", move=True),
    "a page moved over, with the same size and time": lambda root: _replace_unnoticed(root / "p.md", move=True),
    "copied with its times": lambda root: shutil.copy2(root / "a.vox", root / "copy.vox"),
    "a folder copied with its times": lambda root: shutil.copytree(root / "kept", root / "copied"),
    "moved": lambda root: (root / "copy.vox").rename(root / "moved.vox"),
    "a folder moved": lambda root: (root / "copied").rename(root / "elsewhere"),
    "checked out": lambda root: _git(root, "checkout", "--quiet", "first"),
    "checked out again": lambda root: _git(root, "checkout", "--quiet", "--detach", "second"),
    "a commit reverted": lambda root: _git(root, "revert", "--no-edit", "HEAD"),
    "deleted": lambda root: (root / "moved.vox").unlink(),
    "a folder deleted": lambda root: shutil.rmtree(root / "elsewhere"),
    "other roots": lambda root: (root / "examples.ssot.v1.yaml").touch(),
    "another licence": lambda root: (root / "LICENSE").write_text("SPDX-License-Identifier: MIT\n"),
}


def test_every_kind_of_change_starts_one_run(root: Path, ticks: Ticks) -> None:
    (root / "kept").mkdir()
    (root / "kept" / "b.vox").write_text("fn b() { }\n")
    _git(root, "init", "--quiet")
    for tag in ("first", "second"):
        (root / "c.vox").write_text(f"fn {tag}() {{ }}\n")
        _git(root, "add", "c.vox")
        _git(root, "commit", "--quiet", "--message", tag)
        _git(root, "tag", tag)
    ticks.tick()
    runs = {}
    for way, change in _WAYS.items():
        change(root)
        runs[way] = sum(isinstance(ticks.tick(), dg.RunRequest) for _ in range(2))

    assert runs == dict.fromkeys(_WAYS, 1)


def test_missing_files_are_checked_twice(root: Path, ticks: Ticks) -> None:
    for name in ("b.vox", "c.vox"):
        (root / name).write_text("fn b() { }\n")
    for path in root.iterdir():
        os.utime(path)
    ticks.resources["source_watch"] = SourceWatch(settle_seconds=0.05)
    time.sleep(0.1)
    ticks.tick()
    (root / "c.vox").unlink()
    first = ticks.tick()
    (root / "b.vox").unlink()
    second = ticks.tick()

    assert first == second
    assert str(first).startswith("files are missing; ")
    _run(ticks.tick())
    assert str(ticks.tick()).startswith("no change")


_PATHS = {
    **dict.fromkeys(("src/a.vox", "ui/a.vox.ui", "docs/src/guide.md", "docs/src/deep/er.md"), True),
    **dict.fromkeys(("docs/notes.md", "README.md", "src/notes.txt"), False),
}


@pytest.mark.seed_row(71)
def test_paths_can_be_excluded(root: Path, ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's rule, as configuration: which path starts a run and which does not."""
    values = yaml.safe_load(PIPELINE_CONFIG.read_text())
    values["watch"] = {"paths": ["*.vox", "*.vox.ui", "docs/src/*"]}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setattr("mens_pipeline.orchestration.defs.automation.PIPELINE_CONFIG", tmp_path / "pipeline.yaml")
    ticks.tick()
    runs = {}
    for path in _PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
        runs[path] = isinstance(ticks.tick(), dg.RunRequest)

    assert runs == _PATHS


def test_too_many_files_are_not_watched(root: Path, ticks: Ticks) -> None:
    ticks.tick()
    before = ticks.cursor
    for name in ("b.vox", "c.md"):
        (root / name).touch()
    reason = ticks.tick(source_watch=SourceWatch(settle_seconds=0.0, most_files=1))

    assert "not watched: " in str(reason)
    assert "more than 1 files" in str(reason)
    assert "Set MENS_SOURCE_ROOT to a smaller folder; until then, only the nightly run sees changes." in str(reason)
    assert ticks.cursor == before
    _run(ticks.tick())


def test_a_missing_workspace_is_a_failed_tick(root: Path, ticks: Ticks) -> None:
    shutil.rmtree(root)

    with pytest.raises(SourceNotFoundError, match="Set MENS_SOURCE_ROOT to a Vox workspace"):
        ticks.tick()


@pytest.fixture
def grammar(store: ArtifactStore) -> Ticks:
    """The sensor of the grammar."""
    return Ticks("grammar_changed", store=ArtifactStoreResource(root=str(store.root)))


def _corpus(store: ArtifactStore, grammar: str) -> None:
    counts = {"units": {}, "num_records": 0, "telemetry": None, "redactions": {}}
    store.build(Kind.EXTRACTED_CORPUS, {"n": grammar, "commit": None}, lambda _folder: {"grammar": grammar, **counts})


def test_a_program_and_a_page_together_start_one_run(root: Path, ticks: Ticks, grammar: Ticks) -> None:
    launching = {
        sensor.name
        for sensor in ticks.repository.sensor_defs
        if any(target.job_name == "whole_graph" for target in sensor.targets)
    }
    for sensor in (ticks, grammar):
        sensor.tick()
    (root / "b.vox").write_text("fn b() { }\n")
    (root / "p.md").write_text("# Another\n")
    outcomes = [sensor.tick() for sensor in (ticks, grammar) for _ in range(2)]

    assert launching == {ticks.sensor.name, grammar.sensor.name}
    assert sum(isinstance(outcome, dg.RunRequest) for outcome in outcomes) == 1


@pytest.mark.seed_row(74)
def test_a_change_of_the_grammar_extracts_everything(
    grammar: Ticks, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _corpus(store, grammar_fingerprint())
    same = grammar.tick()
    monkeypatch.setattr("mens_pipeline.orchestration.defs.automation.grammar_fingerprint", lambda: "b" * 64)
    changed = _run(grammar.tick())
    quiet = grammar.tick()
    monkeypatch.undo()
    back = _run(grammar.tick())

    assert str(same).startswith("no change: ")
    assert str(quiet).startswith("no change: ")
    assert "b" * 12 in str(quiet)
    assert changed.run_config["ops"] == {"extracted_corpus": {"config": {"full": True}}}
    assert dg.validate_run_config(grammar.repository.get_job("whole_graph"), changed.run_config)
    assert changed.run_key != back.run_key


def test_a_change_made_while_the_sensor_was_off_is_detected(grammar: Ticks, store: ArtifactStore) -> None:
    _corpus(store, "another")

    _run(grammar.tick())
    assert str(grammar.tick()).startswith("no change")


def test_without_a_corpus_nothing_is_extracted_again(grammar: Ticks, store: ArtifactStore) -> None:
    assert "no corpus yet" in str(grammar.tick())
    assert grammar.cursor is None
    _corpus(store, "another")

    _run(grammar.tick())
