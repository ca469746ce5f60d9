"""One test of many cases: it runs all of them, and reports every failure."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

_MOST_LINES = 12
"""Of the message of one case; a comparison of two programs may have thousands."""
_MOST_CHARACTERS = 200
"""Of the name of a row."""


def every(
    name: str, cases: Iterable[Case] | Callable[[], Iterable[Case]], ids: Callable[[Case], object] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a test of one case into one test of all.

    Like `pytest.mark.parametrize`, without the cost of an item for each case. Fixtures are made once, for all cases. A
    test without cases fails; `ids` name a case that fails. Cases that are slow to make are passed as a function.
    """
    make = list(cases).copy if isinstance(cases, Iterable) else cases
    return lambda test: _join(test, [name], lambda: [(case,) for case in make()], lambda row: ids(row[0]))


def every_row(*rows: tuple[Any, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator as `every` does, for cases of several values: the first parameters of the test, in order."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        columns = list(inspect.signature(test).parameters)[: len(rows[0])]
        return _join(test, columns, lambda: rows, lambda row: str(row)[:_MOST_CHARACTERS])

    return decorate


def _join(
    test: Callable[..., None],
    columns: list[str],
    make: Callable[[], Sequence[tuple[Any, ...]]],
    ids: Callable[[Any], object],
) -> Callable[..., None]:
    @functools.wraps(test)
    def test_all(**fixtures: Any) -> None:
        failures, rows = [], make()
        for row in rows:
            try:
                test(**fixtures, **dict(zip(columns, row, strict=True)))
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - reported with all others below
                failures.append(f"{ids(row)}: {_describe(error, test)}")
        if failures or not rows:
            pytest.fail("\n".join([f"{len(failures)} of {len(rows)} cases", *failures]), pytrace=False)

    signature = inspect.signature(test)
    rest = [parameter for key, parameter in signature.parameters.items() if key not in columns]
    test_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
    return test_all


def _describe(error: BaseException, test: Callable[..., None]) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == test.__code__.co_filename]
    message = str(error).splitlines()[:_MOST_LINES]
    return "\n    ".join([f"line {lines[-1] if lines else '?'}, {type(error).__name__}", *message])
