"""Resources that follow from the settings alone."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._config.pythonic_config.resource import get_resource_type_name

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.definitions import defs
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactStoreResource, find_executor, find_pools


def test_the_settings_choose_the_pools_of_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_NUM_WORKERS", "3")
    assert find_pools() == (Pool(3), BehaviourWorkers)

    monkeypatch.setenv("MENS_LAUNCHER", "ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"RAY_ADDRESS=127\.0\.0\.1:1: cannot join a Ray cluster"):
        find_pools()


def test_a_step_opens_one_store(tmp_path: Path) -> None:
    resource = ArtifactStoreResource(root=str(tmp_path))

    assert resource.open() is resource.open()
    assert ArtifactStoreResource(root=str(tmp_path)).open() is not resource.open()


def ending_job() -> dg.JobDefinition:
    """One asset that succeeds and one that fails, in one process."""

    @dg.asset
    def made() -> None:
        pass

    @dg.asset
    def broken() -> None:
        raise KeyError("x")

    job = dg.define_asset_job("ending", executor_def=find_executor(dg.in_process_executor))
    return dg.Definitions(assets=[made, broken], jobs=[job]).resolve_job_def("ending")


def test_a_run_ends_with_a_summary_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """On the terminal of `dg launch` and `dagster asset materialize`: Dagster's own events are below the level."""
    monkeypatch.delenv("MENS_EXECUTOR", raising=False)
    with open_instance(tmp_path) as instance, dg.execute_job(dg.reconstructable(ending_job), instance) as result:
        said = capfd.readouterr().err

    assert said.count(f" - run {result.run_id} ended: 1 steps succeeded, 1 failed\n") == 1, said


def test_resources_have_names_and_descriptions() -> None:
    found = defs().resources or {}
    names = {name: get_resource_type_name(resource) for name, resource in found.items() if name != "io_manager"}

    assert all(name.startswith("mens_pipeline.orchestration.") for name in names.values()), names
    assert not any("<" in name for name in names.values())
    assert all(found[name].description for name in names)
