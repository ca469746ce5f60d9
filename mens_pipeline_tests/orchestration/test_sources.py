"""The sources of the workspace as Dagster sees them."""

from pathlib import Path

import dagster as dg
import pytest

from mens_pipeline.definitions import defs


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace that the code location sees."""
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(tmp_path))
    return tmp_path


def _run(instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Observe the sources and run their check, and nothing behind them."""
    job = defs().resolve_job_def("train_set")
    selection = [dg.AssetKey("vox_sources")]
    return job.execute_in_process(instance=instance, asset_selection=selection, raise_on_error=False)


def _fill(root: Path, num_good: int, num_bad: int) -> None:
    for number in range(num_good):
        (root / f"good_{number}.vox").write_text(f"fn f{number}() {{ }}\n")
    for number in range(num_bad):
        (root / f"bad_{number}.vox").write_text("fn f(\n")


@pytest.mark.seed_row(67)
@pytest.mark.parametrize(
    ("num_good", "num_bad", "passed"),
    [(3, 0, True), (7, 3, True), (69, 31, False), (0, 1, False), (0, 0, False)],
    ids=["all good", "at the bar", "below the bar", "all bad", "no files"],
)
def test_parse_rate_gates(tmp_path: Path, num_good: int, num_bad: int, passed: bool) -> None:  # noqa: FBT001 - a column
    """The check passes from 70 % on, and a refusal fails the run; an empty workspace is refused."""
    _fill(tmp_path, num_good, num_bad)
    with dg.DagsterInstance.ephemeral() as instance:
        result = _run(instance)
    (evaluation,) = result.get_asset_check_evaluations()

    assert (evaluation.passed, result.success) == (passed, passed)
    assert evaluation.metadata["num_rejected"].value == num_bad


def test_a_refusal_names_the_files(tmp_path: Path) -> None:
    """The table of the check shows where to look."""
    _fill(tmp_path, 0, 1)
    with dg.DagsterInstance.ephemeral() as instance:
        (evaluation,) = _run(instance).get_asset_check_evaluations()
    table = evaluation.metadata["first_rejected_files"]

    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data for record in table.records] == [
        {
            "file": "bad_0.vox",
            "line": 1,
            "code": "expected-name",
            "message": "expected a parameter, found end of line",
        }
    ]


def test_the_data_version_follows_the_content(tmp_path: Path) -> None:
    """Observing twice gives the same version until a file changes."""
    _fill(tmp_path, 2, 0)
    key = dg.AssetKey("vox_sources")
    versions = []
    with dg.DagsterInstance.ephemeral() as instance:
        for content in (None, None, "let x = 1\n"):
            if content:
                (tmp_path / "good_0.vox").write_text(content)
            _run(instance)
            (record,) = instance.fetch_observations(key, limit=1).records
            observation = record.event_log_entry.asset_observation
            assert observation is not None
            versions.append(observation.data_version)

    assert versions[0] == versions[1] != versions[2]
