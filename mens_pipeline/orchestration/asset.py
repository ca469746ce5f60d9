"""Declare assets, set their deadlines, and report why their steps were refused, failed or canceled."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

import dagster as dg

# Nothing public checks or evaluates a cron expression.
from dagster._utils.schedules import get_latest_completed_cron_tick, get_smallest_cron_interval, is_valid_cron_string
from dagster_shared.error import SerializableErrorInfo  # the type of errors in events; Dagster exports no name for it
from pydantic import BaseModel

from mens_pipeline.corpus.curate.pipeline_config import NightlyPolicy, load_pipeline_config
from mens_pipeline.errors import ConfigurationError, MensError
from mens_pipeline.orchestration.metadata import describe_columns
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings, recipe_variables
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import digest_of, key_of

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")

_PREFIX: Final = re.compile(r"^(mens_pipeline\.errors|dagster\.[\w.]+)\.\w+: ")
_OVER: Final = frozenset((dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE))


def stop_if_canceled(context: dg.AssetExecutionContext) -> None:
    """End a step whose run was canceled, deleted or reported as failed, as SIGINT would.

    Dagster sends SIGINT once, and Python swallows a signal that arrives during a weakref callback. The start of a run
    may overwrite the status "canceling", but its event stays. `except Exception` does not catch the
    `DagsterExecutionInterruptedError`.
    """
    instance, run_id = context.instance, context.run.run_id
    run = instance.get_run_by_id(run_id)
    is_canceled = bool(instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_CANCELING))
    if run is None or run.status in _OVER or is_canceled:
        found = "gone" if run is None else "canceled" if is_canceled else run.status.value
        raise dg.DagsterExecutionInterruptedError(f"run {run_id} is {found}; its steps stop here")


def plainly(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Turn errors of this package into a `dg.Failure` that starts with the reason and is not retried.

    The step does not start if its run is already over.
    """

    @wraps(make)
    def make_or_fail(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        stop_if_canceled(dg.AssetExecutionContext.get())
        try:
            return make(*arguments, **named)
        except MensError as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    return make_or_fail


def read_reason(error: SerializableErrorInfo) -> str:
    """Return the message of an error on one line; for a Dagster error that wraps another, the inner message."""
    text = (error.cause or error).message.strip()
    lines = (line.strip() for line in _PREFIX.sub("", text).splitlines())
    return " ".join(line for line in lines if line)


def read_refusals(instance: dg.DagsterInstance, run_id: str) -> dict[str, list[str]]:
    """Return step -> messages of its checks that failed in a run with severity ERROR, with figures if given."""
    refusals: dict[str, list[str]] = {}
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        event = entry.get_dagster_event()
        found = event.asset_check_evaluation_data
        if not found.passed and found.severity is dg.AssetCheckSeverity.ERROR:
            said = found.description or f"{found.asset_key.to_user_string()}/{found.check_name} failed"
            refusals.setdefault(event.step_key or "", []).append(said)
    return refusals


def read_reasons(
    failures: Iterable[dg.DagsterEvent], refusals: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[str]:
    """Yield step and reason for each failed step, or the messages of its failed checks."""
    for event in failures:
        if said := refusals.get(event.step_key or ""):
            yield "; ".join(dict.fromkeys(said))
            continue
        error = event.step_failure_data.error
        yield f"{event.step_key}: {read_reason(error) if error is not None else event.message}"


NEXT: Final = "next"
"""Name of the metadata entry of a failed check with the next step in the UI."""

_AGAIN: Final = (
    'After a fix, choose "From asset failure" or launch a new run. "From failure" checks the old result again.'
)


def add_advice(result: dg.AssetCheckResult) -> dg.AssetCheckResult:
    """Add figures and advice to a blocking check that failed; alerts read the figures in its description."""
    if result.passed:
        return result
    plain = (dg.TextMetadataValue, dg.IntMetadataValue, dg.FloatMetadataValue)
    figures = (f"{name} {value.value}" for name, value in result.metadata.items() if isinstance(value, plain))
    return result._replace(
        description=result.description or ", ".join(figures),
        metadata={**result.metadata, NEXT: dg.MetadataValue.text(_AGAIN)},
    )


def blocking_check(asset: dg.AssetsDefinition) -> Callable[[Callable[..., dg.AssetCheckResult]], Any]:
    """Declare a check whose failure blocks everything downstream of an asset; `add_advice` extends its result."""

    def declare(check: Callable[..., dg.AssetCheckResult]) -> dg.AssetChecksDefinition:
        @wraps(check)
        def check_and_advise(*arguments: Any, **named: Any) -> dg.AssetCheckResult:
            return add_advice(check(*arguments, **named))

        return dg.asset_check(asset=asset, blocking=True)(check_and_advise)

    return declare


OWNERS: Final = ("team:mens",)
"""Owners of every asset that this pipeline makes."""

GPU_TAGS: Final = {"mens/device": "gpu"}
"""Tags of steps that want a GPU, for launchers that choose a machine by tags."""

GPU: Final = "nvidia.com/gpu"
"""A GPU as a resource of Kubernetes."""


def declare_asset(
    group: str, *kinds: str, version: str, rows: type[BaseModel] | None = None, gpus: str = "", **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare the result of a function as an asset, wrapped in `plainly`.

    `version` covers code and configuration; `rows` is the model whose columns the UI shows; `more` goes to `dg.asset`.
    With `gpus` a step occupies a slot of the GPU pool and requests GPUs: `one`, or as many as train with a local
    launcher. With other launchers `devices` requests one, and `workers` none, because workers have their own.
    """
    if rows is not None:
        more["metadata"] = describe_columns(rows)
    # Tags are fixed when the code location is loaded, so the `devices` of a single run have no effect.
    devices, is_local = recipe_variables().get("devices", "1"), load_settings().launcher == "local"
    numbers = {"": "", "one": "1", "devices": devices if is_local else "1", "workers": devices if is_local else ""}
    if number := numbers[gpus]:
        limits = {} if load_settings().backend == "cpu" else {GPU: number}
        pod = {"dagster-k8s/config": {"container_config": {"resources": {"limits": limits}}}}
        more |= {"pool": "gpu", "op_tags": {**GPU_TAGS, **pod}, "tags": GPU_TAGS}

    def declare(make: Callable[..., Any]) -> dg.AssetsDefinition:
        declared = dg.asset(group_name=group, kinds=set(kinds), owners=OWNERS, code_version=version, **more)
        asset: dg.AssetsDefinition = declared(plainly(make))
        return asset

    return declare


def version_with_config(stage: Stage[Any] | str, *paths: Path) -> str:
    """Hash the code version of a stage together with the configuration files it depends on."""
    code = stage if isinstance(stage, str) else stage.code_version
    contents = {path.name: digest_of(path) for path in paths if path.is_file()}
    return key_of({"code": code, "configuration": contents})


@dataclass(frozen=True, slots=True)
class Deadline:
    """Latest time of the alert, and the start of the nightly run before it."""

    begin: datetime
    end: datetime


def load_nightly() -> NightlyPolicy:
    """Read the times of the nightly run; `ConfigurationError` if one is not a cron expression."""
    nightly = load_pipeline_config(PIPELINE_CONFIG).nightly
    for name in ("schedule", "alert"):
        if not is_valid_cron_string(cron := getattr(nightly, name)):
            advice = 'Use five fields, such as "0 4 * * *" for 04:00 every day.'
            raise ConfigurationError(f"{PIPELINE_CONFIG}: nightly.{name}: {cron!r} is not a cron expression. {advice}")
    return nightly


def find_deadline(nightly: NightlyPolicy, now: datetime) -> Deadline:
    """Return the latest deadline that is not after `now`."""
    end = get_latest_completed_cron_tick(nightly.alert, now, nightly.timezone)
    before = end - timedelta(seconds=1)
    return Deadline(get_latest_completed_cron_tick(nightly.schedule, before, nightly.timezone), end)


def build_freshness(nightly: NightlyPolicy, now: datetime) -> dg.FreshnessPolicy:
    """Build a freshness policy: a run must materialise the asset between the nightly start and the alert."""
    last = find_deadline(nightly, now)
    within = min(last.end - last.begin, get_smallest_cron_interval(nightly.alert))
    return dg.FreshnessPolicy.cron(deadline_cron=nightly.alert, lower_bound_delta=within, timezone=nightly.timezone)
