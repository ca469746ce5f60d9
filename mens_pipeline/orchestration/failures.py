"""How a step ends that does not come to its end: with a reason in one line for people, or canceled with its run."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from mens_pipeline.errors import MensError

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")

_PREFIX: Final = re.compile(r"^(mens_pipeline\.errors|dagster\.[\w.]+)\.\w+: ")


_OVER: Final = frozenset((dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE))


def stop_if_canceled(context: dg.AssetExecutionContext) -> None:
    """End a step whose run was canceled, deleted or reported as failed, as SIGINT would.

    Dagster sends SIGINT once, and Python swallows it where it comes in the middle of a weakref callback.

    Raises:
        dagster.DagsterExecutionInterruptedError: The run is over; no `except Exception` holds this up.
    """
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is None or run.status in _OVER:
        found = "gone" if run is None else run.status.value
        raise dg.DagsterExecutionInterruptedError(f"run {context.run.run_id} is {found}; nothing more is done for it")


def plainly(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Let an asset that refuses say so in its first line, as a failure and not as a defect; nothing is retried.

    It does not begin where its run is over.
    """

    @wraps(make)
    def told(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        stop_if_canceled(dg.AssetExecutionContext.get())
        try:
            return make(*arguments, **named)
        except MensError as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    return told


def reason_of(error: SerializableErrorInfo) -> str:
    """Return the text of the error that a step ended with; of one of Dagster's that wraps another, the text of that."""
    text = (error.cause or error).message.strip()
    lines = (line.strip() for line in _PREFIX.sub("", text).splitlines())
    return " ".join(line for line in lines if line)


def reasons_of(failures: Iterable[dg.DagsterEvent]) -> Iterator[str]:
    """Yield step and reason of each step that failed by itself."""
    for event in failures:
        error = event.step_failure_data.error
        yield f"{event.step_key}: {reason_of(error) if error is not None else event.message}"
