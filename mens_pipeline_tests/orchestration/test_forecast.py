"""The plan of a run on this machine: what lies in the store, what a probe measures, what was planned before."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.orchestration.estimate import CORPUS, EVALUATION, TRAINING
from mens_pipeline.orchestration.forecast import Asked, Forecast, base_by_name, look_ahead
from mens_pipeline.orchestration.planned import add_plan, read_plans
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_jsonl
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
    heldout = store.build(SPLIT, {}, lambda folder: {"n": write_jsonl(folder / HELDOUT, pairs(66)[60:])})[0]
    store.build(MIXED, {}, lambda folder: {"n": write_jsonl(folder / TRAIN, pairs(60))}, (heldout,))
    return store


def _plan(launch: Any = do_here, **asked: Any) -> Forecast:
    wanted = Asked({"preset": "tiny"}, {}, **asked)
    return look_ahead(wanted, load_settings(), _DEVICE, launch, lambda _line: None)


def test_what_is_here_is_measured_and_nothing_is_kept(store: ArtifactStore) -> None:
    """Fifteen steps of four rows, six prompts; neither a run nor a plan is left."""
    found = _plan()
    stages = {stage.name: stage for stage in found.stages}

    assert found.is_measured
    assert stages[TRAINING].does.startswith("15 steps, ")
    assert stages[EVALUATION].does.startswith("6 held-out and 0 benchmark prompts")
    assert (stages[CORPUS].basis, stages[TRAINING].basis) == ("estimated", "measured")
    assert found.record is None
    assert sorted(path.name for path in store.root.iterdir() if path.is_dir()) == [SPLIT, MIXED]
    assert read_plans(store.root) == ()


def test_the_plan_of_a_run_is_kept_and_taken_up(store: ArtifactStore) -> None:
    """The same minutes on the same data: nothing is measured again, and what was decided stands."""

    def refuse(_job: Path) -> int:
        raise AssertionError("measured again")

    first = _plan(minutes=10, corpus=5.0)
    second = _plan(refuse, minutes=10, corpus=5.0)

    assert first.record is not None
    assert second.record == first.record
    assert read_plans(store.root) == (first.record,)
    assert first.stages[0].basis == "done"
    assert first.record.dial.suite.heldout_tasks == 6
    assert "6 held-out prompts are too few to promote: the policy asks for 50" in first.note
    assert first.seconds < 600, "four passes over sixty rows are all there is"


def test_what_evaluations_took_corrects_the_next_plan(store: ArtifactStore) -> None:
    """Three times as long as was planned, of other minutes on this machine."""
    first = _plan(minutes=10, corpus=5.0).record
    assert first is not None
    add_plan(store.root, first.model_copy(update={"actual": {EVALUATION: 3 * first.planned[EVALUATION]}}))
    second = _plan(minutes=11, corpus=5.0).record

    assert second is not None
    assert second.ratios[EVALUATION] == pytest.approx(3)
    assert second.dial.max_minutes < first.dial.max_minutes + 1


def test_a_base_whose_sizes_nobody_knows_is_refused() -> None:
    """The message says how it is fetched."""
    with pytest.raises(RefusedError, match=r"base model org/x: not on this machine.* mens train --dry-run --model"):
        base_by_name("org/x")
