"""Times of the nightly run and of its alert: `nightly` of config/pipeline.yaml, checked as Dagster reads it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import dagster as dg

# Nothing public checks or evaluates a cron expression.
from dagster._utils.schedules import get_latest_completed_cron_tick, get_smallest_cron_interval, is_valid_cron_string

from mens_pipeline.corpus.curate.pipeline_config import NightlyPolicy, load_pipeline_config
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import PIPELINE_CONFIG


@dataclass(frozen=True, slots=True)
class Deadline:
    """The latest time of the alert, and the start of the nightly run before it."""

    begin: datetime
    end: datetime


def load_nightly() -> NightlyPolicy:
    """Read the times of the nightly run; a ConfigurationError names a wrong one."""
    nightly = load_pipeline_config(PIPELINE_CONFIG).nightly
    for name in ("schedule", "alert"):
        if not is_valid_cron_string(cron := getattr(nightly, name)):
            advice = 'Write five fields, such as "0 4 * * *" for 04:00 every day.'
            raise ConfigurationError(f"{PIPELINE_CONFIG}: nightly.{name}: {cron!r} is not a cron expression. {advice}")
    return nightly


def find_deadline(nightly: NightlyPolicy, now: datetime) -> Deadline:
    """Return the latest deadline that is not after `now`."""
    end = get_latest_completed_cron_tick(nightly.alert, now, nightly.timezone)
    before = end - timedelta(seconds=1)
    return Deadline(get_latest_completed_cron_tick(nightly.schedule, before, nightly.timezone), end)


def build_freshness(nightly: NightlyPolicy, now: datetime) -> dg.FreshnessPolicy:
    """Build the policy of an asset that a run since the nightly start must make before the time of the alert."""
    last = find_deadline(nightly, now)
    within = min(last.end - last.begin, get_smallest_cron_interval(nightly.alert))
    return dg.FreshnessPolicy.cron(deadline_cron=nightly.alert, lower_bound_delta=within, timezone=nightly.timezone)
