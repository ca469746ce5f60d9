"""The adapter and its checks as Dagster sees them."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.models.adapter import MANIFEST, Adapter, TrainingManifest, adapter_digest
from mens_pipeline.orchestration import choices
from mens_pipeline.orchestration.defs.promotion import GateConfig
from mens_pipeline.orchestration.defs.training import (
    base_model,
    describe_adapter,
    every_kind_shown,
    loss_fell,
    only_the_adapter_changed,
    qlora_adapter,
)
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.launchers import Trainer
from mens_pipeline.orchestration.resources import ArtifactStoreResource, paths_in
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore
from mens_pipeline_tests.evaluation.runs import training_manifest
from mens_pipeline_tests.every import every
from mens_pipeline_tests.orchestration.stores import (
    artifact_in,
    build_resources,
    hand_over,
    judge,
    latest_in,
    read_failure,
    store_with,
    write_losses,
)
from mens_pipeline_tests.training.runs import FAST, pairs
from mens_pipeline_tests.training.small_folder import write_folder


@pytest.fixture
def _tiny_base(tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_TRAIN_MODEL_NAME_OR_PATH", str(tiny_base))
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))


def _materialise(root: Path, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    split = artifact_in(root, Kind.HELDOUT_SPLIT, {}, lambda folder: write_jsonl(folder / HELDOUT, pairs(1)))
    hand_over(instance, latest_in(ArtifactStore(root), Kind.MIXED_TRAIN_SET).ref(split.ref()))
    overrides = {**FAST, "num_train_epochs": 2, "save_steps": 1000}
    run_config = dg.RunConfig(ops={"qlora_adapter": {"config": {"preset": "tiny", "overrides": overrides, **config}}})
    resources = build_resources(root, trainer=Trainer(report_seconds=0.0))
    checks: list[Any] = [only_the_adapter_changed, every_kind_shown, loss_fell]
    selection: list[Any] = [dg.AssetSpec("mixed_train_set"), qlora_adapter, *checks]
    return dg.materialize(
        selection, instance=instance, resources=resources, run_config=run_config, raise_on_error=False
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the store and home of tests that share one adapter, with a train set in the store."""
    folder = tmp_path_factory.mktemp("machine")
    artifact_in(folder / "store", Kind.MIXED_TRAIN_SET, {}, lambda made: write_jsonl(made / TRAIN, pairs(64)))
    return folder


@pytest.mark.seed_row(61)
@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_base", "jobs_here")
def test_a_train_set_becomes_an_adapter_once(machine: Path) -> None:
    root = machine / "store"
    with open_instance(machine / "home") as instance:
        results = [_materialise(root, instance) for _ in range(2)]
        results.append(_materialise(root, instance, force_train=True))
        runs = instance.get_runs()
        observed = instance.fetch_observations(dg.AssetKey("qlora_adapter"), limit=100).records
    made = [result.asset_materializations_for_node("qlora_adapter")[0] for result in results]
    adapter = latest_in(ArtifactStore(root), Kind.QLORA_ADAPTER)

    assert all(result.success for result in results)
    assert {run.tags["mens/preset"] for run in runs} == {"tiny"}
    assert [entry.metadata["reused"].value for entry in made] == [False, True, False]
    assert {(entry.tags or {})["dagster/data_version"] for entry in made} == {adapter_digest(adapter.path)}
    assert (adapter.path / "adapter" / "adapter_config.json").is_file()
    assert paths_in(made[0])["adapter"] == str(adapter.path / "adapter")
    short = adapter_digest(adapter.path)[:12]
    assert {run.tags["mens/adapter"] for run in runs} == {made[0].metadata["adapter_sha256"].value} == {short}
    assert {run.tags["mens/recipe"] for run in runs} == {Adapter.open(adapter.path).manifest.recipe_name}
    assert {check.check_name: check.passed for check in results[0].get_asset_check_evaluations()} == {
        "only_the_adapter_changed": True,
        "every_kind_shown": True,
        "loss_fell": True,
    }
    assert observed
    assert observed[0].asset_observation is not None
    assert "train/loss" in observed[0].asset_observation.metadata
    assert not list((root / Kind.QLORA_ADAPTER).glob(".work-*"))


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_base", "jobs_here")
def test_an_adapter_is_trained_further(machine: Path) -> None:
    root = machine / "store"
    with open_instance(machine / "home") as instance:
        results = [
            _materialise(root, instance),
            _materialise(root, instance, more_minutes=[60.0]),
            _materialise(root, instance, more_minutes=[60.0]),
            _materialise(root, instance, more_minutes=[0.0]),
        ]
    shown = [result.asset_materializations_for_node("qlora_adapter")[0] for result in results[:3]]
    made, store = [each.metadata for each in shown], ArtifactStore(root)
    first, second = (store.holding(Path(paths_in(each)["adapter"]))[0] for each in shown[:2])

    assert [entry["reused"].value for entry in made[1:]] == [False, True]  # the first may be from the previous test
    steps = first.manifest["training"]["result"]["num_steps"]
    assert [entry["num_updates_before"].value for entry in made] == ["0", str(steps), str(steps)]
    assert {parent.key for parent in second.parents if parent.kind == Kind.QLORA_ADAPTER} == {first.key}
    assert second.manifest["training"]["recipe_origins"]["max_minutes"] == "more"
    assert not results[3].success


