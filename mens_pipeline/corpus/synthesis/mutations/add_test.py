"""Adding a test of a function whose results are known."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.evaluation import BUILT_INS, CannotEvaluateError, Value, result_of
from mens_pipeline.corpus.synthesis.mutations.task import Change, listed, task_of
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import Mode
from mens_pipeline.language.ast.base import walk
from mens_pipeline.language.ast.expressions import IntLit, StringLit
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.ast.patterns import LiteralPattern
from mens_pipeline.language.ast.types import NamedType, Type
from mens_pipeline.language.vocabulary import VIEW_TAGS

_TYPES: Final[dict[str, type]] = {"int": int, "bool": bool, "str": str}
_USUAL: Final[dict[str, tuple[Value, ...]]] = {
    "int": (0, 1, 3, 7, 12, 20),
    "bool": (True, False),
    "str": ("Ada", "tea", "harbour", "north"),
}
_DRAWS: Final = 30
_PLAIN: Final = re.compile(r"[^\"\\\n\r]*")
_FRAMES: Final = (
    "Add a test `{test}` at the end of this Vox program. It checks what {calls} return.",
    "Write a `@test` function `{test}` below this Vox program, with one assertion each for {calls}.",
    "Extend this Vox program by a test `{test}` that asserts the results of {calls}:",
)


@dataclass(frozen=True, slots=True)
class _Case:
    """A call and what it returns."""

    call: str
    result: Value

    def assertion(self) -> str:
        if isinstance(self.result, bool):
            return f"assert({self.call})" if self.result else f"assert(not {self.call})"
        return f"assert({self.call} is {_written(self.result)})"


def add_test(program: Program, random: Random) -> Sample | None:
    """A request to test a function with given arguments, and the program with the test, whose values are true.

    Args:
        program: An accepted program.
        random: Decides.

    Returns:
        The task; None when no function has results that can be told for sure.
    """
    chosen = _choose(program, random)
    if chosen is None:
        return None
    test, cases = chosen
    calls = listed([f"`{case.call}`" for case in cases])
    request = random.choice(_FRAMES).format(test=test, calls=calls)
    body = "".join(f"    {case.assertion()}\n" for case in cases)
    text = f"\n@test\nfn {test}() to Unit {{\n{body}}}\n"
    wanted = [*(span.name for span in program.spans), test]

    def is_done(after: Program) -> bool:
        return [span.name for span in after.spans] == wanted and after.spans[-1].construct.name == "test"

    end = len(program.source)
    return task_of(program, Change("add-test", "test", request, (Edit(end, end, text),), is_done))


def _choose(program: Program, random: Random) -> tuple[str, tuple[_Case, ...]] | None:
    """The name of a test, and two or three calls of its function with their results."""
    names = [span.name for span in program.spans]
    if program.mode is Mode.SCRIPT or any(name in names for name in (*BUILT_INS, "assert")):
        return None
    functions = [
        (span.declaration, f"test_{span.name}_more" if place in program.tested else f"test_{span.name}")
        for place, span in enumerate(program.spans)
        if isinstance(span.declaration, Function) and _is_plain(span.declaration)
    ]
    random.shuffle(functions)
    tests = ((test, _cases(function, random)) for function, test in functions if test not in program.identifiers)
    return next(((test, cases) for test, cases in tests if cases), None)


def _is_plain(function: Function) -> bool:
    """Whether a function takes ints, bools and strings, returns one of them, and can be called by its name."""
    return (
        all(decorator.name == "@pure" for decorator in function.decorators)
        and not (function.is_async or function.effects or function.generics or function.extern_module)
        and function.name[0].islower()
        and function.name not in VIEW_TAGS
        and bool(function.params)
        and all(param.default is None for param in function.params)
        and all(_simple(kind) in _TYPES for kind in (*(param.type for param in function.params), function.return_type))
    )


def _simple(kind: Type | None) -> str:
    return kind.name if isinstance(kind, NamedType) else ""


def _cases(function: Function, random: Random) -> tuple[_Case, ...]:
    """Two or three calls with their results, different ones first; none where too few are known."""
    pools = [_values(function, _simple(param.type)) for param in function.params]
    calls = dict.fromkeys(tuple(random.choice(pool) for pool in pools) for _ in range(_DRAWS))
    cases = [case for arguments in calls for case in _case(function, arguments)]
    different: dict[Value, _Case] = {}
    for case in cases:
        different.setdefault(case.result, case)
    ordered = (*different.values(), *(case for case in cases if case is not different[case.result]))
    return ordered[: random.choice((2, 3))] if len(ordered) > 1 else ()


def _case(function: Function, arguments: Sequence[Value]) -> Iterator[_Case]:
    """The call with its result, if it has one that can be written down."""
    try:
        result = result_of(function, arguments)
    except CannotEvaluateError:
        return
    if type(result) is _TYPES[_simple(function.return_type)] and _PLAIN.fullmatch(str(result)):
        yield _Case(f"{function.name}({', '.join(map(_written, arguments))})", result)


def _values(function: Function, kind: str) -> list[Value]:
    """Arguments of a type: the literals of the function and their neighbours, for there it branches, and some more."""
    numbers = [node.value for node in walk(function) if isinstance(node, IntLit)]
    patterns = [node.value for node in walk(function) if isinstance(node, LiteralPattern)]
    texts = [node.value for node in walk(function) if isinstance(node, StringLit)]
    known: list[Value] = [*numbers, *patterns, *texts]
    nearby = [value + step for value in known if isinstance(value, int) for step in (-1, 0, 1)]
    found = [value for value in (*nearby, *patterns, *texts, *_USUAL[kind]) if type(value) is _TYPES[kind]]
    return [value for value in dict.fromkeys(found) if _can_be_written(value)]


def _can_be_written(value: Value) -> bool:
    """Whether a value is a plain literal: no sign, no escapes."""
    return _PLAIN.fullmatch(value) is not None if isinstance(value, str) else value >= 0


def _written(value: Value) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower()
