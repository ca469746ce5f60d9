"""What is said of runs that ended."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.definitions import defs
from mens_pipeline.errors import RefusedError
from mens_pipeline.orchestration.failures import reason_of


def _failing(error: Exception) -> dg.JobDefinition:
    @dg.op
    def step() -> None:
        raise error

    @dg.job
    def some_job() -> None:
        step()

    return some_job


def _said(sensor: str, context: dg.RunStatusSensorContext, capfd: pytest.CaptureFixture[str]) -> str:
    """What a sensor logs, and why it says nothing else."""
    capfd.readouterr()
    outcome = defs().get_repository_def().get_sensor_def(sensor)(context)
    assert outcome is None or isinstance(outcome, dg.SkipReason)
    return capfd.readouterr().err + (outcome.skip_message or "" if outcome is not None else "")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RefusedError("corpus: too small. Write more."), "step: corpus: too small. Write more."),
        (dg.Failure("There is no adapter.\nTrain one."), "step: There is no adapter. Train one."),
        (KeyError("x"), "step: KeyError: 'x'"),
    ],
    ids=["of ours", "of Dagster", "a defect"],
)
def test_a_failed_run_is_told_in_one_line(error: Exception, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Run, job, step and reason."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = _failing(error).execute_in_process(instance=instance, raise_on_error=False)
        context = dg.build_run_status_sensor_context(
            sensor_name="run_failed",
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_failure_event(),
        ).for_run_failure()
        said = _said("run_failed", context, capfd)

    (line,) = [line for line in said.splitlines() if "failed" in line]
    assert line.endswith(f"run {result.run_id} of some_job failed: {reason}")


def test_a_run_that_failed_outside_of_a_step_has_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    """That of the run: a worker that was killed."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = _failing(KeyError("x")).execute_in_process(instance=instance, raise_on_error=False)
        run = instance.create_run_for_job(_failing(KeyError("x")))
        context = dg.build_run_status_sensor_context(
            sensor_name="run_failed",
            dagster_instance=instance,
            dagster_run=run,
            dagster_event=result.get_run_failure_event(),
        ).for_run_failure()

        assert "of some_job failed: Execution of run" in _said("run_failed", context, capfd)


def _ended_well(promotes: bool, selection: list[str] | None, capfd: pytest.CaptureFixture[str]) -> str:  # noqa: FBT001
    """What is said of a run of two assets, the second of which perhaps gives nothing."""

    @dg.asset
    def benchmark_gate() -> None:
        pass

    @dg.asset(deps=[benchmark_gate], output_required=False)
    def promoted_adapter() -> Iterator[dg.MaterializeResult[Any]]:
        if promotes:
            yield dg.MaterializeResult()

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([benchmark_gate, promoted_adapter], instance=instance, selection=selection)
        context = dg.build_run_status_sensor_context(
            sensor_name="run_without_promotion",
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_success_event(),
        )
        return _said("run_without_promotion", context, capfd)


@pytest.mark.parametrize(
    ("promotes", "selection", "words"),
    [
        (True, None, "promoted its adapter, or confirmed the one in use"),
        (False, None, "promoted nothing: the gate refused its adapter, or a rollback had"),
        (False, ["benchmark_gate"], "was not asked for a promotion"),
    ],
    ids=["promoted", "refused", "not asked"],
)
def test_a_green_run_without_a_promotion_is_told(
    promotes: bool,  # noqa: FBT001 - a column
    selection: list[str] | None,
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A hole that nobody would see."""
    assert words in _ended_well(promotes, selection, capfd)


def test_a_reason_is_one_line() -> None:
    """Of the error that was wrapped, without the names of classes that say nothing to people."""

    class Error:
        def __init__(self, message: str, cause: "Error | None" = None) -> None:
            self.message, self.cause = message, cause

    ours = Error("mens_pipeline.errors.RefusedError: No.\n  Try again.\n")

    assert reason_of(ours) == "No. Try again."
    assert (
        reason_of(Error("dagster._core.errors.DagsterExecutionStepExecutionError: Error in step\n", ours))
        == "No. Try again."
    )
    assert reason_of(Error("KeyError: 'x'")) == "KeyError: 'x'"
