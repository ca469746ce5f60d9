"""Scheduled runs."""

from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._utils.schedules import schedule_execution_time_iterator  # as in the daemon

from mens_pipeline.definitions import defs


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    return defs().get_repository_def()


@pytest.mark.seed_row(70)
@pytest.mark.parametrize(
    ("name", "now", "tick"),
    [
        ("nightly", datetime(2026, 3, 28, 4, 0, 1, tzinfo=UTC), datetime(2026, 3, 29, 4, tzinfo=UTC)),
        ("nightly", datetime(2026, 3, 29, 3, 59, tzinfo=UTC), datetime(2026, 3, 29, 4, tzinfo=UTC)),
        ("weekly_maintenance", datetime(2026, 3, 23, 12, tzinfo=UTC), datetime(2026, 3, 29, 2, tzinfo=UTC)),
    ],
    ids=["the next day", "also when clocks change", "on Sundays"],
)
def test_finds_the_next_tick(repository: dg.RepositoryDefinition, name: str, now: datetime, tick: datetime) -> None:
    schedule = repository.get_schedule_def(name)

    assert schedule.execution_timezone == "UTC"
    cron = str(schedule.cron_schedule)
    assert next(schedule_execution_time_iterator(now.timestamp(), cron, schedule.execution_timezone)) == tick


@pytest.mark.seed_row(70)
def test_the_nightly_run_extracts_everything_again(repository: dg.RepositoryDefinition) -> None:
    schedule = repository.get_schedule_def("nightly")
    night = datetime(2026, 3, 29, 4, tzinfo=UTC)
    (request,) = schedule.evaluate_tick(dg.build_schedule_context(scheduled_execution_time=night)).run_requests or []

    assert schedule.job_name == "whole_graph"
    assert request.run_config["ops"] == {"extracted_corpus": {"config": {"full": True}}}
    assert dg.validate_run_config(repository.get_job("whole_graph"), request.run_config)
    assert request.tags["mens/job"] == "nightly"


def test_the_weekly_run_applies_both_retention_plans(repository: dg.RepositoryDefinition) -> None:
    schedule = repository.get_schedule_def("weekly_maintenance")
    (request,) = schedule.evaluate_tick(dg.build_schedule_context()).run_requests or []

    assert request.run_config["ops"] == {
        name: {"config": {"apply": True}} for name in ("store_retention", "run_retention")
    }
    resolved = dg.validate_run_config(repository.get_job("maintenance"), {})
    assert resolved["ops"]["store_retention"]["config"] == {"apply": False}


@pytest.mark.parametrize(("environment", "is_on"), [("dev", False), ("prod", True)])
def test_only_production_enables_triggers(monkeypatch: pytest.MonkeyPatch, environment: str, *, is_on: bool) -> None:
    """Nobody's laptop trains or removes anything at night; large copies wait for a person everywhere."""
    monkeypatch.setenv("MENS_ENV", environment)
    repository = defs().get_repository_def()
    by_default = {schedule.name: schedule.default_status.value for schedule in repository.schedule_defs}
    sensors = {sensor.name: sensor.default_status.value for sensor in repository.sensor_defs}

    state = "RUNNING" if is_on else "STOPPED"
    assert by_default == {"nightly": state, "weekly_maintenance": state}
    assert sensors.pop("champion_changed") == "STOPPED"
    assert set(sensors.values()) == {state}
