"""Arguments for `@forall` properties: the same program and seed give the same cases (T8)."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mens_pipeline.language.ast.types import GenericType, NamedType, Param, Type
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.results import Refusal
from mens_pipeline.language.interpreter.values import NONE, Value, some

NUM_CASES: Final = 100
_NUM_EDGE_CASES: Final = 25
_MOST_LENGTH: Final = 8
_INT_BOUND: Final = 2**31
_FLOAT_BOUND: Final = 1e6
_INTS: Final = (0, 1, -1, 2, -2, 3, 7, 10, 100, -100, 255, 1000)
_FLOATS: Final = (0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 1e-9, 100.0, -1e6, 1e6)
_CHARACTERS: Final = "abcxyzABC019 ._-,\"'\\\n\té日"

_Draw = Callable[[Random, bool], Value]
"""Makes a value; the second argument asks for an edge of its kind."""


def cases(params: Sequence[Param], seed: str) -> list[list[Value]]:
    """Draw the arguments of a property, case by case, small edges first.

    Args:
        params: Its parameters.
        seed: What the draws depend on.

    Raises:
        VoxError: A parameter has a type that no value is known of.
    """
    random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
    draws = [_draw_of(param.type) for param in params]
    first = [[draw(_First(), True) for draw in draws]]  # noqa: FBT003 - the shape of a draw
    return first + [[draw(random, number < _NUM_EDGE_CASES) for draw in draws] for number in range(1, NUM_CASES)]


class _First(Random):
    """Draws that take the first of everything: the smallest case."""

    def getrandbits(self, _k: int, /) -> int:
        """Return 0, the smallest draw."""
        return 0


def _int(random: Random, edge: bool) -> int:  # noqa: FBT001 - the shape of a draw
    return random.choice(_INTS) if edge else random.randint(-_INT_BOUND, _INT_BOUND - 1)


def _float(random: Random, edge: bool) -> float:  # noqa: FBT001 - the shape of a draw
    return random.choice(_FLOATS) if edge else random.uniform(-_FLOAT_BOUND, _FLOAT_BOUND)


def _bool(random: Random, _edge: bool) -> bool:  # noqa: FBT001 - the shape of a draw
    return random.choice((False, True))


def _str(random: Random, _edge: bool) -> str:  # noqa: FBT001 - the shape of a draw
    return "".join(random.choices(_CHARACTERS, k=random.randint(0, _MOST_LENGTH)))


_PLAIN: Final[dict[str, _Draw]] = {"int": _int, "float": _float, "bool": _bool, "str": _str}


def _draw_of(annotation: Type | None) -> _Draw:
    if annotation is None:
        return _int
    if isinstance(annotation, NamedType) and annotation.name in _PLAIN:
        return _PLAIN[annotation.name]
    if isinstance(annotation, GenericType) and len(annotation.arguments) == 1:
        inner = _draw_of(annotation.arguments[0])
        if annotation.name in {"List", "list"}:
            return lambda random, edge: [inner(random, edge) for _ in range(random.randint(0, _MOST_LENGTH))]
        if annotation.name == "Option":
            return lambda random, edge: some(inner(random, edge)) if random.choice((False, True)) else NONE
    name = getattr(annotation, "name", type(annotation).__name__)
    raise VoxError(Refusal.PROPERTY_TYPE, f"no values of the type `{name}` can be drawn for a property")
