"""Types that the generators of synthetic rows return."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from mens_pipeline.language import Mode


@dataclass(frozen=True, slots=True)
class Sample:
    """A request and the program that answers it.

    `template` is what made it (`table/catalogue`, `mutation/rename`, `repair/missing-brace`), `construct` what it
    teaches, a name of `CONSTRUCTS`. The response is code alone, ending in one newline, and the front end accepts it.
    `origin` is the source file it was derived from, if any.
    """

    template: str
    construct: str
    prompt: str
    response: str
    mode: Mode = Mode.SOURCE
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Programs of one shape with varied names, fields, literals and wording.

    `name` is the construct and the shape: `table/catalogue`. The same state of the generator makes the same program on
    every machine; `place` is the file and line where it stands.
    """

    name: str
    construct: str
    make: Callable[[Random], Sample]
    place: str
