"""The plan of a run on this machine, from the store, a probe, and an earlier plan."""

from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.orchestration.forecast import Planner, RunPlan
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.training.runs import FAST, pairs

_DEVICE = resolve_device(DeviceChoice.CPU)


@pytest.fixture
def store(tmp_path: Path, tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """A store with a train set of sixty rows and six held-out ones, on a machine with the tiny base."""
    store = ArtifactStore(tmp_path / "store")
    recipe = {**FAST, "model_name_or_path": tiny_base}
    variables: dict[str, Any] = {f"MENS_TRAIN_{name.upper()}": value for name, value in recipe.items()}
    places = {"MENS_STORE_ROOT": store.root, "MENS_CACHE_ROOT": tmp_path / "cache", "VOX_BENCHMARK": 0}
    for name, value in {**variables, **places, "MENS_SOURCE_ROOT": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    heldout = store.build(Kind.HELDOUT_SPLIT, {}, lambda folder: {"n": write_jsonl(folder / HELDOUT, pairs(66)[60:])})[
        0
    ]
    store.build(Kind.MIXED_TRAIN_SET, {}, lambda folder: {"n": write_jsonl(folder / TRAIN, pairs(60))}, (heldout,))
    return store


def _plan(launch: Any = do_here, minutes: float | None = None, *, is_kept: bool = False) -> RunPlan:
    choice: dict[str, str] = {"preset": "tiny"}
    planner = Planner(load_settings(), _DEVICE, launch, lambda _line: None, choice, {}, minutes, perf_counter())
    return planner.plan(is_kept=is_kept)[0]


def _refuse(_job: Path) -> int:
    raise AssertionError("measured again")


def test_a_plan_measures_this_machine_and_stores_nothing(store: ArtifactStore) -> None:
    found = _plan()
    does = {stage.name: stage.does for stage in found.stages}

    assert [*does] == ["training", "evaluation", "gate"]
    assert does["training"].startswith("15 steps, ")
    assert does["evaluation"] == "6 held-out and 0 benchmark prompts, 81 holes", "not the 500 requested"
    assert "will refuse (policy ci): 6 held-out prompts from 6 files, required 50 from 10; raise split." in found.note
    assert all(stage.seconds > 0 for stage in found.stages)
    assert found.dial is None
    assert sorted(path.name for path in store.root.iterdir() if path.is_dir()) == [
        Kind.HELDOUT_SPLIT,
        Kind.MIXED_TRAIN_SET,
    ]


def test_the_plan_of_a_run_is_stored_and_reused(store: ArtifactStore) -> None:
    first = _plan(minutes=10, is_kept=True)
    second, shown = _plan(_refuse, minutes=10, is_kept=True), _plan(_refuse, minutes=10)

    assert first == second == shown
    assert len(list((store.root / Kind.RUN_PLAN).glob("*/plan.json"))) == 1
    assert first.dial is not None
    assert first.dial.suite.heldout_tasks == 6
    assert first.note.endswith("or add programs"), "more minutes give no more prompts"
    assert sum(stage.seconds for stage in first.stages) < 600, "four passes over sixty rows are all there is"


@pytest.mark.parametrize("variable", [("MENS_TRAIN_LORA_R", "2"), ("MENS_TRAIN_SEED", "3")])
@pytest.mark.usefixtures("store")
def test_another_recipe_of_the_same_name_is_planned_again(
    monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    _plan(minutes=10, is_kept=True)
    monkeypatch.setenv(*variable)

    with pytest.raises(AssertionError, match="measured again"):
        _plan(_refuse, minutes=10, is_kept=True)


@pytest.mark.usefixtures("store")
def test_a_plan_downloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_TRAIN_MODEL_NAME_OR_PATH", "nobody/nothing")

    with pytest.raises(RefusedError, match=r"nobody/nothing: this base is not .*Download it with `mens run`"):
        _plan(_refuse)
