"""Messages of steps that failed or resumed; and no step outlives its run."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.plan.objects import ErrorSource
from dagster._core.launcher import DefaultRunLauncher

from mens_pipeline.definitions import defs
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import exclusive
from mens_pipeline.orchestration import launchers
from mens_pipeline.orchestration.asset import blocking_check, declare_asset, plainly, read_reasons, read_refusals
from mens_pipeline.orchestration.launchers import watch_training
from mens_pipeline_tests.jobs.processes import waiting_job


def test_a_refusal_is_in_the_first_line() -> None:
    @dg.asset
    @plainly
    def refusing() -> None:
        raise RefusedError("No. Try again.")

    @dg.asset
    @plainly
    def broken() -> None:
        raise KeyError("x")

    result = dg.materialize([refusing, broken], raise_on_error=False)
    errors = {event.step_key: event.step_failure_data for event in result.get_step_failure_events()}

    assert str(errors["refusing"].error_display_string).startswith("dagster._core.definitions.events.Failure: No. Try")
    assert errors["refusing"].user_failure_data is not None
    assert errors["broken"].user_failure_data is None


def test_a_blocking_check_names_the_next_step() -> None:
    @dg.asset
    def made() -> int:
        return 3

    @blocking_check(made)
    def enough(made: int) -> dg.AssetCheckResult:
        """Check that there is enough."""
        return dg.AssetCheckResult(passed=False, metadata={"measured": made, "required": 50, "rows": {"a": 1}})

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([made, enough], instance=instance, raise_on_error=False)
        reasons = [*read_reasons(result.get_step_failure_events(), read_refusals(instance, result.run_id))]
    (found,) = result.get_asset_check_evaluations()

    assert reasons == [found.description] == ["measured 3, required 50"]
    assert "From asset failure" in str(found.metadata["next"].value)


def _wrapper(definition: Any) -> str:
    return str(definition.op.compute_fn.decorated_fn.__code__.co_name)


def test_every_blocking_check_names_the_next_step() -> None:
    graph = defs().resolve_asset_graph()
    blocking = {key.name for key in graph.asset_check_keys if graph.get_check_spec(key).blocking}
    checks: dict[str, Any] = {spec.name: check for check in defs().asset_checks or () for spec in check.check_specs}
    advising = {name for name in blocking if _wrapper(checks[name]) == "check_and_advise"}

    assert blocking - advising == {"gate_passed", "model_parse_rate", "model_coverage"}


@pytest.mark.slow
def test_every_asset_refuses_plainly() -> None:
    made: dict[str, Any] = {
        key.to_user_string(): defs().resolve_assets_def(key)
        for key in defs().resolve_asset_graph().get_all_asset_keys()
    }
    bare = [name for name, asset in made.items() if _wrapper(asset) != "make_or_fail"]

    assert bare == ["promoted_adapter"]


@pytest.mark.parametrize(
    ("launcher", "limits"),
    [("local", ["1", "4", "4"]), ("ray", ["1", "1", None]), ("kuberay", ["1", "1", None])],
)
def test_a_step_requests_the_gpus_that_it_uses(
    monkeypatch: pytest.MonkeyPatch, launcher: str, limits: list[str | None]
) -> None:
    """One for a merge, those of the recipe for evaluation and training, none for training by remote workers."""
    monkeypatch.delenv("VOX_BACKEND", raising=False)
    monkeypatch.setenv("MENS_LAUNCHER", launcher)
    monkeypatch.setenv("MENS_TRAIN_DEVICES", "4")
    found: list[str | None] = []
    for gpus in ("one", "devices", "workers"):

        @declare_asset("group", version="1", gpus=gpus)
        def step() -> dg.MaterializeResult[None]:
            return dg.MaterializeResult()

        tags, wants = step.op.tags, step.op.pool == "gpu"
        assert (tags.get("mens/device") == "gpu") is wants is ("mens/device" in step.specs_by_key[step.key].tags)
        pod = json.loads(tags["dagster-k8s/config"])["container_config"]["resources"] if wants else {"limits": {}}
        found.append(pod["limits"].get("nvidia.com/gpu"))

    assert found == limits


def test_resumed_training_names_its_step() -> None:
    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> None:
        for checkpoint in (None, "checkpoint-40"):
            payload = {"resumed_from": checkpoint, "planned_steps": 300, "computed_by": "the libraries"}
            watch_training(context, 0.0)({"event": "train_start", "payload": payload})

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([adapter], instance=instance)
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]

    assert [line for line in said if "resumed" in line] == ["training resumed at step 40 of 300"]
    assert said.count("training: the libraries") == 2


def test_progress_has_rounded_numbers() -> None:
    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> None:
        step = {"step": 3, "max_steps": 9, "eta_seconds": 60.0}
        step |= {"loss": 2 / 3, "grad_norm": 1 / 3, "tokens_per_second": 1000 / 7}
        watch_training(context, 0.0)({"event": "step", "payload": step})

    result = dg.materialize([adapter])
    (event,) = [event for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    seen = event.asset_observation_data.asset_observation.metadata

    assert {name: value.value for name, value in seen.items()} == {
        "train/step": 3,
        "train/loss": 0.6667,
        "train/grad_norm": 0.3333,
        "train/tokens_per_second": 142.9,
    }


def test_training_is_observed_ten_times() -> None:
    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> None:
        watch = watch_training(context, 0.0)
        for number in range(1, 400):
            step = {"step": number, "max_steps": 400, "eta_seconds": 60.0}
            watch({"event": "step", "payload": {**step, "loss": 1.0, "grad_norm": 1.0, "tokens_per_second": 1.0}})

    events = [event.event_type_value for event in dg.materialize([adapter]).all_events]

    assert events.count("ASSET_OBSERVATION") == 10


def test_output_of_a_process_is_passed_on_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "child.log"
    assert launchers._pass_on(log, 0) == 0  # noqa: SLF001 - the function under test
    log.write_bytes(b"one\n")
    said = launchers._pass_on(log, 0)  # noqa: SLF001 - likewise
    log.write_bytes(b"one\n\x1b[2J two\n")
    assert launchers._pass_on(log, said) == 13  # noqa: SLF001 - likewise

    assert capsys.readouterr().err == "one\n⟨1B⟩[2J two\n"


def _cancel(instance: dg.DagsterInstance, run_id: str) -> None:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_run_canceling(run)


def _cancel_before_start(instance: dg.DagsterInstance, run_id: str) -> None:
    """The launcher does not know the process, and says "Unable to terminate"; the start is reported afterwards."""
    launcher = DefaultRunLauncher()
    launcher.register_instance(instance)
    assert not launcher.terminate(run_id)  # type: ignore[no-untyped-call]
    run = instance.get_run_by_id(run_id)
    assert run is not None
    start = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=run.job_name)
    instance.report_dagster_event(start, run_id)
    again = instance.get_run_by_id(run_id)
    assert again is not None
    assert again.status is dg.DagsterRunStatus.STARTED


def _force_cancel(instance: dg.DagsterInstance, run_id: str) -> None:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_run_canceled(run)


def _delete(instance: dg.DagsterInstance, run_id: str) -> None:
    instance.run_storage.delete_run(run_id)


@pytest.mark.parametrize("end", [_cancel, _cancel_before_start, _force_cancel, _delete])
def test_no_step_starts_after_its_run_has_ended(end: Callable[[dg.DagsterInstance, str], None]) -> None:
    begun = []

    @dg.asset
    @plainly
    def first(context: dg.AssetExecutionContext) -> None:
        begun.append("first")
        end(context.instance, context.run.run_id)

    @dg.asset(deps=[first])
    @plainly
    def second() -> None:
        begun.append("second")

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([first, second], instance=instance, raise_on_error=False)
        left = {run.status for run in instance.get_runs()}

    assert begun == ["first"]
    assert not any(event.event_type is dg.DagsterEventType.RUN_SUCCESS for event in result.all_events)
    # Dagster calls it a failure if the start has replaced the status.
    assert left <= {dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE}


def test_a_child_ends_with_its_run_without_a_signal(tmp_path: Path) -> None:
    """Python swallows SIGINT inside a weakref callback, so the status of the run is checked as well."""
    job, begun = waiting_job(tmp_path / "cpu.lock", lock_seconds=300), time.monotonic()
    with dg.DagsterInstance.ephemeral() as instance, exclusive(tmp_path / "cpu.lock", 0):

        @dg.asset
        @plainly
        def slow(context: dg.AssetExecutionContext) -> None:
            _cancel(instance, context.run.run_id)
            launchers.run_in_child(context, job, 20, lambda _event: None)

        result = dg.materialize([slow], instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(result.run_id)

    assert run is not None
    assert run.status is dg.DagsterRunStatus.CANCELED
    (failed,) = result.get_step_failure_events()
    assert failed.step_failure_data.error_source is ErrorSource.INTERRUPT
    assert time.monotonic() - begun < 60
