"""The times of the nightly run and its alert, from config/pipeline.yaml."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import freeze_time

from mens_pipeline.corpus.curate.pipeline_config import NightlyPolicy
from mens_pipeline.definitions import defs
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.orchestration.asset import build_freshness, find_deadline, load_nightly
from mens_pipeline.orchestration.defs import alerts
from mens_pipeline.settings import PIPELINE_CONFIG


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write other times into the configuration."""

    def write(**times: str) -> None:
        values = {**yaml.safe_load(PIPELINE_CONFIG.read_text()), "nightly": times}
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(values))
        monkeypatch.setattr("mens_pipeline.orchestration.asset.PIPELINE_CONFIG", tmp_path / "pipeline.yaml")

    return write


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({"schedule": "61 4 * * *"}, "nightly.schedule: '61 4 * * *' is not a cron expression. Use five fields"),
        ({"schedule": "04:00"}, "nightly.schedule: '04:00' is not a cron expression. Use five fields"),
        ({"schedule": "0 0 4 * * *"}, "nightly.schedule: '0 0 4 * * *' is not a cron expression"),
        ({"alert": "0 8 31 2 *"}, "nightly.alert: '0 8 31 2 *' is not a cron expression. Use five fields"),
        ({"timezone": "Mars/Base"}, "nightly.timezone: 'Mars/Base' is not a time zone. Write one such as UTC or"),
        ({"timezone": "../UTC"}, "nightly.timezone: '../UTC' is not a time zone"),
        ({"timezone": ""}, "nightly.timezone: '' is not a time zone"),
        ({"hour": "4"}, "nightly.hour: unknown"),
    ],
)
def test_a_wrong_time_is_named(configure: Callable[..., None], times: dict[str, str], problem: str) -> None:
    configure(**times)

    with pytest.raises(ConfigurationError, match=r"pipeline\.yaml: ") as refused:
        load_nightly()
    assert problem in str(refused.value)


def test_schedule_and_alert_follow_the_configuration(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(schedule="30 22 * * *", alert="0 7 * * *", timezone="Europe/Berlin")
    repository = defs().get_repository_def()
    schedule, sensor = repository.get_schedule_def("nightly"), repository.get_sensor_def("adapter_stale")
    said, cursor = [], None
    with dg.DagsterInstance.ephemeral() as instance:
        with freeze_time(datetime(2026, 3, 28, 21, 0, tzinfo=UTC)):  # 22:00 in Berlin, before the night of summer time
            instance.report_runless_asset_event(dg.AssetMaterialization("promoted_adapter"))
        for now in (datetime(2026, 3, 29, 4, 59, tzinfo=UTC), *[datetime(2026, 3, 29, 5, 0, tzinfo=UTC)] * 2):
            monkeypatch.setattr(alerts, "_now", lambda now=now: now)
            with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
                tick = sensor.evaluate_tick(context)
            cursor = tick.cursor
            said.append(tick.skip_message or "")

    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 22 * * *", "Europe/Berlin")
    assert "nightly.alert (0 7 * * *, Europe/Berlin)" in (sensor.description or "")
    assert [text.partition(" on ")[0] for text in said[:2]] == [
        "promoted or confirmed",
        "the adapter in use was last promoted or confirmed",
    ]
    assert said[1].endswith("2026-03-28 at 22:00 Europe/Berlin")
    assert said[2].startswith("reported at 07:00; next at nightly.alert")


@pytest.mark.parametrize(
    ("schedule", "alert", "begin"),
    [
        ("0 4 * * *", "0 8 * * *", "2026-01-05T04:00"),
        ("0 22 * * *", "0 8 * * *", "2026-01-04T22:00"),
        ("0 8 * * *", "0 8 * * *", "2026-01-04T08:00"),
        ("0 22 * * MON-FRI", "0 8 * * *", "2026-01-02T22:00"),
    ],
    ids=["by default", "before midnight", "at the same time", "not at weekends"],
)
def test_the_deadline_covers_the_night_before_it(schedule: str, alert: str, begin: str) -> None:
    nightly, now = NightlyPolicy(schedule=schedule, alert=alert), datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
    found = find_deadline(nightly, now)
    within = min(now - found.begin, timedelta(days=1))

    assert (found.begin, found.end) == (datetime.fromisoformat(begin).replace(tzinfo=UTC), now)
    assert build_freshness(nightly, now) == dg.FreshnessPolicy.cron(
        deadline_cron=alert, lower_bound_delta=within, timezone="UTC"
    )
