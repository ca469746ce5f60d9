"""Why a step failed, in one line for people."""

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


def plainly(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Let an asset that refuses say so in its first line, as a failure and not as a defect; nothing is retried."""

    @wraps(make)
    def told(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
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
