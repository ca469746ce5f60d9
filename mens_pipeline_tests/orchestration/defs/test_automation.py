"""When a run of the whole graph trains, and when it does not."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.definitions import defs
from mens_pipeline.orchestration.asset import read_reason
from mens_pipeline.settings import GATE_POLICY
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore
from mens_pipeline_tests.orchestration.stores import hand_over
from mens_pipeline_tests.training.runs import FAST, pairs
from mens_pipeline_tests.training.tiny_base import write_tiny_base


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """An empty store, and a base of two layers."""
    monkeypatch.setenv("VOX_BACKEND", "cpu")
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("MENS_TRAIN_MODEL_NAME_OR_PATH", str(write_tiny_base(tmp_path / "base")))
    return ArtifactStore(tmp_path / "store")


def _split(store: ArtifactStore, number: int) -> ArtifactRef:
    *rows, heldout = pairs(number + 1)

    def write(folder: Path) -> dict[str, Any]:
        write_jsonl(folder / HELDOUT, [heldout])
        return {"n": write_jsonl(folder / "pairs.jsonl", rows)}

    return store.build(Kind.HELDOUT_SPLIT, {"n": number}, write)[0].ref()


def _run(keys: tuple[str, ...], run_config: dict[str, Any], *handed: ArtifactRef) -> dg.ExecuteInProcessResult:
    job = defs().resolve_job_def("whole_graph")
    selection = [dg.AssetKey(key) for key in keys]
    with dg.DagsterInstance.ephemeral() as instance:
        for ref in handed:
            hand_over(instance, ref)
        return job.execute_in_process(
            instance=instance, asset_selection=selection, run_config={"ops": run_config}, raise_on_error=False
        )


def _train(split: ArtifactRef, **training: Any) -> dg.ExecuteInProcessResult:
    overrides = {**FAST, "max_steps": 2}
    config = {"preset": "tiny", "overrides": overrides, **training}
    return _run(("mixed_train_set", "base_model", "qlora_adapter"), {"qlora_adapter": {"config": config}}, split)


def _is_reused(result: dg.ExecuteInProcessResult) -> bool:
    (made,) = result.asset_materializations_for_node("qlora_adapter")
    return bool(made.metadata["reused"].value)


def _events(result: dg.ExecuteInProcessResult, step: str) -> list[str]:
    return [event.event_type_value for event in result.all_events if event.step_key == step]


def _reasons(result: dg.ExecuteInProcessResult) -> list[str]:
    failures = (event for event in result.all_events if event.event_type_value == "STEP_FAILURE")
    return [read_reason(failure.step_failure_data.error) for failure in failures if failure.step_failure_data.error]


@pytest.mark.seed_row(72, 75)
@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_an_unchanged_corpus_is_not_trained_again(store: ArtifactStore) -> None:
    first, second = _split(store, 60), _split(store, 61)
    results = [_train(first), _train(first), _train(first, force_train=True), _train(second), _train(second)]

    assert all(result.success for result in results), _reasons(results[0])
    assert [_is_reused(result) for result in results] == [False, True, False, False, True]


@pytest.mark.seed_row(76)
def test_too_few_pairs_fail_the_run_before_training(store: ArtifactStore) -> None:
    result = _train(_split(store, 49))
    (check,) = (check for check in result.get_asset_check_evaluations() if check.check_name == "enough_pairs")

    assert not result.success
    assert not check.passed
    assert (check.metadata["measured"].value, check.metadata["required"].value) == (49, 50)
    assert check.metadata["set_by"].value == f"min_pairs in {GATE_POLICY}"
    assert "STEP_START" not in _events(result, "qlora_adapter")
    assert any("enough_pairs" in reason for reason in _reasons(result))


@pytest.mark.seed_row(73)
def test_other_trainers_are_refused(store: ArtifactStore) -> None:
    result = _train(_split(store, 60), native_train=False)

    assert not result.success
    (reason,) = _reasons(result)
    assert reason.startswith("native_train is false, ")
    assert reason.endswith("Run: mens train --backend qlora --data-dir DIR --output-dir DIR --preset auto")


@pytest.mark.usefixtures("store")
def test_a_full_extraction_is_a_choice_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.vox").write_text("fn a() { }\n")
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(tmp_path / "workspace"))
    made: list[dg.AssetMaterialization] = []
    for full in (False, False, True):
        result = _run(("workspace_snapshot", "extracted_corpus"), {"extracted_corpus": {"config": {"full": full}}})
        made += result.asset_materializations_for_node("extracted_corpus")

    assert [(m.metadata["reused"].value, m.metadata["files_extracted"].value) for m in made] == [
        (False, 1),
        (True, 0),
        (False, 1),
    ]
    assert len({m.tags["dagster/data_version"] for m in made if m.tags}) == 1
    assert made[2].metadata["differs_from_before"].value is False
