"""Alerts to log and webhook: failed runs, refused adapters, a stale champion."""

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Final

import dagster as dg
from pydantic import SecretStr

from mens_pipeline.orchestration.asset import find_deadline, load_nightly, read_reasons, read_refusals
from mens_pipeline.orchestration.defs.automation import whole_graph
from mens_pipeline.orchestration.defs.promotion import PromotionConfig, promoted_adapter
from mens_pipeline.orchestration.recipes import config_of, trial_of
from mens_pipeline.settings import load_settings

_TIMEOUT_SECONDS: Final = 10.0


@dg.definitions
def alerts() -> dg.Definitions:
    """Define the sensors that send alerts; they start running in production."""
    is_production = load_settings().environment == "prod"
    status = dg.DefaultSensorStatus.RUNNING if is_production else dg.DefaultSensorStatus.STOPPED
    return dg.Definitions(sensors=[_failed_sensor(status), _unpromoted_sensor(status), _stale_sensor(status)])


def _failed_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    @dg.run_failure_sensor(
        name="run_failed",
        default_status=status,
        description="Reports a failed run in one line: job, step, reason.",
    )
    def alert_failure(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        refusals = read_refusals(context.instance, run.run_id)
        reasons = list(read_reasons(context.get_step_failure_events(), refusals)) or [
            context.failure_event.message or "no reason given"
        ]
        line = f"{'; '.join(reasons)} (run {run.run_id} of {run.job_name} failed)"
        _report(context.log, logging.ERROR, "run_failed", line, {"run": run.run_id, "job": run.job_name})

    return alert_failure


def _unpromoted_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    @dg.run_status_sensor(
        name="run_without_promotion",
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[whole_graph],
        default_status=status,
        description="Warns if a run of the whole graph succeeded but promoted nothing.",
    )
    def alert_refusal(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        if not _has(context, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED):
            return dg.SkipReason(f"run {run.run_id} does not include promoted_adapter")
        if trial_of(run) or not PromotionConfig(**config_of(run, promoted_adapter.op.name)).promote:
            return dg.SkipReason(f"run {run.run_id} only evaluates and promotes nothing")
        if _has(context, dg.DagsterEventType.ASSET_MATERIALIZATION):
            return dg.SkipReason(f"run {run.run_id} promoted its adapter, or confirmed the one in use")
        refusals = read_refusals(context.instance, run.run_id).get(promoted_adapter.op.name, ["nothing was promoted"])
        line = f"{'; '.join(refusals)} (run {run.run_id} of {run.job_name})"
        facts = {name.removeprefix("mens/"): value for name, value in run.tags.items() if name.startswith("mens/")}
        _report(context.log, logging.WARNING, "run_refused", line, {"run": run.run_id, "job": run.job_name, **facts})
        return None

    return alert_refusal


def _stale_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    nightly = load_nightly()
    when = f"nightly.alert ({nightly.alert}, {nightly.timezone})"

    @dg.sensor(
        name="adapter_stale",
        minimum_interval_seconds=600,
        default_status=status,
        description=f"Reports at {when} if no run since the nightly start has promoted or confirmed an adapter.",
    )
    def stale(context: dg.SensorEvaluationContext) -> dg.SkipReason | dg.SensorResult:
        last = find_deadline(nightly, _now())
        if context.cursor == last.end.isoformat():
            return dg.SkipReason(f"reported at {last.end:%H:%M}; next at {when}")
        latest = context.instance.get_latest_materialization_event(promoted_adapter.key)
        if latest is None:
            return dg.SkipReason("no adapter has been promoted yet")
        since = datetime.fromtimestamp(latest.timestamp, last.end.tzinfo)
        if since >= last.begin:
            return dg.SkipReason(f"promoted or confirmed on {since:%Y-%m-%d at %H:%M}; next at {when}")
        line = f"the adapter in use was last promoted or confirmed on {since:%Y-%m-%d at %H:%M} {nightly.timezone}"
        _report(context.log, logging.WARNING, "adapter_stale", line, {"since": since.isoformat()})
        return dg.SensorResult(skip_reason=dg.SkipReason(line), cursor=last.end.isoformat())

    return stale


def _now() -> datetime:
    return datetime.now(UTC)


def _report(log: logging.Logger, level: int, event: str, line: str, facts: dict[str, str]) -> None:
    log.log(level, "%s", line)
    if problem := post_to_webhook(load_settings().alert_url, event, line, facts):
        log.warning("alert not delivered: %s", problem)


def _has(context: dg.RunStatusSensorContext, event_type: dg.DagsterEventType) -> bool:
    """Return whether a run has an event of `promoted_adapter`; its selection may be empty, so it does not tell."""
    events = (
        entry.dagster_event for entry in context.instance.all_logs(context.dagster_run.run_id, of_type=event_type)
    )
    return any(event is not None and event.asset_key == promoted_adapter.key for event in events)


def post_to_webhook(url: SecretStr | None, event: str, text: str, facts: Mapping[str, str]) -> str | None:
    """Post a message if there is an address; return the reason of a failure, without the secret address, else None."""
    if url is None:
        return None
    body = json.dumps({"text": text, "event": event, **facts}).encode()
    request = urllib.request.Request(  # noqa: S310 - the settings accept only http and https
        url.get_secret_value(), data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):  # noqa: S310 - likewise
            return None
    except urllib.error.HTTPError as error:
        return f"MENS_ALERT_URL returned HTTP {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"MENS_ALERT_URL cannot be reached ({type(reason).__name__})"
