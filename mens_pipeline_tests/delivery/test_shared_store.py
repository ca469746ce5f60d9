"""Retention and lineage of a shared store: a machine without a cache sees the artifacts of all machines."""

import json
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import from_url

from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.delivery.lineage import trace_lineage
from mens_pipeline.delivery.retention import RetentionPlan, load_retention, prune, read_store
from mens_pipeline.promotion.history import find_champion
from mens_pipeline.settings import RETENTION
from mens_pipeline.storage.documents import TAG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore
from mens_pipeline_tests.corpus.rows import mix_report
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, fill_trained, promote, scored
from mens_pipeline_tests.training.runs import pairs

_DAY = 86_400
_POLICY = load_retention(RETENTION).model_copy(update={"newest": 1})


def _machine(folder: Path, url: str) -> ArtifactStore:
    return ArtifactStore(folder, Remote(url))


def _mix(store: ArtifactStore, number: int) -> Artifact:
    def mix(folder: Path) -> dict[str, Any]:
        write_jsonl(folder / TRAIN, pairs(number))
        return mix_report({"path": "pairs.jsonl", "emitted_lines": number})

    return store.build("mixed_train_set", {"n": number}, mix)[0]


@pytest.fixture
def url(tmp_path: Path, store_url: str) -> str:
    """A bucket with a champion, its ancestors, and an adapter that was never evaluated."""
    store = _machine(tmp_path / "first", store_url)
    mixed = _mix(store, 3)
    for weights in ("unused", "used"):
        run, _ = store.build("qlora_adapter", {"n": weights}, partial(fill_trained, weights=weights), [mixed])
        if weights == "used":
            promote(scored(run.path, store, evaluated(run.path, store)), run.path, store, PRESENT, now=NOW)
    _mix(store, 4)
    return store_url


def _prune(store: ArtifactStore, days: float, *, apply: bool) -> RetentionPlan:
    now = time.time() + days * _DAY
    store.root.mkdir(exist_ok=True)
    (store.root / TAG).touch()
    os.utime(store.root / TAG, (now, now))  # otherwise the clock would seem to have jumped
    return prune(store, _POLICY, now, apply=apply, show=lambda _plan: None)


def test_a_cold_machine_traces_the_lineage_of_the_champion(url: str, tmp_path: Path) -> None:
    there = trace_lineage(_machine(tmp_path / "first", url), "champion")
    here = trace_lineage(_machine(tmp_path / "cold", url), "champion")

    assert here == there
    assert [(link.kind, link.is_there) for link in here.rests_on][-1] == ("mixed_train_set", True)
    assert sum(here.files.values()) == 3


def test_a_cold_machine_sees_the_artifacts_of_all_machines(url: str, tmp_path: Path) -> None:
    first, cold = _machine(tmp_path / "first", url), _machine(tmp_path / "cold", url)
    there, here = read_store(first), read_store(cold)

    assert {replace(item, path=Path(), made=0, num_bytes=0) for item in here.items} == {
        replace(item, path=Path(), made=0, num_bytes=0) for item in there.items
    }
    assert (here.pointers, here.history) == (there.pointers, there.history)
    assert not list((tmp_path / "cold").glob(f"*/*/{MANIFEST}"))


def test_removes_artifacts_for_all_machines(url: str, tmp_path: Path) -> None:
    first, cold = _machine(tmp_path / "first", url), _machine(tmp_path / "cold", url)
    young, old = _prune(cold, 1, apply=True), _prune(cold, 400, apply=False)
    assert young.removed == ()
    gone = {(decision.item.kind, decision.item.key) for decision in old.removed}
    assert ("qlora_adapter", first.find("qlora_adapter", {"n": "unused"}).key) in gone  # type: ignore[union-attr]
    _prune(cold, 400, apply=True)
    left = {(found.kind, found.key) for found in Remote(url).list_artifacts()}

    assert not gone & left
    assert _machine(tmp_path / "third", url).find("qlora_adapter", {"n": "unused"}) is None
    assert find_champion(_machine(tmp_path / "third", url)) is not None
    assert trace_lineage(_machine(tmp_path / "third", url), "champion").rows == {"pairs.jsonl": 3}
    assert _prune(first, 400, apply=True).removed
    assert first.find("qlora_adapter", {"n": "unused"}) is None


def test_removes_old_files_of_an_interrupted_writer(url: str, tmp_path: Path) -> None:
    bucket, key = from_url(url), "0" * 64
    obstore.put(bucket, f"corpus/{key}/{'1' * 64}", b"left")
    obstore.put(bucket, f"corpus/{'2' * 64}/{MANIFEST}", json.dumps(["no", "manifest"]).encode())
    obstore.put(bucket, "somebody/else/file", b"theirs")
    store = _machine(tmp_path / "cold", url)
    reasons = {(d.item.key, d.reason) for d in _prune(store, 0.5, apply=True).decisions if d.item.kind == "corpus"}
    assert reasons == {(key, "a run may still be using it"), ("2" * 64, "a run may still be using it")}
    _prune(store, 400, apply=True)
    names = {meta["path"] for page in obstore.list(bucket) for meta in page}

    assert not any(name.startswith("corpus/") for name in names)
    assert "somebody/else/file" in names
