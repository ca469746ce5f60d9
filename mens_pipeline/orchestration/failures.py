"""Why a step failed, in one line for people."""

import re
from typing import Final, Protocol

_PREFIX: Final = re.compile(r"^(mens_pipeline\.errors|dagster\.[\w.]+)\.\w+: ")


class ErrorInfo(Protocol):
    """An error as Dagster keeps it."""

    @property
    def message(self) -> str:
        """The class with its module, and the text."""
        ...

    @property
    def cause(self) -> "ErrorInfo | None":
        """What it was raised from."""
        ...


def reason_of(error: ErrorInfo) -> str:
    """The text of the error that a step ended with; of one of Dagster's that wraps another, the text of that one.

    Args:
        error: As Dagster keeps it.
    """
    text = (error.cause or error).message.strip()
    lines = (line.strip() for line in _PREFIX.sub("", text).splitlines())
    return " ".join(line for line in lines if line)
