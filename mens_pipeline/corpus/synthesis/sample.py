"""Types that the generators of synthetic rows return."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from mens_pipeline.language import Mode


@dataclass(frozen=True, slots=True)
class Sample:
    """A request and the program that answers it.

    Attributes:
        template: What made it: `table/catalogue`, `mutation/rename`, `repair/missing-brace`.
        construct: What it teaches; a name of `CONSTRUCTS`.
        prompt: The request.
        response: The program, code alone, ending in one newline; the front end accepts it.
        mode: How to read the program.
        origin: The source file it was derived from, if it was derived from one.
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

    Attributes:
        name: The construct and the shape: `table/catalogue`.
        construct: What its programs teach; a name of `CONSTRUCTS`.
        make: One of them; the same state of the generator gives the same program on every machine.
        place: The file and line where it stands.
    """

    name: str
    construct: str
    make: Callable[[Random], Sample]
    place: str
