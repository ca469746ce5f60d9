"""The model from scratch and its checks as Dagster sees them."""

from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.orchestration.defs.scratch import (
    ScratchTrainConfig,
    scratch_loss_fell,
    scratch_model,
    scratch_parameters_as_declared,
)
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.launchers import Trainer
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.scratch.recipe import ScratchConfig
from mens_pipeline.scratch.run import LANE, ScratchManifest, ScratchResult
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore
from mens_pipeline_tests.every import every
from mens_pipeline_tests.orchestration.stores import (
    artifact_in,
    build_resources,
    hand_over,
    judge,
    latest_in,
    store_with,
    write_losses,
)
from mens_pipeline_tests.scratch.runs import FAST
from mens_pipeline_tests.training.runs import pairs

_CHECKED: list[Any] = [
    dg.AssetSpec("mixed_train_set"),
    scratch_model,
    scratch_loss_fell,
    scratch_parameters_as_declared,
]


def _materialise(root: Path, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    hand_over(instance, latest_in(ArtifactStore(root), Kind.MIXED_TRAIN_SET).ref())
    overrides = {name: value for name, value in FAST.items() if name != "config"}
    overrides |= {"num_train_epochs": 2, "save_steps": 1000}
    run_config = dg.RunConfig(ops={"scratch_model": {"config": {"overrides": overrides} | config}})
    resources = build_resources(root, trainer=Trainer(report_seconds=0.0))
    return dg.materialize(_CHECKED, instance=instance, resources=resources, run_config=run_config, raise_on_error=False)


@pytest.mark.nightly
def test_a_train_set_becomes_a_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    monkeypatch.setenv("VOX_BACKEND", "cpu")
    root = tmp_path / "store"
    artifact_in(root, Kind.MIXED_TRAIN_SET, {}, lambda folder: write_jsonl(folder / TRAIN, pairs(64)))
    with open_instance(tmp_path / "home") as instance:
        results = [_materialise(root, instance), _materialise(root, instance)]
        request.getfixturevalue("jobs_here")
        results.append(_materialise(root, instance, force_train=True))
        observed = instance.fetch_observations(dg.AssetKey("scratch_model"), limit=100).records
    made = [result.asset_materializations_for_node("scratch_model")[0] for result in results]
    model = latest_in(ArtifactStore(root), Kind.SCRATCH_MODEL)

    assert all(result.success for result in results)
    assert [entry.metadata["reused"].value for entry in made] == [False, True, False]
    assert len({entry.tags["dagster/data_version"] for entry in made if entry.tags}) == 1
    assert made[0].metadata["num_parameters"].value == "892,928"
    assert "data:image/svg+xml" in str(made[0].metadata["curve"].value)
    assert {check.check_name: check.passed for check in results[0].get_asset_check_evaluations()} == {
        "scratch_loss_fell": True,
        "scratch_parameters_as_declared": True,
    }
    assert model.manifest["training"]["vox_backend"] == "cpu"
    assert (model.path / "model" / "model.safetensors").is_file()
    assert observed
    assert not list((root / Kind.SCRATCH_MODEL).glob(".work-*"))


@pytest.mark.parametrize("config", [{"config": "huge"}, {"overrides": {"lerning_rate": 1}}])
def test_an_unknown_choice_starts_no_run(tmp_path: Path, config: dict[str, Any]) -> None:
    artifact_in(tmp_path, Kind.MIXED_TRAIN_SET, {}, lambda folder: write_jsonl(folder / TRAIN, pairs(64)))
    with (
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(dg.DagsterInvalidConfigError, match=r"'small'|learning_rate\?: Float"),
    ):
        _materialise(tmp_path, instance, **config)


def test_the_size_follows_the_device_by_default() -> None:
    assert ScratchTrainConfig().config == "auto"


def _build_run(root: Path, losses: list[float], **training: Any) -> tuple[ArtifactRef, ArtifactStoreResource]:
    return store_with(
        root, Kind.SCRATCH_MODEL, {"training": _manifest() | training}, partial(write_losses, losses=losses)
    )


def _manifest() -> dict[str, Any]:
    counts = dict.fromkeys(("num_rows", "num_train", "longest", "num_steps", "trained_tokens", "num_parameters"), 1)
    result = ScratchResult(
        **counts, skipped={}, seconds=1.0, train_loss=1.0, validation_loss=None, model_sha256="0" * 64
    )
    return ScratchManifest(
        lane=LANE,
        name="scratch-model",
        config=ScratchConfig.SMALL,
        num_parameters=1,
        recipe={},
        contract_digest="0" * 64,
        train_sha256="0" * 64,
        base_sha256=None,
        model_sha256="0" * 64,
        result=result,
    ).as_json()


@every("case", [([4, 3, 2, 1], True), ([1, 2, 3, 4], False), ([1.0], False)])
def test_a_loss_that_does_not_fall_is_a_warning(tmp_path: Path, case: tuple[list[float], bool]) -> None:
    losses, passed = case
    result = judge(scratch_loss_fell, *_build_run(tmp_path / str(losses), losses))

    assert (result.passed, result.severity) == (passed, dg.AssetCheckSeverity.WARN)


@every("case", [("default", 38_227_968, True), ("small", 892_928, True), ("default", 892_928, False)])
def test_a_model_of_another_size_is_refused(tmp_path: Path, case: tuple[str, int, bool]) -> None:
    config, found, passed = case
    made = _build_run(tmp_path / f"{case}", [1.0], config=config, num_parameters=found)

    assert judge(scratch_parameters_as_declared, *made).passed is passed
