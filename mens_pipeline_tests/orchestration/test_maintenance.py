"""The job that keeps the store from growing for ever."""

import os
from pathlib import Path

import dagster as dg
import pytest

from mens_pipeline.corpus.store import MANIFEST, Artifact, ArtifactStore
from mens_pipeline.definitions import defs
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource

_OLD = 1_000_000_000


@pytest.fixture
def artifacts(tmp_path: Path) -> list[Artifact]:
    """Two adapters, both made long ago; `latest` names the second."""
    store = ArtifactStore(tmp_path / "store")
    made = [store.built("qlora_adapter", {"n": n}, lambda _folder: {})[0] for n in range(2)]
    for artifact in made:
        os.utime(artifact.path / MANIFEST, (_OLD, _OLD))
    return made


def _run(root: Path, run_config: dict[str, object]) -> dict[str, dg.MetadataValue]:
    """The metadata of the plan."""
    job = defs().resolve_job_def("maintenance")
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"store": ArtifactStoreResource(root=str(root))}
        result = job.execute_in_process(instance=instance, resources=resources, run_config=run_config)
    (output,) = (event.step_output_data for event in result.all_node_events if event.is_successful_output)
    return dict(output.metadata)


@pytest.mark.parametrize("apply", [False, True])
def test_the_plan_is_shown_and_done_only_where_that_is_asked_for(
    tmp_path: Path, artifacts: list[Artifact], *, apply: bool
) -> None:
    """A table with a reason for each folder, the same in both cases."""
    first, second = artifacts
    config: dict[str, object] = {"ops": {"store_retention": {"config": {"apply": True}}}} if apply else {}
    metadata = _run(tmp_path / "store", config)
    plan = metadata["plan"]

    assert isinstance(plan, dg.TableMetadataValue)
    rows = {row.data["key"]: (row.data["action"], row.data["reason"]) for row in plan.records}
    assert rows == {
        first.key[:12]: ("remove", "older than 90 days"),
        second.key[:12]: ("keep", "named by latest"),
    }
    assert (metadata["applied"].value, metadata["num_removed"].value, metadata["num_kept"].value) == (apply, 1, 1)
    assert (first.path.exists(), second.path.exists()) == (not apply, True)
