"""Adding a test of a function, with what it was observed to return."""

from random import Random
from typing import Final

from mens_pipeline.corpus.behaviour.observe import NoBehaviour, Observation, behaviour_in
from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.task import Change, listed, task_of
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.corpus.synthesis.tasks.wording import assertion
from mens_pipeline.language import Mode
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.vocabulary import VIEW_TAGS

_MOST: Final = 120
"""Characters of an assertion."""
_FRAMES: Final = (
    "Add a test `{test}` at the end of this Vox program. It checks what {calls} return.",
    "Write a `@test` function `{test}` below this Vox program, with one assertion each for {calls}.",
    "Extend this Vox program by a test `{test}` that asserts the results of {calls}:",
)


def add_test(program: Program, random: Random) -> Sample | None:
    """Make a task: a prompt to test a function with given arguments, and the program with the test, which passes.

    Returns:
        The task; None when no function has a behaviour to test.
    """
    chosen = _choose(program, random)
    if chosen is None:
        return None
    test, observed = chosen
    calls = listed([f"`{call.call}`" for call in observed])
    request = random.choice(_FRAMES).format(test=test, calls=calls)
    body = "".join(f"    {assertion(call)}\n" for call in observed)
    text = f"\n@test\nfn {test}() to Unit {{\n{body}}}\n"
    wanted = [*(span.name for span in program.spans), test]

    def is_done(after: Program) -> bool:
        return [span.name for span in after.spans] == wanted and after.spans[-1].construct.name == "test"

    end = len(program.source)
    return task_of(program, Change("add-test", "test", request, (Edit(end, end, text),), is_done))


def _choose(program: Program, random: Random) -> tuple[str, tuple[Observation, ...]] | None:
    """Choose a name for a test, and two or three calls of its function with their results; None where there is none."""
    if program.mode is Mode.SCRIPT:
        return None
    functions = [
        (function.name, f"test_{function.name}_more" if place in program.tested else f"test_{function.name}")
        for place, span in enumerate(program.spans)
        if isinstance(function := span.declaration, Function) and _is_callable(function)
    ]
    random.shuffle(functions)
    tests = ((test, _calls(program, name, random)) for name, test in functions if test not in program.identifiers)
    return next(((test, calls) for test, calls in tests if calls), None)


def _is_callable(function: Function) -> bool:
    """Return whether a test may call a function by its name, whatever the mode contracts are run in."""
    return (
        all(decorator.name == "@pure" for decorator in function.decorators)
        and function.extern_module is None
        and function.name[0].islower()
        and function.name not in VIEW_TAGS
        and all(param.default is None for param in function.params)
    )


def _calls(program: Program, name: str, random: Random) -> tuple[Observation, ...]:
    """Return two or three short calls, with different results if there are any; none without a behaviour."""
    behaviour = behaviour_in(program.module, name, seed=str(random.random()))
    if isinstance(behaviour, NoBehaviour):
        return ()
    short = [call for call in (*behaviour.examples, *behaviour.hidden) if len(assertion(call)) <= _MOST]
    random.shuffle(short)
    different = {call.result: call for call in short}
    ordered = (*different.values(), *(call for call in short if call is not different[call.result]))
    return ordered[: random.choice((2, 3))] if len(ordered) > 1 else ()
