"""The history that came after the champion, as Dagster sees it."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.evaluation.replay import KIND, RESULTS, ReplayResults, drift_of
from mens_pipeline.orchestration.defs import replay as defs
from mens_pipeline.orchestration.defs.replay import ReplayConfig, history_replay, keeps_up_with_the_history
from mens_pipeline.orchestration.launchers import Generator
from mens_pipeline.orchestration.resources import (
    ArtifactStoreResource,
    VoxWorkspace,
)
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.evaluation.replayed import taught_run, weekly_history
from mens_pipeline_tests.evaluation.runs import champion_in
from mens_pipeline_tests.evaluation.test_replay import _scores as scores_of
from mens_pipeline_tests.orchestration.stores import hand_over, latest_in, resources_of, store_with


def _check(store: ArtifactStoreResource, ref: Any) -> dg.AssetCheckResult:
    result = keeps_up_with_the_history(history_replay=ref, store=store)
    assert isinstance(result, dg.AssetCheckResult)
    return result


@pytest.mark.usefixtures("jobs_here")
def test_the_champion_is_asked_for_what_came_later(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the commit it is named after; figures and a chart are on the asset, and the check tells of a fall."""
    (tmp_path / "evaluation.yaml").write_text("infill_tokens: 16\n")
    monkeypatch.setattr(defs, "EVALUATION", tmp_path / "evaluation.yaml")
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    workspace = weekly_history(tmp_path)
    _, store = promoted_run(taught_run(trained, tmp_path, workspace.first), tmp_path)
    champion = champion_in(store)
    resource = ArtifactStoreResource(root=str(store.root))
    with dg.DagsterInstance.ephemeral() as instance:
        hand_over(instance, champion.ref())
        result = dg.materialize(
            [dg.AssetSpec("promoted_adapter"), history_replay],
            instance=instance,
            resources=resources_of(store.root, workspace=VoxWorkspace(root=str(workspace.root)), generator=Generator()),
            run_config=dg.RunConfig(ops={"history_replay": ReplayConfig(limit=3)}),
        )
    (made,) = result.asset_materializations_for_node("history_replay")
    replay = latest_in(store, KIND)
    results = ReplayResults.model_validate_json((replay.path / RESULTS).read_bytes())

    assert made.metadata["num_holes"].value == len(results.times) == 3
    assert "image/svg+xml" in str(made.metadata["kept_by_week"].value)
    assert "replay/ngram_exact" in made.metadata
    assert _check(resource, replay.ref()).passed
    fallen = drift_of(*2 * (scores_of([4] * 8 + [0] * 8)[0],), scores_of([4] * 8 + [0] * 8)[1])
    text = results.model_copy(update={"drift": fallen}).model_dump_json()
    ref, other = store_with(tmp_path / "other", KIND, {}, lambda folder: (folder / RESULTS).write_text(text))
    warned = _check(other, ref)
    assert not warned.passed
    assert warned.severity is dg.AssetCheckSeverity.WARN
    assert "Train again" in str(warned.metadata["hint"].value)
