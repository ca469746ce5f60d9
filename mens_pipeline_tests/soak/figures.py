"""The results of a part of the soak, and its limits."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table; `wrong` has a line for each fault."""

    what: str
    value: str
    wrong: tuple[str, ...] = ()


@dataclass(slots=True)
class Budget:
    """A time limit, and a sufficient number of tries."""

    seconds: float
    tries: int
    begun: float = field(default_factory=time.monotonic)
    done: int = 0

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begun

    def begin(self) -> None:
        """Start the time after the preparation."""
        self.begun = time.monotonic()

    def goes_on(self, at_least: int = 1) -> bool:
        """Count a try, if there is time for one more, or too few were made."""
        if self.done >= self.tries or (self.done >= at_least and self.spent >= self.seconds):
            return False
        self.done += 1
        return True
