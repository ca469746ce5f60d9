"""The job that keeps the store from growing for ever."""

import os
import shutil
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.definitions import defs
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore

_OLD = 1_000_000_000


@pytest.fixture
def artifacts(tmp_path: Path) -> list[Artifact]:
    """Two adapters, both made long ago; `latest` names the second."""
    store = ArtifactStore(tmp_path / "store")
    made = [store.build("qlora_adapter", {"n": n}, lambda _folder: {})[0] for n in range(2)]
    for artifact in made:
        os.utime(artifact.path / MANIFEST, (_OLD, _OLD))
    return made


def _run(root: Path, run_config: dict[str, object]) -> dict[str, dg.MetadataValue]:
    job = defs().resolve_job_def("maintenance")
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"store": ArtifactStoreResource(root=str(root))}
        result = job.execute_in_process(instance=instance, resources=resources, run_config=run_config)
    return _read_output(result, "store_retention")


def _read_output(result: dg.ExecuteInProcessResult, step: str) -> dict[str, dg.MetadataValue]:
    done = (event for event in result.all_node_events if event.is_successful_output and event.step_key == step)
    (metadata,) = (dict(event.step_output_data.metadata) for event in done)
    return metadata


@pytest.mark.parametrize("apply", [False, True])
def test_the_plan_is_shown_and_applied_only_on_request(
    tmp_path: Path, artifacts: list[Artifact], *, apply: bool
) -> None:
    first, second = artifacts
    config: dict[str, object] = {"ops": {"store_retention": {"config": {"apply": True}}}} if apply else {}
    metadata = _run(tmp_path / "store", config)
    plan = metadata["plan"]

    assert isinstance(plan, dg.TableMetadataValue)
    rows = {row.data["key"]: (row.data["action"], row.data["reason"]) for row in plan.records}
    assert rows == {first.key[:12]: ("remove", "older than 90 days"), second.key[:12]: ("keep", "named by latest")}
    assert (metadata["applied"].value, metadata["num_removed"].value, metadata["num_kept"].value) == (apply, 1, 1)
    assert (first.path.exists(), second.path.exists()) == (not apply, True)


@dg.asset
def _kept() -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult()


@dg.asset
def _made_again() -> None:
    """Made by every run."""


@dg.asset_check(asset=_made_again)
def _judged() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["one", "two"]))
def _partitioned_asset() -> None:
    """Made for each recipe by a separate run."""


@dg.asset
def _wiped() -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult()


@dg.op
def _look(context: dg.OpExecutionContext) -> None:
    context.log_event(dg.AssetObservation("looked_at"))


@dg.job
def _looking() -> None:
    _look()


@dg.asset
def _failing() -> None:
    raise ValueError


def _history(instance: dg.DagsterInstance) -> tuple[set[str], set[str]]:
    def run(*selection: Any, partition: str | None = None) -> str:
        return dg.materialize(selection, instance=instance, partition_key=partition, raise_on_error=False).run_id

    repeated = run(_made_again, _judged)
    wiped = run(_wiped)
    instance.wipe_assets([_wiped.key])
    once = run(_kept)
    former = run(_partitioned_asset, partition="one")
    recipes = {run(_partitioned_asset, partition="two"), run(_partitioned_asset, partition="one")}
    looked = _looking.execute_in_process(instance=instance).run_id
    scored = run(_made_again, _judged)
    failed = run(_failing)
    last = run(_made_again)
    return {repeated, wiped, former, failed}, {once, looked, scored, last} | recipes


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str], set[str]]:
    """A home, its runs to remove and its runs to keep once they are old; tests copy it."""
    home = tmp_path_factory.mktemp("history") / "home"
    with open_instance(home) as instance:
        return home, *_history(instance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days_later", "apply", "jumped"), [(89, True, False), (91, False, False), (91, True, False), (91, True, True)]
)
def test_old_runs_are_removed_unless_they_hold_a_latest_event(  # noqa: PLR0913 - fixtures and columns
    history: tuple[Path, set[str], set[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    days_later: int,
    *,
    apply: bool,
    jumped: bool,
) -> None:
    """After 90 days, with their events and files, but never the current run; a dry run only lists them.

    A clock that jumped ahead makes all runs old, and removes none.
    """
    original, goes, remain = history
    home, then = shutil.copytree(original, tmp_path / "home", symlinks=True), time.time() + days_later * 86_400
    stays = {*remain}
    (tmp_path / "store").mkdir()
    job = defs().resolve_job_def("maintenance")
    monkeypatch.setattr("mens_pipeline.orchestration.defs.maintenance.time", SimpleNamespace(time=lambda: then))
    with open_instance(home) as instance:
        old = goes | stays
        if not jumped:
            stays.add(young := dg.materialize([_failing], instance=instance, raise_on_error=False).run_id)
            with closing(sqlite3.connect(home / "history" / "runs.db")) as runs, runs:
                created = datetime.fromtimestamp(then, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
                runs.execute("UPDATE runs SET create_timestamp = ? WHERE run_id = ?", (created, young))
        result = job.execute_in_process(
            instance=instance,
            resources={"store": ArtifactStoreResource(root=str(tmp_path / "store"))},
            run_config={"ops": {"run_retention": {"config": {"apply": apply}}}},
        )
        left = {run.run_id for run in instance.get_runs()}
        seen = instance.get_latest_materialization_event(_kept.key)
    plan = _read_plan(result)
    logs = {path.name for path in (home / "storage").iterdir()}
    databases = {path.name.split(".")[0] for path in (home / "history" / "runs").iterdir()}
    is_old = days_later > 90 and not jumped
    expected = stays if apply and is_old else goes | stays

    assert plan == ({run: "remove" if run in goes else "keep" for run in old} if is_old else {})
    assert left == expected | {result.run_id}
    assert logs & (goes | stays) == databases & (goes | stays) == expected
    assert seen is not None


def _read_plan(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    plan = _read_output(result, "run_retention")["plan"]
    assert isinstance(plan, dg.TableMetadataValue)
    return {str(row.data["run"]): str(row.data["action"]) for row in plan.records}
