"""A real store, with runs that were judged and promoted, and what is left of it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.delivery.prune import prune, read_store
from mens_pipeline.delivery.retention import Plan, load_retention
from mens_pipeline.errors import ConfigurationError, SourceNotFoundError
from mens_pipeline.promotion.history import HISTORY, champion_of
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.settings import RETENTION
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore
from mens_pipeline.training.manifest import MANIFEST as TRAINING_MANIFEST
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, judged, promote, trained, training_manifest

_LATER = 400 * 86_400
_POLICY = load_retention(RETENTION).model_copy(update={"newest": 1})


def _adapter(store: ArtifactStore, weights: str) -> Artifact:
    """A trained adapter, as training leaves it in the store."""

    def write(folder: Path) -> dict[str, Any]:
        trained(folder, weights)
        manifest = {**training_manifest(), "contract_digest": weights}
        (folder / TRAINING_MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        return {"training": {"name": f"lora-adapter-{weights}"}}

    return store.built("qlora_adapter", {"weights": weights}, write)[0]


def _promoted(store: ArtifactStore, weights: str) -> Artifact:
    run = _adapter(store, weights).path
    return promote(judged(run, store, evaluated(run, store)), run, store, PRESENT, now=NOW).champion


def _prune(store: ArtifactStore, *, apply: bool) -> Plan:
    now = (store.root / "CACHEDIR.TAG").stat().st_mtime + _LATER
    return prune(store, _POLICY, now, apply=apply, show=lambda _plan: None)


def _all(store: ArtifactStore) -> set[str]:
    return {path.relative_to(store.root).as_posix() for path in store.root.rglob("*")}


def test_after_a_year_a_champion_and_all_it_rests_on_are_left(store: ArtifactStore) -> None:
    """An adapter that was refused goes with its verdict and its figures; the champions can still change places."""
    first, second = _promoted(store, "first"), _promoted(store, "second")
    worse = _adapter(store, "worse")
    refused = judged(worse.path, store, evaluated(worse.path, store, num_good=1))
    last = _adapter(store, "last")
    judged(last.path, store, evaluated(last.path, store))
    plan = _prune(store, apply=True)

    assert {(decision.item.kind, decision.item.key) for decision in plan.removed} == {
        ("qlora_adapter", worse.key),
        ("benchmark_gate", refused.key),
        ("eval_results", next(d.item.key for d in plan.removed if d.item.kind == "eval_results")),
    }
    assert {d.item.name for d in plan.decisions if d.item.kind == "qlora_adapter"} == {
        *("lora-adapter-first", "lora-adapter-second", "lora-adapter-worse", "lora-adapter-last"),
    }
    assert champion_of(store) == second
    assert roll_back(store, now=NOW, reason="to see that it can").champion == first
    assert (store.root / "promoted_adapter" / HISTORY).is_file()
    assert not list(store.root.glob("*/.draft-*"))


def test_a_dry_run_removes_nothing_and_plans_the_same(store: ArtifactStore) -> None:
    """The plan that is shown is the plan that is done."""
    for weights in ("first", "second"):
        _adapter(store, weights)
    before = _all(store)
    dry = _prune(store, apply=False)

    assert _all(store) - before <= {"promoted_adapter", "promoted_adapter/.lock"}
    assert len(dry.removed) == 1
    assert _prune(store, apply=True) == dry
    assert _prune(store, apply=True).removed == ()


def test_the_plan_is_shown_before_anything_goes(store: ArtifactStore) -> None:
    """Whoever stops it there has lost nothing."""
    for weights in ("first", "second"):
        _adapter(store, weights)

    def stop(plan: Plan) -> None:
        assert plan.removed
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(store, _POLICY, NOW + _LATER, apply=True, show=stop)

    assert len(list(store.root.glob(f"qlora_adapter/*/{MANIFEST}"))) == 2


def test_folders_that_nobody_finishes_go(store: ArtifactStore) -> None:
    """Work, drafts and artifacts without a manifest; what is written to stays, and so does what is none of these."""
    kind = store.root / "qlora_adapter"
    (_adapter(store, "first").path / MANIFEST).unlink()
    for name in (".work-old", ".draft-old", ".work-busy"):
        (kind / name / "checkpoints").mkdir(parents=True)
        (kind / name / "checkpoints" / "file").write_text("12345")
    (kind / "notes").mkdir()
    now = (store.root / "CACHEDIR.TAG").stat().st_mtime + 3 * 86_400
    os.utime(kind / ".work-busy" / "checkpoints" / "file", (now, now))
    plan = prune(store, _POLICY, now, apply=True, show=lambda _plan: None)

    assert {(d.item.key[:5], d.item.num_bytes > 0) for d in plan.removed} >= {(".work", True), (".draf", True)}
    assert {path.name for path in kind.iterdir()} == {"latest", "notes", ".work-busy"}


def test_sizes_and_names_are_those_of_the_manifest(store: ArtifactStore) -> None:
    """The manifest included."""
    artifact = _adapter(store, "first")
    (item,) = read_store(store).items
    size = sum(path.stat().st_size for path in artifact.path.rglob("*") if path.is_file())

    assert (item.name, item.num_bytes, item.is_artifact) == ("lora-adapter-first", size, True)
    assert (item.key, item.parents) == (artifact.key, frozenset())


def test_a_store_that_is_not_there_is_not_an_empty_one(tmp_path: Path) -> None:
    """A slip in MENS_STORE_ROOT."""
    with pytest.raises(SourceNotFoundError, match="Set MENS_STORE_ROOT to the store"):
        prune(ArtifactStore(tmp_path / "none"), _POLICY, NOW, apply=False, show=lambda _plan: None)


def test_what_cannot_be_removed_is_named(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do; it is out of the store already, and a later run takes up what is left."""
    for weights in ("first", "second"):
        _adapter(store, weights)

    def refuse(path: Path, **options: bool) -> None:
        if not options:
            raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(ConfigurationError, match=r"Permission denied\. Let this user write to the store"):
            _prune(store, apply=True)
    (left,) = store.root.glob("qlora_adapter/.draft-*-removed")

    assert len(_prune(store, apply=True).removed) == 1
    assert not left.exists()
