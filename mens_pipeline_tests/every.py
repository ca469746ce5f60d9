"""One test of many cases: it looks at all of them, and fails with each that disagrees."""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

_MOST_LINES = 12
"""Of what one case says; a comparison of two programs may have thousands."""


def every(
    name: str, cases: Iterable[Case], ids: Callable[[Case], object] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a test of one case into one test of all.

    As `pytest.mark.parametrize`, without the cost of an item for each case. Fixtures are made once, for all cases. A
    test of no case fails; `ids` name a case where it fails.
    """
    found = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def test_all(**fixtures: Any) -> None:
            disagreements = []
            for case in found:
                try:
                    test(**fixtures, **{name: case})
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told with all the others below
                    disagreements.append(f"{ids(case)}: {_told(error, test)}")
            if disagreements or not found:
                pytest.fail("\n".join([f"{len(disagreements)} of {len(found)} cases", *disagreements]), pytrace=False)

        signature = inspect.signature(test)
        rest = [parameter for key, parameter in signature.parameters.items() if key != name]
        test_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test_all

    return decorate


def _told(error: BaseException, test: Callable[..., None]) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == test.__code__.co_filename]
    said = str(error).splitlines()[:_MOST_LINES]
    return "\n    ".join([f"line {lines[-1] if lines else '?'}, {type(error).__name__}", *said])
