"""Merging and hand-off as Dagster sees them: stopped by a check, or by the code if no check runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.definitions import defs
from mens_pipeline.delivery.merge import MERGE_REPORT, report_in
from mens_pipeline.delivery.serving_handoff import HANDOFF, read_details
from mens_pipeline.orchestration.defs.delivery import (
    handed_files_as_written,
    merged_model,
    serving_handoff,
    writes_what_was_evaluated,
)
from mens_pipeline.orchestration.launchers import JobLauncher
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.orchestration.stores import build_resources, judge, latest_in, read_failure

_CHECKS = [writes_what_was_evaluated, handed_files_as_written]


@pytest.fixture(scope="module")
def champion(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    """A store with a champion that can be merged."""
    return promoted_run(trained, tmp_path_factory.mktemp("delivery"))[1]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def _run(
    root: Path, instance: dg.DagsterInstance, *selection: str, config: dict[str, Any] | None = None
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [merged_model, serving_handoff, *_CHECKS],
        instance=instance,
        resources=build_resources(root, merger=JobLauncher(report_seconds=0.0)),
        selection=list(selection) or None,
        run_config={"ops": config or {}},
        raise_on_error=False,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_a_champion_is_merged_and_handed_off(
    champion: ArtifactStore, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    first, second = (_run(champion.root, instance) for _ in range(2))
    merged = latest_in(champion, Kind.MERGED_MODEL)
    handed = latest_in(champion, Kind.SERVING_HANDOFF)

    assert first.success
    assert second.success
    assert [check.passed for check in first.get_asset_check_evaluations()] == [True, True]
    assert read_details(handed.path / HANDOFF).is_promoted
    reused = [
        run.asset_materializations_for_node("merged_model")[0].metadata["reused"].value for run in (first, second)
    ]
    assert reused == [False, True]
    (shown,) = first.asset_materializations_for_node("serving_handoff")
    assert "40/40 (100.0 %" in str(shown.metadata["card"].value)
    assert shown.metadata["commit"].value == "not published"

    named = read_details(handed.path / HANDOFF).files[0]
    path, resource = handed.path / named.path, ArtifactStoreResource(root=str(champion.root))
    as_written = path.read_bytes()
    for spoil in (lambda: path.write_bytes(as_written + b" "), path.unlink):
        spoil()
        check = judge(handed_files_as_written, handed.ref(), resource)
        assert not check.passed
        assert check.metadata["changed"].value == named.path
        path.write_bytes(as_written)

    worse = report_in(merged.path).model_copy(update={"passed": False, "reasons": ("Other tokens.",)})
    (merged.path / MERGE_REPORT).write_text(worse.model_dump_json())
    stopped, alone = _run(champion.root, instance), _run(champion.root, instance, "serving_handoff")

    assert not stopped.success
    assert [check.passed for check in stopped.get_asset_check_evaluations()] == [False]
    assert not stopped.asset_materializations_for_node("serving_handoff")
    assert "differs from the evaluated model. Other tokens." in read_failure(alone, "serving_handoff")


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
def test_publishing_needs_a_repository_and_a_token(
    champion: ArtifactStore, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off until MENS_HUB_REPO is set; then it needs a token, even before the merge, and for the hand-off alone."""
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MENS_HUB_REPO"):
        monkeypatch.delenv(name, raising=False)
    merged = {"merged_model": {"config": {"num_prompts": 1}}}
    asked = _run(champion.root, instance, config={**merged, "serving_handoff": {"config": {"publish": True}}})
    monkeypatch.setenv("MENS_HUB_REPO", "vox/coder")
    tokenless = _run(champion.root, instance, config=merged)
    misnamed = _run(champion.root, instance, config={"serving_handoff": {"config": {"revision": "a b"}}})
    off = _run(champion.root, instance, config={**merged, "serving_handoff": {"config": {"publish": False}}})
    only_merged = _run(champion.root, instance, "merged_model", config=merged)
    alone = _run(champion.root, instance, "serving_handoff")

    assert "set MENS_HUB_REPO to OWNER/NAME" in read_failure(asked, "merged_model")
    assert "HF_TOKEN: not set" in read_failure(tokenless, "merged_model")
    assert "not a branch name" in read_failure(misnamed, "merged_model")
    assert off.success
    assert only_merged.success
    assert "HF_TOKEN: not set" in read_failure(alone, "serving_handoff")


def test_missing_inputs_are_named(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    missing = {"merged_model": "no champion. Promote an adapter", "serving_handoff": "merged_model: not materialised"}
    for asset, said in missing.items():
        assert said in read_failure(_run(tmp_path / "store", instance, asset), asset)


def test_a_new_champion_starts_the_delivery(tmp_path: Path, champion: ArtifactStore) -> None:
    sensor = defs().get_repository_def().get_sensor_def("champion_changed")
    empty, cursor, started = ArtifactStore(tmp_path / "empty"), None, []
    for store in (empty, champion, champion):
        with dg.build_sensor_context(cursor=cursor, resources=build_resources(store.root)) as context:
            data = sensor.evaluate_tick(context)
        cursor = data.cursor
        started.append(data.skip_message or len(data.run_requests or ()))

    key = champion_key(champion) or ""
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert started == ["no adapter has been promoted yet", 1, f"the champion is still {key[:12]}"]
