"""The gate as Dagster sees it: promotion is stopped by a check, or by the code if no check runs."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.definitions import defs
from mens_pipeline.models.adapter import adapter_digest
from mens_pipeline.orchestration.asset import read_reasons, read_refusals
from mens_pipeline.orchestration.defs.promotion import benchmark_gate, gate_checks, promoted_adapter
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactHandover, ArtifactStoreResource, paths_in
from mens_pipeline.promotion import promote as promotion
from mens_pipeline.promotion.history import HISTORY, champion_key, read_history
from mens_pipeline.promotion.receipt import FAILED
from mens_pipeline.storage.documents import Documents
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.cli.invoking import invoke
from mens_pipeline_tests.evaluation.runs import champion_in, evaluated, fill_trained
from mens_pipeline_tests.orchestration.stores import (
    artifact_in,
    build_resources,
    hand_over,
    latest_in,
    read_failure,
    take_lenient_gates,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    take_lenient_gates(monkeypatch)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory, which takes a third of the time of a home."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def _build_store(root: Path, num_good: int, weights: str = "weights") -> ArtifactStore:
    store = ArtifactStore(root)
    artifact_in(
        root, Kind.HELDOUT_SPLIT, {"train": {}}, lambda folder: (folder / HELDOUT).write_text("held-out pairs\n")
    )
    adapter, _ = store.build(Kind.QLORA_ADAPTER, {"weights": weights}, lambda folder: fill_trained(folder, weights))
    evaluated(adapter.path, store, num_good)
    return store


def _run(root: Path, instance: dg.DagsterInstance, *selection: dg.AssetsDefinition) -> dg.ExecuteInProcessResult:
    _hand_over(root, instance)
    assets: list[Any] = [
        dg.AssetSpec("eval_results"),
        benchmark_gate,
        promoted_adapter,
        gate_checks,
    ]
    chosen = selection or (benchmark_gate, promoted_adapter)
    return dg.materialize(
        assets,
        instance=instance,
        resources=build_resources(root),
        selection=[asset.key for asset in chosen],
        raise_on_error=False,
    )


def _hand_over(root: Path, instance: dg.DagsterInstance) -> None:
    evaluation, adapter, split = (
        latest_in(ArtifactStore(root), kind).ref()
        for kind in (Kind.EVAL_RESULTS, Kind.QLORA_ADAPTER, Kind.HELDOUT_SPLIT)
    )
    hand_over(instance, replace(evaluation, parents=(replace(adapter, parents=(split,)),)))


def _has_promoted(result: dg.ExecuteInProcessResult) -> bool:
    return bool(result.asset_materializations_for_node("promoted_adapter"))


def test_a_good_adapter_is_promoted(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    store = _build_store(tmp_path / "store", 40)
    first, second = (_run(store.root, instance) for _ in range(2))

    assert first.success
    assert second.success
    assert [check.passed for check in first.get_asset_check_evaluations()] == [True] * 4
    changed = [
        run.asset_materializations_for_node("promoted_adapter")[0].metadata["changed"] for run in (first, second)
    ]
    assert [value.value for value in changed] == [True, False]
    assert second.asset_materializations_for_node("benchmark_gate")[0].metadata["reused"].value is True
    assert champion_key(store) is not None


@pytest.mark.seed_row(30)
@pytest.mark.parametrize("strict", [False, True])
def test_a_bad_adapter_is_not_promoted(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, *, strict: bool
) -> None:
    monkeypatch.setenv("VOX_EVAL_STRICT", str(int(strict)))
    store = _build_store(tmp_path / "store", 20)
    result = _run(store.root, instance)
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}

    assert result.success is not strict
    assert not _has_promoted(result)
    assert checks["gate_passed"].passed is checks["model_parse_rate"].passed is False
    assert checks["model_coverage"].passed
    severity = dg.AssetCheckSeverity.ERROR if strict else dg.AssetCheckSeverity.WARN
    assert checks["gate_passed"].severity is severity
    assert (latest_in(store, Kind.BENCHMARK_GATE).path / FAILED).is_file()
    assert champion_key(store) is None
    assert checks["gate_passed"].description == checks["model_parse_rate"].description == _BOTH
    if strict:
        assert "not_refused" not in checks
        assert next(read_reasons(result.get_step_failure_events(), read_refusals(instance, result.run_id))) == _BOTH
        return
    refused = checks["not_refused"]
    assert (refused.passed, refused.severity, refused.blocking) == (False, dg.AssetCheckSeverity.ERROR, False)
    assert refused.description == f"{_BOTH}: not promoted; no adapter is in use"
    assert "parse_rate: parse rate on held-out prompts 20/40" in str(refused.metadata["reasons"].value)


_BOTH = "parse rate 50.0 % measured, 70.0 % required"


def test_promotion_alone_follows_the_verdict(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    store = _build_store(tmp_path / "store", 40)
    result = _run(store.root, instance, promoted_adapter)

    assert "benchmark_gate: not materialised yet. Materialise it first" in read_failure(result, "promoted_adapter")
    _run(store.root, instance, benchmark_gate)
    assert _has_promoted(_run(store.root, instance, promoted_adapter))


def test_a_run_canceled_during_promotion_promotes_nothing(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _build_store(tmp_path / "store", 40)
    copy = promotion._copy  # noqa: SLF001 - the last step before the change

    def cancel_and_copy(source: Path, folder: Path, sha256: str | None) -> None:
        for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            instance.report_run_canceled(run)
        copy(source, folder, sha256)

    monkeypatch.setattr(promotion, "_copy", cancel_and_copy)
    result = _run(store.root, instance)

    assert not result.success
    assert champion_key(store) is None
    assert read_history(store) == ()


def test_a_signal_between_history_and_pointer_corrupts_nothing(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _build_store(tmp_path / "store", 40)
    replace_document = Documents.replace

    def replace_and_interrupt(self: Documents, kind: str, name: str, seen: bytes, content: bytes) -> None:
        replace_document(self, kind, name, seen, content)
        if name == HISTORY:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Documents, "replace", replace_and_interrupt)
    _run(store.root, instance)

    assert champion_key(store) == read_history(store)[0].key


def test_a_verdict_promotes_its_own_adapter(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    store = _build_store(tmp_path / "store", 40)
    scored = latest_in(store, Kind.QLORA_ADAPTER)
    _run(store.root, instance, benchmark_gate)
    store.build(Kind.HELDOUT_SPLIT, {"night": 2}, lambda folder: {"n": (folder / HELDOUT).write_text("other pairs\n")})
    _build_store(store.root, 20, "new")
    result = _run(store.root, instance, promoted_adapter)
    champion = champion_in(store)

    assert _has_promoted(result)
    assert champion.manifest["inputs"]["adapter_sha256"] == adapter_digest(scored.path)
    assert latest_in(store, Kind.QLORA_ADAPTER).key != scored.key


@pytest.mark.slow
def test_a_run_of_stale_assets_after_a_failed_gate_promotes_nothing(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOX_EVAL_STRICT", "1")
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    store = _build_store(tmp_path / "store", 20)
    assert not _has_promoted(_run(store.root, instance))
    downstream = ["promoted_adapter", "merged_model", "serving_handoff"]
    result = (
        defs()
        .resolve_job_def("whole_graph")
        .get_subset(asset_selection={dg.AssetKey(name) for name in downstream})
        .execute_in_process(instance=instance, raise_on_error=False)
    )
    made = [event.step_key for event in result.get_asset_materialization_events()]

    assert not result.success
    assert "The gate failed: parse_rate" in read_failure(result, "promoted_adapter")
    assert made == []
    assert champion_key(store) is None


def test_a_run_that_failed_at_the_gate_fails_there_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOX_EVAL_STRICT", "1")
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    store = _build_store(tmp_path / "store", 20)
    job = dg.reconstructable(judging_job)
    with open_instance(tmp_path / "home") as instance:
        _hand_over(store.root, instance)
        with dg.execute_job(job, instance) as first:
            options = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        with dg.execute_job(job, instance, reexecution_options=options) as again:
            steps = {event.step_key for event in again.all_events if event.is_step_start}

    assert not first.success
    assert not again.success
    assert "promoted_adapter" not in steps
    assert champion_key(store) is None


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ArtifactStore, Path]]:
    """A store whose second champion was taken out of use by hand, and the home of its instance."""
    home, root = (folder := tmp_path_factory.mktemp("rolled_back")) / "home", folder / "store"
    with pytest.MonkeyPatch.context() as patch:
        take_lenient_gates(patch)
        patch.setenv("DAGSTER_HOME", str(home))
        patch.setenv("MENS_STORE_ROOT", str(root))
        with open_instance(home) as instance:
            for weights in ("first", "second"):
                assert _has_promoted(_run(_build_store(root, 40, weights).root, instance))
        done = invoke("promote", "--rollback", "--reason", "wrong dialect")
        assert done.exit_code == 0, done.output
        yield ArtifactStore(root), home


def test_a_rollback_reaches_dagster(rolled_back: tuple[ArtifactStore, Path]) -> None:
    store, home = rolled_back
    sensor = defs().get_repository_def().get_sensor_def("champion_changed")
    with open_instance(home) as instance:
        event = instance.get_latest_materialization_event(promoted_adapter.key)
        with dg.build_sensor_context(instance=instance, resources=build_resources(store.root)) as context:
            requests = sensor.evaluate_tick(context).run_requests or ()
    shown = event.asset_materialization if event is not None else None

    assert shown is not None
    assert paths_in(shown)["champion"] == str(store.root / "promoted_adapter" / (champion_key(store) or ""))
    assert shown.metadata["changed"].value is True
    assert shown.tags == {"dagster/data_version": champion_key(store)}
    assert "wrong dialect" in str(shown.metadata["reason"].value)
    assert [*shown.metadata][:4] == ["parse rate", "resolve rate", "hidden tests", "exact lines"]
    assert shown.metadata["parse rate"].value == "40/40 (100.0 %, 95 % interval 94.0 to 100.0)"
    assert len(requests) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_withdrawn_adapter_is_a_warning_every_night(
    rolled_back: tuple[ArtifactStore, Path], monkeypatch: pytest.MonkeyPatch, *, strict: bool
) -> None:
    """An unchanged corpus gives the same adapter: it stays out of use, and a strict gate fails the run."""
    monkeypatch.setenv("VOX_EVAL_STRICT", str(int(strict)))
    store, home = rolled_back
    before = champion_key(store)
    with open_instance(home) as instance:
        night = _run(store.root, instance)
        alone = _run(store.root, instance, promoted_adapter)

    assert night.success is not strict
    assert not _has_promoted(night)
    stays = f"{read_history(store)[-1].adapter_sha256[:12]} of 20"
    said = {check.check_name: check.description or "" for check in night.get_asset_check_evaluations()}
    assert strict or said["not_refused"].startswith(f"withdrawn by a rollback: not promoted; {stays}")
    assert "withdrawn by a rollback" in read_failure(alone, "promoted_adapter")
    assert champion_key(store) == before


def test_a_rollback_needs_no_dagster(
    rolled_back: tuple[ArtifactStore, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store, _ = rolled_back
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "none"))
    assert _run_again(store)

    assert invoke("promote", "--rollback").exit_code == 0
    assert not (tmp_path / "none").exists()


def _run_again(store: ArtifactStore) -> bool:
    with dg.DagsterInstance.ephemeral() as instance:
        return _has_promoted(_run(_build_store(store.root, 40, "third").root, instance))


def judging_job() -> dg.JobDefinition:
    """The gate and the promotion, as a job that another process can load."""
    return dg.Definitions(
        assets=[dg.AssetSpec("eval_results"), benchmark_gate, promoted_adapter],
        asset_checks=[gate_checks],
        jobs=[dg.define_asset_job("judging", executor_def=dg.in_process_executor)],
        resources={"store": ArtifactStoreResource(), "io_manager": ArtifactHandover()},
    ).resolve_job_def("judging")
