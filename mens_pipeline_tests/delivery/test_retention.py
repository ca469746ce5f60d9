"""Artifacts that are kept or removed, with reasons."""

import hashlib
import json
import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mens_pipeline.delivery.retention import (
    Item,
    RetentionPlan,
    RetentionPolicy,
    Stored,
    load_retention,
    plan_retention,
    prune,
    read_store,
)
from mens_pipeline.errors import ConfigurationError, RefusedError, SourceNotFoundError
from mens_pipeline.models.adapter import MANIFEST as TRAINING_MANIFEST
from mens_pipeline.promotion.history import HISTORY, find_champion
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.settings import RETENTION
from mens_pipeline.storage.documents import TAG, hold_folder
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, promote, scored, trained, training_manifest
from mens_pipeline_tests.every import every

_DAY = 86_400
_NOW = 1_800_000_000.0
_DAYS = {
    "qlora_adapter": 90,
    "eval_results": 30,
    "benchmark_gate": 30,
    "generations": 30,
    "merged_model": 14,
    "gguf_model": 14,
    "serving_handoff": 14,
}
_POLICY = RetentionPolicy.model_validate({"days": _DAYS, "runs": 90, "newest": 2, "abandoned_days": 2})


def _item(kind: str, key: str, days: float, *parents: tuple[str, str], **fields: Any) -> Item:
    made = _NOW - days * _DAY
    return replace(
        Item(kind, key, "", Path(kind, key), 10, made, is_artifact=True, parents=frozenset(parents)), **fields
    )


def _reasons(*items: Item, history: frozenset[str] = frozenset(), **pointers: str) -> dict[str, tuple[str, str]]:
    """Return the action and the reason for each key. A pointer is written as `kind__name="key"`."""
    named = {(kind.split("__")[0], kind.split("__")[1]): key for kind, key in pointers.items()}
    plan = plan_retention(Stored(items, named, history), _POLICY, _NOW)
    return {decision.item.key: (decision.action, decision.reason) for decision in plan.decisions}


@every(
    "case",
    [
        ("qlora_adapter", 89.9, "keep", "younger than 90 days"),
        ("qlora_adapter", 90, "remove", "older than 90 days"),
        ("eval_results", 29.9, "keep", "younger than 30 days"),
        ("eval_results", 30, "remove", "older than 30 days"),
        ("benchmark_gate", 31, "remove", "older than 30 days"),
        ("generations", 31, "remove", "older than 30 days"),
        ("merged_model", 14, "remove", "older than 14 days"),
        ("gguf_model", 13, "keep", "younger than 14 days"),
        ("serving_handoff", 15, "remove", "older than 14 days"),
        ("extracted_corpus", 1000, "keep", "among the newest 2"),
        ("promoted_adapter", 1000, "keep", "among the newest 2"),
    ],
)
def test_age_decides_for_some_kinds_and_number_for_the_others(case: tuple[str, float, str, str]) -> None:
    kind, days, *expected = case
    assert _reasons(_item(kind, "k", days)) == {"k": tuple(expected)}


def test_keeps_the_newest_and_those_in_pointers_or_the_history() -> None:
    adapter, split = _item("qlora_adapter", "a", 400), _item("heldout_split", "s", 9)
    champions = [_item("promoted_adapter", f"p{days}", days) for days in (300, 2, 301, 1, 302)]
    pointers = {"qlora_adapter__latest": "a", "promoted_adapter__champion": "p301"}

    assert _reasons(adapter, split, *champions, history=frozenset({"p300"}), **pointers) == {
        "a": ("keep", "named by latest"),
        "s": ("keep", "among the newest 2"),
        "p1": ("keep", "among the newest 2"),
        "p2": ("keep", "among the newest 2"),
        "p300": ("keep", "in the history of champions"),
        "p301": ("keep", "named by champion"),
        "p302": ("remove", "not among the newest 2"),
    }


def test_keeps_the_parents_of_a_champion() -> None:
    found = _reasons(
        _item("promoted_adapter", "p", 400, ("benchmark_gate", "g"), ("qlora_adapter", "a")),
        _item("benchmark_gate", "g", 400, ("eval_results", "e"), ("promoted_adapter", "gone")),
        _item("eval_results", "e", 400, ("generations", "answers")),
        _item("generations", "answers", 400, ("qlora_adapter", "other")),
        _item("qlora_adapter", "a", 400, ("mixed_train_set", "m")),
        _item("qlora_adapter", "other", 400),
        *(_item("mixed_train_set", f"m{n}", n) for n in (1, 2)),
        *(_item("heldout_split", f"s{n}", n) for n in (1, 2)),
        _item("mixed_train_set", "m", 400, ("heldout_split", "s")),
        _item("heldout_split", "s", 400),
        history=frozenset({"p"}),
    )

    assert found["g"] == ("keep", "promoted_adapter p depends on it")
    assert found["a"] == ("keep", "promoted_adapter p depends on it")
    assert found["e"] == ("keep", "benchmark_gate g depends on it")
    assert found["answers"] == ("keep", "eval_results e depends on it")
    assert found["m"] == ("keep", "qlora_adapter a depends on it")
    assert found["s"] == ("remove", "not among the newest 2")
    assert found["other"] == ("remove", "older than 90 days")


