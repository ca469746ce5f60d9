"""Which names are visible at a place, with constant time to find one however deep it lies."""

from collections.abc import Iterator
from contextlib import contextmanager

from mens_pipeline.language.names.declarations import Binding


class Scopes:
    """The names visible at the place that a walk has reached."""

    def __init__(self, outermost: dict[str, Binding]) -> None:
        """Begin at the level of the module.

        Args:
            outermost: What is visible everywhere.
        """
        self._visible = dict(outermost)
        self._hidden: list[tuple[str, Binding | None]] = []
        self.in_loop = False

    @contextmanager
    def block(self, *, in_loop: bool | None = None) -> Iterator[None]:
        """Be in a block: what is declared there ends with it (B1).

        Args:
            in_loop: Whether `break` has a loop to act on; by default as around it.
        """
        mark, was_in_loop = len(self._hidden), self.in_loop
        if in_loop is not None:
            self.in_loop = in_loop
        yield
        self.in_loop = was_in_loop
        while len(self._hidden) > mark:
            name, before = self._hidden.pop()
            if before is None:
                del self._visible[name]
            else:
                self._visible[name] = before

    def declare(self, binding: Binding) -> None:
        """Make a name visible, which may shadow any other (B2).

        Args:
            binding: Its meaning.
        """
        self._hidden.append((binding.name, self._visible.get(binding.name)))
        self._visible[binding.name] = binding

    def find(self, name: str) -> Binding | None:
        """Return the nearest meaning of a name.

        Args:
            name: The name.
        """
        return self._visible.get(name)

    def names(self) -> tuple[str, ...]:
        """All names that mean something here."""
        return tuple(self._visible)
