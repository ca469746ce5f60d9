"""Counts operations: on a GPU each is a kernel launch, and launches dominate the time of small batches."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253 - what is counted with


class _Counter(TorchDispatchMode):  # type: ignore[misc]  # the library is untyped
    """Counts operations that compute; a view launches nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int = 0

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.number += not function.is_view
        return function(*arguments, **(named or {}))


def count_operations(work: Callable[[], object]) -> int:
    """Count the operations of a piece of work, gradients included."""
    counter = _Counter()
    with counter:
        work()
    return counter.number