@pytest.mark.seed_row(61)
@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_base", "jobs_here")
def test_too_few_rows_do_not_train(tmp_path: Path) -> None:
    artifact_in(tmp_path / "store", Kind.MIXED_TRAIN_SET, {}, lambda folder: write_jsonl(folder / TRAIN, pairs(49)))
    with open_instance(tmp_path / "home") as instance:
        result = _materialise(tmp_path / "store", instance)

    assert not result.success
    assert "49 training rows, 50 needed" in read_failure(result)


@pytest.mark.usefixtures("_tiny_base")
def test_a_limit_that_no_completion_fits_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = tmp_path / "evaluation.yaml"
    limits.write_text("max_new_tokens: 2\n")
    monkeypatch.setattr(choices, "EVALUATION", limits)
    root = tmp_path / "store"
    artifact_in(root, Kind.MIXED_TRAIN_SET, {}, lambda folder: write_jsonl(folder / TRAIN, pairs(64)))
    with open_instance(tmp_path / "home") as instance:
        result = _materialise(root, instance)

    assert "no completion fits the limit. Raise max_new_tokens" in read_failure(result)
    assert not [path for path in (root / Kind.QLORA_ADAPTER).glob(".work-*/*") if path.suffix == ".log"]


@pytest.mark.parametrize(
    ("environment", "config", "message"),
    [
        ({"VOX_EVAL_POLICY": "typo"}, {}, "policy typo: not in config/gates.yaml"),
        ({}, {"benchmark_gate": {"benchmark_min_pass_rate": 80.0}}, "benchmark_min_pass_rate is 80, expected at least"),
        ({}, {"qlora_adapter": {"native_train": False}}, "Run: mens train --backend qlora"),
    ],
)
def test_a_wrong_setting_is_refused_before_training(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    config: dict[str, dict[str, Any]],
    message: str,
) -> None:
    """Even settings that are needed only after training; there is no train set here."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ops = {asset: {"config": values} for asset, values in config.items()}
    with dg.DagsterInstance.ephemeral() as instance:
        hand_over(instance, ArtifactRef(Kind.MIXED_TRAIN_SET, "0" * 64))
        result = dg.materialize(
            [dg.AssetSpec("mixed_train_set"), qlora_adapter, _gate],
            instance=instance,
            resources=build_resources(tmp_path, trainer=Trainer()),
            run_config={"ops": ops},
            raise_on_error=False,
        )
    (failure,) = result.get_step_failure_events()

    assert failure.step_key == "qlora_adapter"
    assert message in str(failure.step_failure_data.error)


@dg.asset(name="benchmark_gate", deps=[qlora_adapter])
def _gate(config: GateConfig) -> None:
    assert config is not None


def test_the_base_is_named_by_the_preset_of_the_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = write_folder(tmp_path / "base")
    presets = tmp_path / "presets.yaml"
    presets.write_text(f"tiny:\n  about: A base in a folder.\n  model_name_or_path: {base}\n")
    monkeypatch.setattr(choices, "PRESETS", presets)
    with dg.DagsterInstance.ephemeral() as instance:
        hand_over(instance, ArtifactRef(Kind.MIXED_TRAIN_SET, "0" * 64))
        result = dg.materialize(
            [dg.AssetSpec("mixed_train_set"), base_model, qlora_adapter],
            instance=instance,
            resources=build_resources(tmp_path, trainer=Trainer()),
            run_config={"ops": {"qlora_adapter": {"config": {"preset": "tiny"}}}},
            raise_on_error=False,
        )
    (made,) = result.asset_materializations_for_node("base_model")

    assert made.metadata["name"].value == str(base)


def _build_run(root: Path, losses: list[float], **result: Any) -> tuple[ArtifactRef, ArtifactStoreResource]:
    def write(folder: Path) -> None:
        write_losses(folder, losses=losses)
        manifest = training_manifest()
        manifest["result"] |= result
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")

    return store_with(root, Kind.QLORA_ADAPTER, {}, write)


@every("case", [(28, 28, True), (27, 28, False), (0, 0, False)])
def test_an_unchanged_adapter_is_refused(tmp_path: Path, case: tuple[int, int, bool]) -> None:
    changed, matrices, passed = case
    counts = {"num_changed_matrices": changed, "num_adapter_matrices": matrices, "frozen_sha256": "0"}

    assert judge(only_the_adapter_changed, *_build_run(tmp_path / str(changed), [1.0], **counts)).passed is passed


@pytest.mark.seed_row(52, 60)
@pytest.mark.parametrize(
    ("left", "severity"),
    [
        ({}, None),
        ({"combination": {"rows": 5}}, dg.AssetCheckSeverity.WARN),
        ({"combination": {"rows": 5}, "telemetry": {"rows": 372}}, dg.AssetCheckSeverity.ERROR),
        ({"accepted": {"rows": 0, "rows_too_long": 1}}, dg.AssetCheckSeverity.ERROR),
        ({"docs_qa": {"rows": 12}}, dg.AssetCheckSeverity.ERROR),
        ({"docs_qa": {}}, None),
    ],
)
def test_a_kind_that_was_never_shown_is_reported(
    tmp_path: Path, left: dict[str, dict[str, int]], severity: dg.AssetCheckSeverity | None
) -> None:
    none = {"tokens_shown": 0, "share": 0.0, "epochs": 0.0}
    kinds = {"task": {"rows": 9, "tokens_shown": 90, "share": 1.0, "epochs": 1.0}}
    kinds |= {kind: none | rows for kind, rows in left.items()}
    adapter, store = _build_run(tmp_path, [1.0], kinds=kinds)
    result = judge(every_kind_shown, adapter, store)
    path = store.artifact(adapter).path
    shown = describe_adapter(Adapter(path, "ab" * 32, TrainingManifest.read(path / MANIFEST)))["never_shown"]

    assert result.passed is (severity is None)
    assert severity in {None, result.severity}
    assert shown == ", ".join(f"{kind} ({sum(rows.values())} rows)" for kind, rows in sorted(left.items()) if rows)
    assert {kind: value.value for kind, value in result.metadata.items()} == {
        kind: sum(rows.values()) for kind, rows in left.items() if rows
    }


@every("case", [([4, 3, 2, 1], True), ([1, 2, 3, 4], False), ([1.0], False)])
def test_a_loss_that_does_not_fall_is_a_warning(tmp_path: Path, case: tuple[list[float], bool]) -> None:
    losses, passed = case
    result = judge(loss_fell, *_build_run(tmp_path / str(losses), [loss / 3 for loss in losses]))

    assert (result.passed, result.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert result.metadata["last_quarter"].value == round(losses[-1] / 3, 4)