def test_a_removed_verdict_keeps_no_parents() -> None:
    found = _reasons(
        _item("benchmark_gate", "young", 1, ("eval_results", "e1")),
        _item("benchmark_gate", "old", 40, ("eval_results", "e1"), ("eval_results", "e2")),
        _item("eval_results", "e1", 40),
        _item("eval_results", "e2", 40),
    )

    assert {key: action for key, (action, _) in found.items()} == {
        "young": "keep",
        "old": "remove",
        "e1": "keep",
        "e2": "remove",
    }


def test_keeps_a_young_folder_without_a_manifest() -> None:
    young, old = (_item("extracted_corpus", f".work-{days}", days, is_artifact=False) for days in (1.9, 2))
    found = _reasons(young, old, *(_item("extracted_corpus", f"c{n}", n) for n in (3, 4)))

    assert found[".work-1.9"] == ("keep", "a run may still be using it")
    assert found[".work-2"] == ("remove", "no run has written to it for 2 days")
    assert found["c4"][0] == "keep"


@pytest.mark.seed_row(44, 45)
def test_the_shipped_policy_has_the_agreed_values() -> None:
    """Adapters 90 days, verdicts and figures 30."""
    policy = load_retention(RETENTION)

    assert policy.days.model_dump() == _DAYS
    assert (policy.runs, policy.newest, policy.abandoned_days) == (90, 10, 2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"newest": 0}, "newest: Input should be greater than or equal to 1"),
        ({"days": {**_DAYS, "qlora_adaptr": 9}}, "days.qlora_adaptr: unknown"),
        ({"keep": 1}, "keep: unknown"),
    ],
)
def test_names_errors_in_a_policy(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = tmp_path / "retention.yaml"
    path.write_text(yaml.safe_dump({**_POLICY.model_dump(), **change}))

    with pytest.raises(ConfigurationError, match=rf"{problem}.*Correct the file"):
        load_retention(path)


_LATER = 400 * 86_400
_SHORT_POLICY = load_retention(RETENTION).model_copy(update={"newest": 1})


def _adapter(store: ArtifactStore, weights: str) -> Artifact:
    def write(folder: Path) -> dict[str, Any]:
        trained(folder, weights)
        manifest = {**training_manifest(), "contract_digest": hashlib.sha256(weights.encode()).hexdigest()}
        (folder / TRAINING_MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        return {"training": {"name": f"lora-adapter-{weights}"}}

    return store.build("qlora_adapter", {"weights": weights}, write)[0]


def _promote(store: ArtifactStore, weights: str) -> Artifact:
    run = _adapter(store, weights).path
    return promote(scored(run, store, evaluated(run, store)), run, store, PRESENT, now=NOW).champion


def _move_clock(store: ArtifactStore, seconds: float = _LATER) -> float:
    tag = store.root / TAG
    now = max(path.stat().st_mtime for path in store.root.glob("*/*")) + seconds
    os.utime(tag, (now, now))
    return now


def _prune(store: ArtifactStore, *, apply: bool) -> RetentionPlan:
    return prune(store, _SHORT_POLICY, _move_clock(store), apply=apply, show=lambda _plan: None)


def _list_paths(store: ArtifactStore) -> set[str]:
    return {path.relative_to(store.root).as_posix() for path in store.root.rglob("*")}


def test_a_champion_and_its_parents_are_left_after_a_year(store: ArtifactStore) -> None:
    first, second = _promote(store, "first"), _promote(store, "second")
    worse = _adapter(store, "worse")
    refused = scored(worse.path, store, evaluated(worse.path, store, num_good=1))
    last = _adapter(store, "last")
    scored(last.path, store, evaluated(last.path, store))
    plan = _prune(store, apply=True)

    assert {(decision.item.kind, decision.item.key) for decision in plan.removed} == {
        ("qlora_adapter", worse.key),
        ("benchmark_gate", refused.key),
        ("eval_results", next(d.item.key for d in plan.removed if d.item.kind == "eval_results")),
    }
    assert {d.item.name for d in plan.decisions if d.item.kind == "qlora_adapter"} == {
        *("lora-adapter-first", "lora-adapter-second", "lora-adapter-worse", "lora-adapter-last")
    }
    assert find_champion(store) == second
    assert roll_back(store, now=NOW, reason="to see that it can").champion == first
    assert (store.root / "promoted_adapter" / HISTORY).is_file()
    assert not list(store.root.glob("*/.draft-*"))


@pytest.fixture
def two(store: ArtifactStore) -> ArtifactStore:
    """A store of two adapters, of which one is too old."""
    for weights in ("first", "second"):
        _adapter(store, weights)
    return store


def test_a_dry_run_removes_nothing_and_plans_the_same(two: ArtifactStore) -> None:
    store = two
    before = _list_paths(store)
    dry = _prune(store, apply=False)

    assert _list_paths(store) - before <= {"promoted_adapter", "promoted_adapter/.lock"}
    assert len(dry.removed) == 1
    assert _prune(store, apply=True) == dry
    assert _prune(store, apply=True).removed == ()


def test_removes_abandoned_folders(store: ArtifactStore) -> None:
    """Damaged ones, too, except one with a name."""
    kind = store.root / "qlora_adapter"
    (_adapter(store, "first").path / MANIFEST).unlink()
    damaged = (
        b"null",
        b"\xff\xfe",
        b'{"outputs": []}',
        b'{"outputs": {}, "training": null}',
        b'"text"',
        b"[" * 100_000,
    )
    for number, content in enumerate(damaged):
        (_adapter(store, f"damaged {number}").path / MANIFEST).write_bytes(content)
    for name in (".work-old", ".draft-old", ".work-busy", ".work-held"):
        (kind / name / "checkpoints").mkdir(parents=True)
        (kind / name / "checkpoints" / "file").write_text("12345")
    (kind / "notes").mkdir()
    now = _move_clock(store, 3 * _DAY)
    os.utime(kind / ".work-busy" / "checkpoints" / "file", (now, now))
    with hold_folder(kind / ".work-held"):
        plan = prune(store, _SHORT_POLICY, now, apply=True, show=lambda _plan: None)

    assert {(d.item.key[:5], d.item.num_bytes > 0) for d in plan.removed} >= {(".work", True), (".draf", True)}
    named = str(store.read_pointer("qlora_adapter", "latest"))
    assert {path.name for path in kind.iterdir()} == {"latest", named, "notes", ".work-busy", ".work-held"}


def test_a_run_may_remove_its_files_meanwhile(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.root / "generations" / ".work-busy" / "checkpoint").mkdir(parents=True)
    monkeypatch.setattr(Path, "lstat", lambda _path: os.lstat("gone"))

    assert [item.num_bytes for item in read_store(store).items] == [0]


def test_a_run_that_starts_after_the_plan_keeps_its_folder(store: ArtifactStore) -> None:
    _adapter(store, "first")
    works = [store.root / "qlora_adapter" / f".work-{name}" for name in ("held", "written", "old")]
    for work in works:
        work.mkdir()
    now = _move_clock(store, 3 * _DAY)
    with ExitStack() as runs:

        def begin(plan: RetentionPlan) -> None:
            assert {decision.item.path for decision in plan.removed} == {*works}
            runs.enter_context(hold_folder(works[0]))
            (works[1] / "checkpoint").touch()

        prune(store, _SHORT_POLICY, now, apply=True, show=begin)

    assert [work.exists() for work in works] == [True, True, False]


def test_a_clock_that_jumped_ahead_removes_nothing(two: ArtifactStore) -> None:
    store = two
    (store.root / "qlora_adapter" / ".work-interrupted").mkdir()
    before, now = _list_paths(store), time.time() + _LATER
    with pytest.raises(
        RefusedError, match=r"nothing was written here for 400 days.* touch .*CACHEDIR\.TAG, and run the"
    ):
        prune(store, _SHORT_POLICY, now, apply=True, show=lambda _plan: None)
    assert _list_paths(store) >= before
    os.utime(store.root / TAG, (now, now))

    assert len(prune(store, _SHORT_POLICY, now, apply=True, show=lambda _plan: None).removed) == 2


def test_reads_sizes_and_names_from_the_manifest(store: ArtifactStore) -> None:
    artifact = _adapter(store, "first")
    (item,) = read_store(store).items
    size = sum(path.stat().st_size for path in artifact.path.rglob("*") if path.is_file())

    assert (item.name, item.num_bytes, item.is_artifact) == ("lora-adapter-first", size, True)
    assert (item.key, item.parents) == (artifact.key, frozenset())


def test_rejects_a_missing_store(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="Set MENS_STORE_ROOT to the store"):
        prune(ArtifactStore(tmp_path / "none"), _SHORT_POLICY, NOW, apply=False, show=lambda _plan: None)


def test_names_a_folder_that_cannot_be_removed(two: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **options: bool) -> None:
        if not options:
            raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(ConfigurationError, match=r"Permission denied\. Let this user write to the store"):
            _prune(two, apply=True)
    (left,) = two.root.glob("qlora_adapter/.draft-*-removed")

    assert len(_prune(two, apply=True).removed) == 1
    assert not left.exists()
