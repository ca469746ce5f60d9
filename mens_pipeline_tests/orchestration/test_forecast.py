"""The plan of a run on this machine: what lies in the store, what a probe measures, what was planned before."""

from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.orchestration.estimate import CORPUS, EVALUATION, TRAINING, Dial, Stage, SuiteSize
from mens_pipeline.orchestration.forecast import (
    PLANS,
    Plan,
    Planner,
    actual_seconds,
    add_plan,
    correction_in,
    read_plans,
)
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


def _plan(launch: Any = do_here, minutes: float | None = None, made_in: float | None = None) -> Plan:
    choice: dict[str, str] = {"preset": "tiny"}
    planner = Planner(
        load_settings(), _DEVICE, launch, lambda _line: None, choice, {}, minutes, perf_counter(), made_in
    )
    return planner.plan()[0]


def test_what_is_here_is_measured_and_nothing_is_kept(store: ArtifactStore) -> None:
    """Fifteen steps of four rows, six prompts; neither a run nor a plan is left."""
    found = _plan()
    stages = {stage.name: stage for stage in found.stages}

    assert found.is_measured
    assert stages[TRAINING].does.startswith("15 steps, ")
    assert stages[EVALUATION].does.startswith("6 held-out and 0 benchmark prompts")
    assert (stages[CORPUS].basis, stages[TRAINING].basis) == ("estimated", "measured")
    assert found.dial is None
    assert sorted(path.name for path in store.root.iterdir() if path.is_dir()) == [SPLIT, MIXED]
    assert read_plans(store.root) == ()


def test_the_plan_of_a_run_is_kept_and_taken_up(store: ArtifactStore) -> None:
    """The same minutes on the same data: nothing is measured again, and what was decided stands."""

    def refuse(_job: Path) -> int:
        raise AssertionError("measured again")

    first = _plan(minutes=10, made_in=5.0)
    second = _plan(refuse, minutes=10, made_in=5.0)

    assert second == first
    assert read_plans(store.root) == (first,)
    assert first.stages[0].basis == "done"
    assert first.dial is not None
    assert first.dial.suite.heldout_tasks == 6
    assert "6 held-out prompts are too few to promote: the policy asks for 50" in first.note
    assert sum(first.seconds_by_stage.values()) < 600, "four passes over sixty rows are all there is"


@pytest.mark.parametrize("variable", [("MENS_TRAIN_LORA_R", "2"), ("MENS_TRAIN_SEED", "3")])
def test_another_recipe_of_the_same_name_is_planned_again(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    """What a preset, a file or a variable says may have changed since."""
    first = _plan(minutes=10, made_in=5.0)
    monkeypatch.setenv(*variable)
    second = _plan(minutes=10, made_in=5.0)

    assert read_plans(store.root) == (first, second)
    assert first.key != second.key


def test_what_evaluations_took_corrects_the_next_plan(store: ArtifactStore) -> None:
    """Three times as long as was planned, of other minutes on this machine."""
    first = _plan(minutes=10, made_in=5.0)
    add_plan(store.root, first.model_copy(update={"actual": {EVALUATION: 3 * first.seconds_by_stage[EVALUATION]}}))
    second = _plan(minutes=11, made_in=5.0)

    assert second.correction == pytest.approx(3)
    assert first.dial is not None
    assert second.dial is not None
    assert second.dial.max_minutes < first.dial.max_minutes + 1


def _make_plan(actual: float | None, before: float = 1.0) -> Plan:
    """A plan that was announced with a hundred seconds of evaluation."""
    size = SuiteSize(
        heldout_tasks=9,
        benchmark_tasks=8,
        base_tasks=7,
        few_shot_tasks=6,
        family_tasks=5,
        infill_holes=4,
        infill_lines=3,
    )
    return Plan(
        key="k",
        machine="m",
        base_sha256="a",
        dial=Dial(max_minutes=1, max_steps=2, num_train_epochs=3, suite=size),
        stages=(Stage(name=EVALUATION, does="", seconds=100, basis="measured", memory_mb=1, disk_mb=1),),
        correction=before,
        actual={} if actual is None else {EVALUATION: actual},
    )


def test_plans_are_kept(tmp_path: Path) -> None:
    """In their order; a store without any has none."""
    root = tmp_path / "store"
    assert read_plans(root) == ()
    first, second = _make_plan(None), _make_plan(90.0)
    add_plan(root, first)
    add_plan(root, second)

    assert read_plans(root) == (first, second)


@pytest.mark.parametrize(
    ("line", "problem"),
    [('{"cut o', "Delete this line"), ('{"format_version": 3}', "written by a newer version")],
    ids=["cut off", "of a newer version"],
)
def test_a_line_that_is_no_plan_is_named(line: str, problem: str, tmp_path: Path) -> None:
    """A damaged or newer line is named."""
    add_plan(tmp_path, _make_plan(None))
    with (tmp_path / PLANS).open("a") as log:
        log.write(line + "\n")

    with pytest.raises(RefusedError, match=rf"plans\.jsonl:2: .*{problem}"):
        read_plans(tmp_path)


def test_a_correction_is_the_median_of_the_last_three_runs_with_a_base() -> None:
    """Of what was modelled, so a plan that was corrected before counts by what it was before."""
    records = [_make_plan(500.0), _make_plan(120.0), _make_plan(None), _make_plan(100.0, before=1.5), _make_plan(130.0)]

    assert correction_in(records, "a") == pytest.approx(1.3)
    assert correction_in(records, "b") == 1


def test_steps_add_up_to_stages_and_reused_ones_are_left_out() -> None:
    """Checks count with what they examine, or with the gate that they lead to."""
    steps = {
        "extracted_corpus": 3.0,
        "extracted_corpus_corpus_coverage": 1.0,
        "base_model": 2.0,
        "qlora_adapter": 60.0,
        "qlora_adapter_loss_fell": 0.5,
        "eval_results": 50.0,
        "benchmark_gate": 1.0,
        "promoted_adapter": 1.0,
    }

    assert actual_seconds(steps, {}) == {"corpus": 4.0, "training": 62.0, "evaluation": 50.0, "gate": 2.5}
    assert actual_seconds(steps, {"qlora_adapter": {"reused": True}}).keys() == {"corpus", "evaluation", "gate"}
